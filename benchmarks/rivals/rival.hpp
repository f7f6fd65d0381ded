// SPDX-License-Identifier: BSD-3-Clause
// What the programs of the rivals share: which process of dcuda-run this is, and how they hand each other an id.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "common/device.hpp"
#include "common/device_memory.hpp"
#include "common/machine.hpp"
#include "common/options.hpp"
#include "common/record.hpp"

namespace benchmark {

inline constexpr int skipped = 77; // exit status
inline constexpr std::size_t halo_bytes = 26'624;

inline std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
}

// Of NVLink, in both libraries, whatever the caller's environment says.
inline void switch_multicast_off() {
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
}

// One process of dcuda-run, with a GPU of its own.
struct rival_job {
    int index = 0, count = 1;

    rival_job() {
        if (variable("DCUDA_PROCESS_COUNT").empty()) return;
        index = std::stoi(variable("DCUDA_PROCESS_INDEX"));
        count = std::stoi(variable("DCUDA_PROCESS_COUNT"));
    }
    bool first() const { return index == 0; }
    // The file through which processes of this job meet.
    std::filesystem::path meeting_place(const std::string& library) const {
        const std::size_t name = std::hash<std::string>{}(variable("DCUDA_JOB"));
        return std::filesystem::temp_directory_path() / ("dcuda-bench." + library + "." + std::to_string(name));
    }
};

// Process 0 makes an id, and hands it over in a file of this job's own, which it removes when all have joined.
template <class Id, class Make>
Id exchange_id(const rival_job& job, const std::filesystem::path& file, Id id, const Make& make) {
    if (job.first()) {
        make(id);
        const std::filesystem::path unfinished = file.string() + ".part";
        std::ofstream out(unfinished, std::ios::binary);
        out.write(reinterpret_cast<const char*>(&id), sizeof id);
        out.close();
        if (!out) throw std::runtime_error("cannot write " + unfinished.string());
        std::filesystem::rename(unfinished, file);
        return id;
    }
    for (int tenths = 0; !std::filesystem::exists(file); ++tenths) {
        if (tenths == 300) throw std::runtime_error("process 0 left no " + file.string() + " within 30 s");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    std::ifstream in(file, std::ios::binary);
    in.read(reinterpret_cast<char*>(&id), sizeof id);
    if (!in) throw std::runtime_error("cannot read " + file.string());
    return id;
}

// Runs measure(job, rows) where there are GPUs for it, and writes the record. The exit status of the program.
template <class Measure>
int run_rival(int argc, char** argv, const std::string& program, const std::string& description,
              const std::string& version, const Measure& measure) {
    try {
        const rival_job job;
        const command_line command = parse_rival_command_line(argc, argv, program, description);
        if (!command.chosen) {
            if (job.first()) std::fputs(command.text.c_str(), command.status == 0 ? stdout : stderr);
            return command.status;
        }
        int gpus = 0;
        if (cudaGetDeviceCount(&gpus) != cudaSuccess || job.count < 2 || gpus < job.count) {
            if (job.first())
                std::printf("skipped: %s takes two processes or more (dcuda-run -n 2) with a GPU each; here are %d and "
                            "%d GPUs\n",
                            program.c_str(), job.count, gpus);
            return skipped;
        }
        check(cudaSetDevice(job.index), "cannot use the GPU");
        record results{program, version, job.count};
        measure(job, *command.chosen, results.rows);
        if (!job.first()) return 0;
        std::fputs(format_table(results, *command.chosen).c_str(), stdout);
        if (!command.chosen->json.empty()) write_record(command.chosen->json, results, *command.chosen);
        return 0;
    } catch (const std::exception& reason) {
        std::fprintf(stderr, "%s: %s\n", program.c_str(), reason.what());
        return 1;
    }
}

} // namespace benchmark
