// SPDX-License-Identifier: BSD-3-Clause
// What processes read of each other: good messages, and bytes that are none.
#include "support/wire.hpp"

#include <gtest/gtest.h>

namespace {

using dcuda::support::wire_reader;
using dcuda::support::wire_writer;

struct record {
    std::uint32_t number;
    char letter;
    bool operator==(const record&) const = default;
};

std::string bytes_of(const auto&... values) {
    wire_writer message;
    (message.put(values), ...);
    return message.bytes();
}

template <class Read>
void expect_malformed(const std::string& bytes, Read&& read) {
    wire_reader message(bytes);
    try {
        read(message);
        ADD_FAILURE() << "it was read";
    } catch (const dcuda::error& problem) {
        EXPECT_EQ(problem.code(), dcuda::error_code::bootstrap_failure);
        EXPECT_STREQ(problem.what(), "malformed message between processes");
    }
}

TEST(WireReader, ReadsWhatWasWritten) {
    const std::vector<record> records{{1, 'a'}, {2, 'b'}};
    const std::string bytes = bytes_of(true, std::string_view("text"), records, 0.5, false, std::vector<record>());
    wire_reader message(bytes);
    EXPECT_TRUE(message.get<bool>());
    EXPECT_EQ(message.get_text(), "text");
    EXPECT_EQ(message.get_vector<record>(), records);
    EXPECT_EQ(message.get<double>(), 0.5);
    EXPECT_FALSE(message.get<bool>());
    EXPECT_TRUE(message.get_vector<record>().empty());
}

TEST(WireReader, CountsAreNotBelieved) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{1} << 40, SIZE_MAX / sizeof(record) + 1, SIZE_MAX}) {
        SCOPED_TRACE(count);
        const std::string bytes = bytes_of(count, record{1, 'a'}, record{2, 'b'});
        expect_malformed(bytes, [](wire_reader& message) { message.get_vector<record>(); });
        if (count != 3) expect_malformed(bytes, [](wire_reader& message) { message.get_text(); });
    }
    expect_malformed("1234567", [](wire_reader& message) { message.get_text(); });
}

TEST(WireReader, ABoolIsZeroOrOne) {
    for (const char byte : {'\x02', '\x7f', '\xff'})
        expect_malformed(std::string(1, byte), [](wire_reader& message) { message.get<bool>(); });
    expect_malformed("", [](wire_reader& message) { message.get<bool>(); });
}

} // namespace
