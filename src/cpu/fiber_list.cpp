// SPDX-License-Identifier: BSD-3-Clause
// The fibers of a block that can run, and their order.
#include "block.hpp"

#include <cstdlib>

namespace dcuda::detail::cpu {

void fiber_list::push(fiber& f) {
    f.next = nullptr;
    if (last_)
        last_->next = &f;
    else
        first_ = &f;
    last_ = &f;
    ++size_;
}

fiber* fiber_list::pop() {
    fiber* f = first_;
    if (!f) return nullptr;
    first_ = f->next;
    if (!first_) last_ = nullptr;
    --size_;
    return f;
}

void fiber_list::append(fiber_list& l) {
    if (!l.first_) return;
    if (last_)
        last_->next = l.first_;
    else
        first_ = l.first_;
    last_ = l.last_;
    size_ += l.size_;
    l = {};
}

void fiber_list::rotate() {
    if (fiber* f = pop()) push(*f);
}

namespace {

std::uint64_t fiber_seed() {
    static const std::uint64_t seed = [] {
        const char* text = std::getenv("DCUDA_FIBER_SEED");
        return text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
    }();
    return seed;
}

} // namespace

fiber_order::fiber_order(unsigned block, unsigned warps)
    : drawn_(fiber_seed() == 0 ? 0 : fiber_seed() * 0x9e3779b97f4a7c15u + block + 1), warps_(warps) {}

void fiber_order::arrange(fiber_list& ready) {
    if (drawn_ == 0) return;
    drawn_ ^= drawn_ << 13; // xorshift
    drawn_ ^= drawn_ >> 7;
    drawn_ ^= drawn_ << 17;
    for (std::uint64_t steps = drawn_ >> 32 & 63; steps != 0; --steps) ready.rotate();
    if (early_switches_-- == 0) {
        early_warp_ = static_cast<unsigned>(drawn_ >> 8 & 0xff) % warps_;
        early_switches_ = static_cast<unsigned>(drawn_ >> 16 & 0x3ff);
    }
    for (unsigned seen = 0; seen < ready.size() && ready.first()->linear / warpSize != early_warp_; ++seen)
        ready.rotate();
}

} // namespace dcuda::detail::cpu
