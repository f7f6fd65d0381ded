// SPDX-License-Identifier: BSD-3-Clause
// What is said on standard error; and results that cannot be written: a full disk, a limit on the size of files.
#pragma once

#include <csignal>
#include <string_view>

namespace dcuda::support {

// "dcuda: message" on standard error, as one piece: what several processes say does not mix. Any thread.
void tell(std::string_view message);

// "dcuda: what ranks log is lost: ..." on standard error. The program goes on, since it may have more to save; but if
// it ends with status 0, it ends with 1 instead. Any thread.
void report_loss(std::string_view message);

// Writes all of it to standard output, behind what the program has printed so far, as one piece among what other
// threads print. 0, or the error number if it is lost: not, if nobody reads it any more, or the user has closed the
// output.
int write_to_output(std::string_view text);

// Opens /dev/null where standard input, output or error is closed: else the next file or socket gets that number, and
// what is printed goes there.
void keep_standard_streams();

// While this lives, the calling thread gets an error (EFBIG) where a file becomes larger than `ulimit -f` allows, not a
// signal that ends the process without a word.
class file_limit_as_error {
public:
    file_limit_as_error();
    ~file_limit_as_error();
    file_limit_as_error(const file_limit_as_error&) = delete;

private:
    sigset_t before_{};
};

} // namespace dcuda::support
