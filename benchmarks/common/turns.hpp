// SPDX-License-Identifier: BSD-3-Clause
// Messages that are no plain puts, there and back in turn: sums, and rows that do not follow each other. The same for
// every library under test.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/device.hpp"
#include "common/ping_pong.hpp"

namespace benchmark {

// Rows of 4-byte words; `is_sum`: of floats, which are added to what is there.
struct layout {
    std::uint32_t width, rows, pitch; // in words
    bool is_sum;

    DCUDA_HOST_DEVICE std::size_t bytes() const { return std::size_t{width} * rows * sizeof(std::uint32_t); }
    DCUDA_HOST_DEVICE std::size_t span() const { return std::size_t{pitch} * rows * sizeof(std::uint32_t); }
};
inline constexpr layout floats_to_add{1024, 1, 1024, true};
inline constexpr layout column_of_doubles{2, 512, 2048, false};
inline constexpr layout rows_of_a_face{256, 64, 2048, false};

// What one side has in device memory: where messages of the other side go, and what it sends; each layout::span() long.
struct turns {
    side which;
    layout of;
    int rounds, batches; // one batch more goes before to warm up
    std::uint32_t* landing;
    std::uint32_t* source;
    interval* stamps; // ping's result, one entry per batch
    mistake* wrong;
};

// Calls use(word, row * width + column) for each word of a message.
template <class Use>
DCUDA_DEVICE void for_each_word(const layout& of, const Use& use) {
    for (std::uint32_t i = threadIdx.x; i < of.width * of.rows; i += blockDim.x)
        use(i / of.width * of.pitch + i % of.width, i);
}

// What a word of a side's message is; a sum of 1000 of them is exact.
DCUDA_DEVICE std::uint32_t word_of(const layout& of, int batch, side which, std::uint32_t index) {
    return of.is_sum ? 1 + (index + static_cast<std::uint32_t>(which)) % 50
                     : pattern(batch, static_cast<int>(which), index);
}

// All threads of both sides. A channel has send(), wait() and barrier(), as that of play().
template <class Channel>
DCUDA_DEVICE void take_turns(Channel& channel, const turns own) {
    const bool is_ping = own.which == side::ping;
    const side other = is_ping ? side::pong : side::ping;
    auto* const sums = reinterpret_cast<float*>(own.landing);
    for (int batch = -1; batch < own.batches; ++batch) {
        for_each_word(own.of, [&](std::uint32_t word, std::uint32_t index) {
            const std::uint32_t value = word_of(own.of, batch, own.which, index);
            if (own.of.is_sum)
                reinterpret_cast<float*>(own.source)[word] = static_cast<float>(value);
            else
                own.source[word] = value;
            own.landing[word] = 0;
        });
        channel.barrier();
        const std::uint64_t start = now_ns();
        if (is_ping) channel.send();
        for (int round = 0; round < own.rounds; ++round) {
            channel.wait();
            if (!is_ping || round + 1 < own.rounds) channel.send();
        }
        const std::uint64_t stop = now_ns();
        if (is_ping && batch >= 0 && threadIdx.x == 0) own.stamps[batch] = {start, stop};
        channel.barrier();
        for_each_word(own.of, [&](std::uint32_t word, std::uint32_t index) {
            const std::uint32_t value = word_of(own.of, batch, other, index);
            if (own.of.is_sum)
                expect(own.wrong, batch, no_round, index, value * static_cast<std::uint32_t>(own.rounds),
                       static_cast<std::uint32_t>(sums[word]));
            else
                expect(own.wrong, batch, no_round, index, value, own.landing[word]);
        });
        channel.barrier();
    }
}

// All threads of those who only watch, in the same barriers.
template <class Channel>
DCUDA_DEVICE void watch_turns(Channel& channel, int batches) {
    constexpr int barriers_of_batch = 3;
    for (int i = 0; i < barriers_of_batch * (batches + 1); ++i) channel.barrier();
}

} // namespace benchmark
