// SPDX-License-Identifier: BSD-3-Clause
// What the tools read: dcuda-run of its agents and they of it, dcuda-top of the programs that it looks at.
#include "dcuda_run/channel.hpp"
#include "dcuda_top/display.hpp"
#include "target.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace dcuda::fuzz {

void agent(std::string_view input) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    static const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    {
        launch::channel from(ends[1], nowhere, !input.empty() && input[0] % 2 == 0);
        std::size_t size = 1;
        for (std::string_view rest = input.substr(std::min<std::size_t>(1, input.size())); !rest.empty();
             size = size * 3 + 1) {
            const std::string_view piece = rest.substr(0, size);
            if (send(ends[0], piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
                static_cast<ssize_t>(piece.size()))
                break;
            rest.remove_prefix(piece.size());
            from.read_some();
            while (const auto message = from.next()) {
                launch::fields values(*message);
                try {
                    values.text();
                    values.number();
                    values.list();
                    values.list();
                } catch (const std::runtime_error&) {
                }
            }
        }
    }
    close(ends[0]);
    close(ends[1]);
}

void snapshots(std::string_view input) {
    top::process answered{1, 0, "program"};
    top::take_answer(answered, std::string(input));
    if (answered.seen.has_value() == !answered.problem.empty()) std::abort(); // one of both
    if (answered.seen) snapshot::from_json(answered.seen->to_json());
    top::process other = answered;
    if (other.seen && other.seen->process == 0 && other.seen->processes > 1) other.seen->process = 1;
    const std::vector<top::process> job{answered, other};
    const std::string text =
        top::as_text(job, top::detail::groups) + top::as_text(job, top::detail::ranks) + top::as_json(job);
    for (const char c : text)
        if (c == '\x1b' || c == '\x7f') std::abort();
}

} // namespace dcuda::fuzz
