// SPDX-License-Identifier: BSD-3-Clause
#include "labels.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace sparse {

namespace {

// Reads a file record by record. Fields in quotation marks may hold commas, line ends and doubled quotation marks.
class record_reader {
public:
    record_reader(std::string_view contents, const std::string& name) : left_(contents), name_(name) {}

    [[noreturn]] void fail(const std::string& reason) const {
        throw std::runtime_error(fmt::format("{}, line {}: {}", name_, first_line_, reason));
    }

    // False at the end of the file.
    bool next(std::vector<std::string>& fields) {
        fields.clear();
        if (left_.empty()) return false;
        first_line_ = line_ + 1;
        for (bool more = true; more;) {
            fields.push_back(left_.starts_with('"') ? quoted() : plain());
            more = left_.starts_with(',');
            if (more) left_.remove_prefix(1);
        }
        if (left_.starts_with('\r')) left_.remove_prefix(1);
        if (!left_.empty() && left_[0] != '\n') fail("something follows a closing quotation mark");
        if (!left_.empty()) left_.remove_prefix(1);
        ++line_;
        return true;
    }

private:
    std::string plain() {
        const std::size_t end = std::min(left_.find_first_of(",\r\n"), left_.size());
        const std::string field(left_.substr(0, end));
        if (field.find('"') != field.npos) fail("a quotation mark inside a field that does not begin with one");
        left_.remove_prefix(end);
        return field;
    }

    std::string quoted() {
        std::string field;
        for (left_.remove_prefix(1); !left_.empty(); left_.remove_prefix(1)) {
            if (left_[0] == '"') {
                left_.remove_prefix(1);
                if (!left_.starts_with('"')) return field;
            }
            if (left_[0] == '\n') ++line_;
            field += left_[0];
        }
        fail("a quotation mark is never closed");
    }

    std::string_view left_;
    const std::string& name_;
    long long line_ = 0;
    long long first_line_ = 1; // of the record
};

} // namespace

std::vector<std::string> parse_labels(std::string_view contents, const std::string& name) {
    record_reader file(contents, name);
    std::vector<std::string> fields, labels;
    if (!file.next(fields)) file.fail("the file is empty");
    const std::size_t headings = fields.size();
    while (file.next(fields)) {
        if (fields.size() != headings) file.fail(fmt::format("{} fields, but {} headings", fields.size(), headings));
        if (fields[0].empty()) file.fail("the label is empty");
        labels.push_back(fields[0]);
    }
    return labels;
}

} // namespace sparse
