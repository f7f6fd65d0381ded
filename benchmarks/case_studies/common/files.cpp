// SPDX-License-Identifier: BSD-3-Clause
#include "common/files.hpp"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <unistd.h>

#include <fmt/format.h>

namespace common {

namespace {

std::string reason() { return std::generic_category().message(errno); }

std::filesystem::path temporary_name(const std::filesystem::path& path) {
    return path.string() + fmt::format(".{}.tmp", ::getpid());
}

// Creates a file under a temporary name; removes it unless it was renamed.
class temporary_file {
public:
    explicit temporary_file(const std::filesystem::path& path) : path_(path), name_(temporary_name(path)) {
        if (std::filesystem::is_directory(path))
            throw std::runtime_error(fmt::format("cannot write {}: it is a folder", path.string()));
        errno = 0;
        stream_.open(name_, std::ios::binary | std::ios::trunc);
        if (!stream_) throw std::runtime_error(fmt::format("cannot write {}: {}", path.string(), reason()));
    }
    ~temporary_file() {
        std::error_code ignored; // gone already when renamed
        std::filesystem::remove(name_, ignored);
    }
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;

    void write(const std::string& contents) {
        errno = 0;
        stream_.write(contents.data(), static_cast<std::streamsize>(contents.size()));
        stream_.close();
        if (!stream_) throw std::runtime_error(fmt::format("cannot write {}: {}", path_.string(), reason()));
    }
    void rename() {
        std::error_code failure;
        std::filesystem::rename(name_, path_, failure);
        if (failure) throw std::runtime_error(fmt::format("cannot write {}: {}", path_.string(), failure.message()));
    }

private:
    std::filesystem::path path_;
    std::filesystem::path name_;
    std::ofstream stream_;
};

} // namespace

std::string read_file(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(path))
        throw std::runtime_error(fmt::format("cannot read {}: it is a folder", path.string()));
    errno = 0;
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw std::runtime_error(fmt::format("cannot read {}: {}", path.string(), reason()));
    std::string contents{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (stream.bad()) throw std::runtime_error(fmt::format("cannot read {}: {}", path.string(), reason()));
    return contents;
}

void write_file(const std::filesystem::path& path, const std::string& contents) {
    temporary_file file(path);
    file.write(contents);
    file.rename();
}

void check_writable(const std::filesystem::path& path) { temporary_file probe(path); }

void write_report(const std::string& json_file, const std::string& words, const std::string& json) {
    const bool json_to_output = json_file == "-";
    std::fputs(words.c_str(), json_to_output ? stderr : stdout);
    if (json_to_output)
        std::fputs(json.c_str(), stdout);
    else if (!json_file.empty())
        write_file(json_file, json);
    errno = 0;
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
        throw std::runtime_error("cannot write the report to standard output: " + reason());
}

} // namespace common
