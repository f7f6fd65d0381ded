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
    std::vector<Record> gather(const Record& own, std::string_view subject) {
        dcuda::support::wire_writer writer;
        writer.put(own);
        std::vector<Record> all;
        for (const std::string& one : control_.allgather(writer.bytes(), subject))
            all.push_back(dcuda::support::wire_reader(one).get<Record>());
        return all;
    }
    std::vector<std::string> gather_text(std::string_view own, std::string_view subject) {
        return control_.allgather(own, subject);
    }
    double largest(double own) {
        const std::vector<double> all = gather(own, "times");
        return *std::max_element(all.begin(), all.end());
    }

private:
    dcuda::bootstrap::control control_;
};

} // namespace common
