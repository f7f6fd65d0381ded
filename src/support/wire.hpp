// SPDX-License-Identifier: BSD-3-Clause
// Records as raw bytes, for the control plane. All processes of a job run the same build, so the layout is the same.
// What is malformed all the same throws error(bootstrap_failure), and takes no memory that has not come.
#pragma once

#include "dcuda/error.hpp"

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dcuda::support {

class wire_writer {
public:
    template <class Record>
    void put(const Record& record) {
        static_assert(std::is_trivially_copyable_v<Record>);
        bytes_.append(reinterpret_cast<const char*>(&record), sizeof record);
    }
    template <class Record>
    void put(const std::vector<Record>& records) {
        put(records.size());
        for (const Record& record : records) put(record);
    }
    void put(std::string_view text) {
        put(text.size());
        bytes_.append(text);
    }
    const std::string& bytes() const { return bytes_; }

private:
    std::string bytes_;
};

class wire_reader {
public:
    explicit wire_reader(std::string_view bytes) : bytes_(bytes) {}

    template <class Record>
    Record get() {
        static_assert(std::is_trivially_copyable_v<Record>);
        if constexpr (std::is_same_v<Record, bool>) {
            const auto byte = static_cast<unsigned char>(take(1).front());
            if (byte > 1) malformed();
            return byte != 0;
        }
        Record record;
        const std::string_view raw = take(sizeof record);
        std::memcpy(static_cast<void*>(&record), raw.data(), sizeof record);
        return record;
    }
    template <class Record>
    std::vector<Record> get_vector() {
        const auto count = get<std::size_t>();
        if (count > bytes_.size() / sizeof(Record)) malformed();
        std::vector<Record> records(count);
        for (Record& record : records) record = get<Record>();
        return records;
    }
    std::string get_text() { return std::string(take(get<std::size_t>())); }

private:
    [[noreturn]] static void malformed() {
        throw error(error_code::bootstrap_failure, "malformed message between processes");
    }
    std::string_view take(std::size_t count) {
        if (count > bytes_.size()) malformed();
        const std::string_view taken = bytes_.substr(0, count);
        bytes_.remove_prefix(count);
        return taken;
    }
    std::string_view bytes_;
};

} // namespace dcuda::support
