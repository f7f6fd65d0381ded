// SPDX-License-Identifier: BSD-3-Clause
// What the tools read: dcuda-top of the programs that it looks at.
#include "dcuda_top/display.hpp"
#include "target.hpp"

#include <cstdlib>

namespace dcuda::fuzz {

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
