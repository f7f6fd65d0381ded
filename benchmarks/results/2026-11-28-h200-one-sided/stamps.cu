// SPDX-License-Identifier: BSD-3-Clause
// Where the time of one-sided operations goes: clock cycles from the call to places in the library. For a copy of
// include/ with stamps.patch:
//
//   nvcc -std=c++20 -arch=sm_90 -O3 -DNDEBUG -I<copy> stamps.cu <libdcuda_cuda.a> -lsodium -o stamps; dcuda-run -n 2
//   ./stamps
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dcuda/dcuda.hpp>
#include <string>
#include <vector>
using dcuda::detail::exec::probe_at;
namespace ex = dcuda::detail::exec;
constexpr int rounds = 300, places = 16;
__global__ void probe(dcuda::context context, int mode, int rows, std::size_t pitch_bytes, std::size_t span,
                      unsigned char* memory, unsigned* out) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id();
    unsigned char* own = memory + 2 * span * self.id(dcuda::device);
    unsigned char* source = own + span;
    const dcuda::window win = self.create_window(dcuda::world, own, span);
    self.barrier(dcuda::world);
    const int target = self.size() - 1;
    unsigned sum = 0;
    for (int r = 0; r < rounds; ++r) {
        if (id == 0) {
            ex::stamp(0, sum);
            if (mode == 0) sum += self.fetch_add(win, target, 0, 1u);
            if (mode == 1)
                self.put_notify(win, target, 0, dcuda::pitch{pitch_bytes}, dcuda::box{8, (std::size_t)rows}, source,
                                dcuda::pitch{pitch_bytes}, 1);
            if (mode == 2) self.get(win, target, 256, 8, source);
            if (mode >= 3) self.put_notify(win, target, 0, mode == 3 ? 8 : rows, source, 1);
            ex::stamp(13, sum);
            if (mode == 2) self.flush(win);
            ex::stamp(14, sum);
            if (threadIdx.x == 0)
                for (int i = 0; i < places; ++i) out[r * places + i] = probe_at[i];
            __syncthreads();
        }
        if ((mode == 1 || mode >= 3) && id == target) self.wait_notifications(1, 1);
        if ((mode == 1 || mode >= 3)) {
            if (id == target) self.notify(0, dcuda::world, 2);
            if (id == 0) self.wait_notifications(2, 1);
        }
    }
    self.barrier(dcuda::world);
    self.free_window(win);
}
int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    const std::size_t span = 8 << 20;
    unsigned char* memory;
    unsigned* out;
    cudaMalloc(&memory, 4 * span);
    cudaMemset(memory, 0, 4 * span);
    cudaMalloc(&out, rounds * places * 4);
    struct {
        const char* name;
        int mode, rows;
        std::size_t pitch;
        int threads;
    } cases[] = {{"fetch_add 128", 0, 0, 0, 128},
                 {"fetch_add 32", 0, 0, 0, 32},
                 {"get 8 flush 128", 2, 0, 0, 128},
                 {"box 1 row", 1, 1, 8192, 128},
                 {"box 128 rows", 1, 128, 8192, 128},
                 {"box 512 rows", 1, 512, 8192, 128},
                 {"box 512 rows, pitch 16", 1, 512, 16, 128},
                 {"box 512 rows, pitch 8208", 1, 512, 8208, 128},
                 {"put_notify 8", 3, 0, 0, 128},
                 {"put_notify 4096", 4, 4096, 0, 128}};
    for (auto& c : cases) {
        dcuda::launch_config config{.threads = c.threads};
        config.ranks_per_device = runtime.plan(probe, config).process_count > 1 ? 1 : 2;
        cudaMemset(out, 0, rounds * places * 4);
        runtime.run(probe, config, c.mode, c.rows, c.pitch, span, memory, out);
        std::vector<unsigned> at(rounds * places);
        cudaMemcpy(at.data(), out, at.size() * 4, cudaMemcpyDeviceToHost);
        std::vector<unsigned> total;
        if (runtime.plan(probe, config).process_index != 0) continue;
        std::printf("%-26s", c.name);
        for (int i = 1; i < 15; ++i) {
            std::vector<int> d;
            for (int r = 50; r < rounds; ++r) {
                const unsigned v = at[r * places + i], z = at[r * places];
                if (v - z < 1000000u) d.push_back((int)(v - z));
            }
            std::sort(d.begin(), d.end());
            if (d.size() > 200)
                std::printf(" %d:%d", i, d[d.size() / 2]);
            else
                std::printf(" %d:-", i);
        }
        std::printf("\n");
    }
    return 0;
} catch (const dcuda::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
