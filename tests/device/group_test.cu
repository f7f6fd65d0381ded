// SPDX-License-Identifier: BSD-3-Clause
// What operations are made of, executed by a part of a block while its other warps do something else
// (docs/adr/0014-operations-take-their-group.md).
#include "device_test.hpp"

using namespace dcuda::test;
namespace exec = dcuda::detail::exec;

namespace {

class Groups : public device_test {};

constexpr unsigned words_per_part = 1024;

// What a part of the block shares.
struct part_state {
    std::uint32_t decision, chosen, told, led;
};

// The steps of operations, so often by so many of the warps. The words of the round before are what the group found.
template <class Group>
DCUDA_DEVICE void take_steps(const Group& group, const dcuda::rank& self, findings* found, part_state& shared,
                             unsigned* words, unsigned rounds, unsigned seed) {
    for (unsigned round = 0; round < rounds; ++round) {
        const unsigned expected = (round + seed) % 32, bytes = (round * 13 + seed) % (2 * words_per_part);
        const unsigned number = exec::decide(
            group, shared.decision,
            [&](const dcuda::detail::lead_warp& warp) {
                if (warp.leads()) shared.chosen = expected;
                dcuda::detail::sync(warp);
                return expected;
            },
            [&](const dcuda::detail::lead_warp& warp, unsigned chosen) {
                if (warp.leads()) shared.told = chosen;
            });
        EXPECT_SAME(number, expected);
        exec::leader_then_sync(group, [&](dcuda::detail::lone_thread) { shared.led = round; });
        EXPECT_SAME(shared.chosen, expected);
        EXPECT_SAME(shared.told, expected);
        EXPECT_SAME(shared.led, round);
        // The first half of the words goes to the second one; thread by thread, all of the group.
        auto* const source = reinterpret_cast<unsigned char*>(words);
        auto* const target = reinterpret_cast<unsigned char*>(words + words_per_part / 2);
        for (unsigned i = group.thread(); i < bytes; i += group.threads()) source[i] = pattern(i, round);
        group.sync();
        exec::copy_bytes(group, reinterpret_cast<std::byte*>(target), reinterpret_cast<const std::byte*>(source),
                         bytes);
        EXPECT_SAME(group.count(group.thread() % 3 == 0), (group.threads() + 2) / 3); // they meet
        for (unsigned i = group.thread(); i < bytes; i += group.threads()) EXPECT_SAME(target[i], pattern(i, round));
        group.sync();
    }
}

// Three parts of 32, 64 and 96 threads at a time: none waits for another, which takes more or fewer steps.
__global__ void __launch_bounds__(256)
    in_parts(dcuda::context context, findings* found, unsigned* memory, unsigned rounds) {
    __shared__ dcuda::state state;
    __shared__ part_state parts[3];
    dcuda::rank self(context, state);
    unsigned* const words = piece_of(memory, 3 * words_per_part, self);
    const unsigned thread = exec::thread_index();
    const unsigned part = thread < 32 ? 0 : thread < 96 ? 1 : 2;
    const unsigned first[3] = {0, 32, 96}, count[3] = {32, 64, 96};
    if (thread < 192)
        take_steps(exec::block_part{{count[part], part + 1}, first[part]}, self, found, parts[part],
                   words + part * words_per_part, rounds * (part + 1), part);
    self.barrier(dcuda::device);
}

__global__ void __launch_bounds__(256)
    as_a_whole(dcuda::context context, findings* found, unsigned* memory, unsigned rounds) {
    __shared__ dcuda::state state;
    __shared__ part_state all;
    dcuda::rank self(context, state);
    take_steps(exec::whole_block{}, self, found, all, piece_of(memory, words_per_part, self), rounds, 3);
}

TEST_F(Groups, PartsOfABlockActByThemselves) {
    for (const unsigned threads : {192u, 256u}) {
        const device_vector<unsigned> memory(2 * 3 * words_per_part);
        check(in_parts, shape(2, dim3(threads)), memory.get(), few_addresses ? 20u : 100u);
    }
}

TEST_F(Groups, AllThreadsActTogether) {
    for (const unsigned threads : {1u, 31u, 32u, 33u, 192u, 256u}) {
        SCOPED_TRACE(threads);
        const device_vector<unsigned> memory(2 * words_per_part);
        check(as_a_whole, shape(2, dim3(threads)), memory.get(), few_addresses ? 20u : 100u);
    }
}

} // namespace
