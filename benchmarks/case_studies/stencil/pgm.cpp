// SPDX-License-Identifier: BSD-3-Clause
#include "pgm.hpp"

#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

namespace stencil {

namespace {

class reader {
public:
    reader(std::string_view contents, const std::string& name) : left_(contents), name_(name) {}

    [[noreturn]] void fail(const std::string& reason) const {
        throw std::runtime_error(fmt::format("{} is not a usable PGM file: {}", name_, reason));
    }

    void magic() {
        if (left_.substr(0, 2) == "P2") fail("it is the text form (P2); convert it to the binary form (P5)");
        if (left_.substr(0, 2) != "P5") fail("it does not begin with P5");
        left_.remove_prefix(2);
    }

    int number(const char* subject) {
        skip_space_and_comments();
        int value = 0;
        const auto [end, failure] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
        if (failure == std::errc::result_out_of_range) fail(fmt::format("the {} is too large", subject));
        if (failure != std::errc()) fail(fmt::format("the header has no {}", subject));
        left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
        return value;
    }

    // Exactly one white space ends the header; what follows may look like white space and is data.
    std::string_view data() {
        if (left_.empty() || !is_space(left_.front())) fail("no white space after the maximum");
        return left_.substr(1);
    }

private:
    static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

    void skip_space_and_comments() {
        bool separated = false;
        while (!left_.empty() && (is_space(left_.front()) || left_.front() == '#')) {
            if (left_.front() == '#') {
                const auto end = left_.find('\n');
                left_.remove_prefix(end == left_.npos ? left_.size() : end);
            } else {
                left_.remove_prefix(1);
            }
            separated = true;
        }
        if (!separated) fail("its header is cut short or misses a white space");
    }

    std::string_view left_;
    const std::string& name_;
};

} // namespace

gray_map parse_pgm(std::string_view contents, const std::string& name) {
    reader file(contents, name);
    gray_map map;
    file.magic();
    map.width = file.number("width");
    map.height = file.number("height");
    const int maximum = file.number("maximum");
    if (map.width < 1 || map.height < 1) file.fail(fmt::format("its size is {} x {}", map.width, map.height));
    if (maximum < 1 || maximum > 65535) file.fail(fmt::format("its maximum is {}, not within 1 to 65535", maximum));

    const std::string_view data = file.data();
    const std::size_t sample_bytes = maximum < 256 ? 1 : 2;
    const std::size_t count = static_cast<std::size_t>(map.width) * static_cast<std::size_t>(map.height);
    if (data.size() / sample_bytes < count)
        file.fail(fmt::format("{} x {} samples of {} B need {} B, but only {} B follow the header", map.width,
                              map.height, sample_bytes, count * sample_bytes, data.size()));
    map.samples.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(data[at]); };
        const int sample = sample_bytes == 1 ? byte(i) : byte(2 * i) * 256 + byte(2 * i + 1);
        if (sample > maximum) file.fail(fmt::format("sample {} is {}, above its maximum {}", i, sample, maximum));
        map.samples[i] = static_cast<std::uint16_t>(sample);
    }
    return map;
}

std::string format_pgm(const gray_map& map, const std::string& comment) {
    std::string file = fmt::format("P5\n# {}\n{} {}\n65535\n", comment, map.width, map.height);
    file.reserve(file.size() + 2 * map.samples.size());
    for (const std::uint16_t sample : map.samples) {
        file.push_back(static_cast<char>(sample >> 8));
        file.push_back(static_cast<char>(sample & 0xff));
    }
    return file;
}

} // namespace stencil
