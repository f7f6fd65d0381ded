// SPDX-License-Identifier: BSD-3-Clause
// The processes of the job, one per device, for what a model says at its set-up.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/control.hpp"
#include "support/wire.hpp"

namespace common {

class processes {
public:
    processes() : control_(dcuda::bootstrap::detect_job(), "models") {}

    int index() const { return control_.index(); }
    int count() const { return control_.count(); }
    const std::string& local_address() const { return control_.local_address(); }

    // Collective: what each of them gives.
    template <class Record>
    std::vector<Record> gather(const Record& mine, std::string_view what) {
        dcuda::support::wire_writer writer;
        writer.put(mine);
        std::vector<Record> all;
        for (const std::string& one : control_.allgather(writer.bytes(), what))
            all.push_back(dcuda::support::wire_reader(one).get<Record>());
        return all;
    }
    std::vector<std::string> gather_text(std::string_view mine, std::string_view what) {
        return control_.allgather(mine, what);
    }
    double largest(double mine) {
        const std::vector<double> all = gather(mine, "times");
        return *std::max_element(all.begin(), all.end());
    }

private:
    dcuda::bootstrap::control control_;
};

} // namespace common
