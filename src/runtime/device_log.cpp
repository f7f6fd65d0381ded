// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device_log.hpp"

#include <fmt/format.h>

#include "support/losses.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dcuda {

using namespace detail;

namespace {

template <class Value>
Value read_as(const std::byte* content) {
    Value value;
    std::memcpy(&value, content, sizeof value);
    return value;
}

} // namespace

void device_log::print(std::string& line) {
    line += '\n';
    const int problem = support::write_to_output(line);
    if (problem != 0 && !std::exchange(is_lossy_, true))
        support::report_loss(fmt::format("what the ranks of process {} log cannot be written to standard output: {}",
                                         process_, std::strerror(problem)));
    line.clear();
}

void device_log::take(const command& log) {
    std::string& line = lines_[log.rank];
    const auto item = fields_of<log_fields>(log);
    const std::byte* const content = item.content;
    switch (item.kind) {
    case log_item::text:
        line.append(reinterpret_cast<const char*>(content), std::min(item.bytes, log_text_bytes));
        break;
    case log_item::integer:
        line += fmt::format("{}", read_as<std::int64_t>(content));
        break;
    case log_item::unsigned_integer:
        line += fmt::format("{}", read_as<std::uint64_t>(content));
        break;
    case log_item::real:
        line += fmt::format("{}", read_as<double>(content));
        break;
    case log_item::character:
        line += static_cast<char>(read_as<std::int64_t>(content));
        break;
    case log_item::pointer:
        line += fmt::format("{:#x}", read_as<std::uint64_t>(content));
        break;
    case log_item::end:
        print(line);
        break;
    }
}

void device_log::flush() {
    for (std::string& line : lines_)
        if (!line.empty()) print(line);
}

} // namespace dcuda
