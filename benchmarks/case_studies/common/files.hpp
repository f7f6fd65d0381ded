// SPDX-License-Identifier: BSD-3-Clause
// Whole files: read at once, written whole or not at all.
#pragma once

#include <filesystem>
#include <string>

namespace common {

// The file's contents. Throws std::runtime_error with the reason.
std::string read_file(const std::filesystem::path& path);

// Writes to a temporary name in the same folder and renames it, so that a failure leaves a file of that name as it was.
// Throws std::runtime_error with the reason.
void write_file(const std::filesystem::path& path, const std::string& contents);

// Throws std::runtime_error if write_file could not create the file: ask before a long computation, not after.
void check_writable(const std::filesystem::path& path);

// What a program says at its end: in words, and as JSON in that file, if there is one. With the file "-" JSON goes to
// standard output, and the words to the standard error.
void write_report(const std::string& json_file, const std::string& words, const std::string& json);

} // namespace common
