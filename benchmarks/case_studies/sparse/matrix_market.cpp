// SPDX-License-Identifier: BSD-3-Clause
#include "matrix_market.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

namespace sparse {

namespace {

constexpr long long largest_dimension = 1LL << 30;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string lower_case(std::string_view word) {
    std::string result(word);
    for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

// The file, line by line, each as its words.
class word_reader {
public:
    word_reader(std::string_view contents, const std::string& name) : left_(contents), name_(name) {}

    [[noreturn]] void fail(const std::string& reason) const {
        throw std::runtime_error(fmt::format("{}, line {}: {}", name_, line_, reason));
    }

    // False at the end of the file.
    bool next_line() {
        if (left_.empty()) return false;
        ++line_;
        const std::size_t end = std::min(left_.find('\n'), left_.size());
        text_ = left_.substr(0, end);
        left_.remove_prefix(std::min(end + 1, left_.size()));
        words_.clear();
        for (std::size_t at = 0; at < text_.size();) {
            if (is_blank(text_[at])) {
                ++at;
                continue;
            }
            std::size_t last = at;
            while (last < text_.size() && !is_blank(text_[last])) ++last;
            words_.push_back(text_.substr(at, last - at));
            at = last;
        }
        return true;
    }

    // The next line that is neither empty nor a comment. False at the end of the file.
    bool next_data() {
        while (next_line())
            if (!words_.empty() && words_[0][0] != '%') return true;
        return false;
    }

    void expect_words(std::size_t count, const char* meaning) const {
        if (words_.size() == count) return;
        std::string found(text_.substr(0, 60));
        while (!found.empty() && is_blank(found.back())) found.pop_back();
        fail(fmt::format("expected {}, found '{}'", meaning, found));
    }

    long long whole_number(std::size_t word, const char* meaning) const {
        long long value = 0;
        if (!converted(words_[word], value)) fail(fmt::format("{} '{}' is not a whole number", meaning, words_[word]));
        return value;
    }

    double real_number(std::size_t word) const {
        double value = 0.0;
        if (!converted(words_[word], value)) fail(fmt::format("the value '{}' is not a number", words_[word]));
        if (!std::isfinite(value)) fail(fmt::format("the value {} is not finite", words_[word]));
        return value;
    }

    // Counts from 1 in the file, from 0 in the result.
    int index(std::size_t word, const char* meaning, int size) const {
        const long long value = whole_number(word, meaning);
        if (value < 1 || value > size) fail(fmt::format("{} {} is not within 1 to {}", meaning, value, size));
        return static_cast<int>(value - 1);
    }

    int size(std::size_t word, const char* meaning) const {
        const long long value = whole_number(word, meaning);
        if (value < 1 || value > largest_dimension)
            fail(fmt::format("{} {} is not within 1 to {}", meaning, value, largest_dimension));
        return static_cast<int>(value);
    }

    const std::vector<std::string_view>& words() const { return words_; }
    std::size_t bytes_left() const { return left_.size(); }
    long long line() const { return line_; }

private:
    template <class Number>
    static bool converted(std::string_view word, Number& value) {
        if (word.size() > 1 && word[0] == '+' && word[1] != '-') word.remove_prefix(1); // which from_chars refuses
        const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), value);
        return failure == std::errc() && end == word.data() + word.size();
    }

    std::string_view left_;
    const std::string& name_;
    long long line_ = 0;
    std::string_view text_;
    std::vector<std::string_view> words_;
};

enum class field { real, integer, pattern };
enum class symmetry { general, symmetric, skew };

struct header {
    bool dense = false;
    field values = field::real;
    symmetry mirrored = symmetry::general;
};

header read_header(word_reader& file) {
    if (!file.next_line() || file.words().empty() || lower_case(file.words()[0]) != "%%matrixmarket")
        file.fail("does not begin with %%MatrixMarket: this is no Matrix Market file");
    file.expect_words(5, "%%MatrixMarket matrix FORMAT FIELD SYMMETRY");
    std::array<std::string, 5> words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = lower_case(file.words()[i]);
    if (words[1] != "matrix") file.fail(fmt::format("the object '{}' is not matrix", words[1]));

    header result;
    if (words[2] == "array")
        result.dense = true;
    else if (words[2] != "coordinate")
        file.fail(fmt::format("the format '{}' is neither coordinate nor array", words[2]));

    if (words[3] == "integer")
        result.values = field::integer;
    else if (words[3] == "pattern" && !result.dense)
        result.values = field::pattern;
    else if (words[3] != "real" && words[3] != "double")
        file.fail(fmt::format("the field '{}' is not read here: real, integer{} are", words[3],
                              result.dense ? "" : " and pattern"));

    if (words[4] == "symmetric")
        result.mirrored = symmetry::symmetric;
    else if (words[4] == "skew-symmetric")
        result.mirrored = symmetry::skew;
    else if (words[4] != "general")
        file.fail(
            fmt::format("the symmetry '{}' is not read here: general, symmetric and skew-symmetric are", words[4]));
    if (result.mirrored == symmetry::skew && result.values == field::pattern)
        file.fail("a pattern cannot be skew-symmetric: its entries have no sign");
    return result;
}

double read_value(const word_reader& file, std::size_t word, field values) {
    if (values == field::pattern) return 1.0;
    if (values == field::integer) return static_cast<double>(file.whole_number(word, "the value"));
    return file.real_number(word);
}

// Of a mirrored matrix, files have the part below the diagonal.
void add_entry(entry_list& matrix, const header& kind, const entry& e) {
    matrix.entries.push_back(e);
    if (kind.mirrored != symmetry::general && e.row != e.column)
        matrix.entries.push_back({e.column, e.row, kind.mirrored == symmetry::skew ? -e.value : e.value});
}

void read_coordinates(word_reader& file, const header& kind, entry_list& matrix, long long count) {
    const bool has_value = kind.values != field::pattern;
    long long read = 0;
    for (; file.next_data(); ++read) {
        if (read == count) file.fail(fmt::format("more entries than the {} that the size line promises", count));
        file.expect_words(has_value ? 3 : 2, has_value ? "row, column and value" : "row and column");
        entry next;
        next.row = file.index(0, "row", matrix.rows);
        next.column = file.index(1, "column", matrix.columns);
        next.value = read_value(file, 2, kind.values);
        if (kind.mirrored != symmetry::general && next.row < next.column)
            file.fail("an entry above the diagonal, but the other half of the matrix mirrors what is below");
        if (kind.mirrored == symmetry::skew && next.row == next.column)
            file.fail("an entry on the diagonal, which is zero in a skew-symmetric matrix");
        add_entry(matrix, kind, next);
    }
    if (read < count) file.fail(fmt::format("the file ends after {} of {} entries", read, count));
}

// Column by column; of a mirrored matrix, from the diagonal, or below it, on. Zeros are left out.
void read_array(word_reader& file, const header& kind, entry_list& matrix) {
    for (int column = 0; column < matrix.columns; ++column) {
        int row = kind.mirrored == symmetry::general ? 0 : column;
        if (kind.mirrored == symmetry::skew) ++row;
        for (; row < matrix.rows; ++row) {
            if (!file.next_data())
                file.fail(fmt::format("the file ends before the value of row {}, column {}", row + 1, column + 1));
            file.expect_words(1, "one value");
            const double value = read_value(file, 0, kind.values);
            if (value != 0.0) add_entry(matrix, kind, {row, column, value});
        }
    }
    if (file.next_data()) file.fail("more values than the matrix has places");
}

} // namespace

entry_list parse_matrix_market(std::string_view contents, const std::string& name) {
    word_reader file(contents, name);
    const header kind = read_header(file);
    if (!file.next_data()) file.fail("the file ends before the line with the sizes");
    entry_list matrix;
    file.expect_words(kind.dense ? 2 : 3,
                      kind.dense ? "the numbers of rows and columns" : "the numbers of rows, columns and entries");
    matrix.rows = file.size(0, "the number of rows");
    matrix.columns = file.size(1, "the number of columns");
    if (kind.mirrored != symmetry::general && matrix.rows != matrix.columns)
        file.fail(fmt::format("a matrix of {} x {} cannot be symmetric", matrix.rows, matrix.columns));
    if (kind.dense) {
        read_array(file, kind, matrix);
    } else {
        const long long count = file.whole_number(2, "the number of entries");
        if (count < 0) file.fail(fmt::format("the number of entries is {}", count));
        // An entry takes 4 bytes at least: what the file promises but cannot hold is no reason to ask for memory.
        const std::size_t most = file.bytes_left() / 4 + 1;
        matrix.entries.reserve(std::min(most, static_cast<std::size_t>(count)));
        read_coordinates(file, kind, matrix, count);
    }
    matrix.tidy();
    return matrix;
}

} // namespace sparse
