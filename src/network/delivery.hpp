// SPDX-License-Identifier: BSD-3-Clause
// What the host does in device memory for others while a kernel runs: places what has arrived over a network, and
// notifies. On a GPU a delivery kernel does it, a small kernel beside the user's; on the CPU backend the host itself.
#pragma once

#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/detail/protocol/atomics.hpp"
#include "device/device_state.hpp"

#include <cstdint>
#include <deque>
#include <utility>

namespace dcuda {

// What a connection asks of who places payload. Used by one thread. What is placed in order is numbered from 1; copies
// have numbers of their own.
class placement {
public:
    virtual ~placement() = default;

    // A put without a notification by the device's copy engine, beside the other deliveries: nothing orders the two
    // kinds but who waits for done() and is_copied(what this returned). For payload from least_copy_bytes() on.
    // 0: no room now.
    //
    // ORDER notify-publish: the driver says that the copy is complete, in the device's memory, before a notification
    // of it is given to the delivery kernel, which releases it.
    virtual std::uint64_t start_copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) = 0;
    virtual bool is_copied(std::uint64_t copy) = 0;
    virtual std::size_t least_copy_bytes() const = 0;

    virtual std::uint64_t issued() const = 0;
    virtual std::uint64_t done() = 0; // the last number with all before it
};

// For one run. Deliveries are made in the order of the calls, each after all before it are complete.
class delivery : public placement {
public:
    // A put of `bytes` bytes to `place`, then a notification of the local rank unless the tag is no_tag. The payload
    // lies in pinned memory and is read until the delivery is done. False: no room now.
    //
    // ORDER notify-publish: payload before notification, as if a rank of the device had put it.
    virtual bool put(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t rank,
                     std::uint32_t tag) = 0;

    // Rows of `width` bytes, which lie one after the other at `payload`, `bytes` bytes in all, to places `distance`
    // bytes apart, from `place` on. And elements of which `bytes` bytes lie there, each of which the element at its
    // place is combined with (update_code); there the payload is aligned as they are. Otherwise as put().
    virtual bool put_rows(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t width,
                          std::uint64_t distance) = 0;
    virtual bool combine(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t code) = 0;

    // Stores a unit of an exchange (unit_bytes at `values`) in its packets, from `place` on, which this local rank may
    // poll. `word`: the last one of both. False: no room now.
    //
    // ORDER exchange-publish: as if a member of the device had stored them, in an ordered exchange.
    virtual bool put_packets(std::uint64_t place, const std::byte* values, std::uint32_t rank, std::uint32_t word) = 0;

    // An atomic operation on the element at `place`. When it is done, result(number) is what the element held before,
    // until the next operation with this number, which is less than delivery_results. False: no room now.
    //
    // ORDER atomic-publish, atomic-observe: as if a rank of the device had made it, which had put the payload before.
    virtual bool update(std::uint64_t place, const detail::atomic_update& update, std::uint32_t number) = 0;
    virtual std::uint64_t result(std::uint32_t number) const = 0;

    // Writes a word for which ranks poll. False: no room now. ORDER reply-publish: after all deliveries before it.
    virtual bool reply(std::uint32_t* device_word, std::uint32_t value) = 0;
};

// To this process's device.
class device_delivery final : public delivery {
public:
    explicit device_delivery(device_state& state);

    // Starts the delivery kernel after the ranks' kernel, which has left room
    // for it. One that is there first keeps the driver from giving the ranks' kernel the local memory that it needs:
    // that kernel then waits for ever (H200, driver 580: 527 blocks with 824 B of stack).
    void start(unsigned threads_of_rank);
    bool has_started() const;

    // Waits for the delivery kernel's end.
    ~device_delivery() override;
    device_delivery(const device_delivery&) = delete;
    device_delivery& operator=(const device_delivery&) = delete;

    bool put(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t rank,
             std::uint32_t tag) override;
    bool put_rows(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t width,
                  std::uint64_t distance) override;
    bool combine(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t code) override;
    bool put_packets(std::uint64_t place, const std::byte* values, std::uint32_t rank, std::uint32_t word) override;
    bool update(std::uint64_t place, const detail::atomic_update& update, std::uint32_t number) override;
    std::uint64_t result(std::uint32_t number) const override { return results_[number]; }
    bool reply(std::uint32_t* device_word, std::uint32_t value) override;
    std::uint64_t start_copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) override;
    bool is_copied(std::uint64_t copy) override;
    std::size_t least_copy_bytes() const override { return DCUDA_BACKEND_CUDA ? 16384 : SIZE_MAX; }
    std::uint64_t issued() const override { return issued_; }
    std::uint64_t done() override;

private:
    device_state& state_;
    std::uint64_t issued_ = 0;
    cuda::pinned_array<std::uint64_t> results_;
#if DCUDA_BACKEND_CUDA
    detail::packet* slot(std::uint32_t ticket) const;
    bool has_room(std::uint32_t commands);
    bool store_copy(detail::delivery_kind kind, std::uint64_t place, const std::byte* payload, std::size_t bytes,
                    std::uint32_t rank, std::uint32_t tag, std::uint32_t width, std::uint64_t distance,
                    std::uint32_t code);
    void store(const std::uint32_t* words, std::size_t count);

    cuda::stream stream_;
    cuda::copy_queue copies_;
    cuda::pinned_array<detail::packet> ring_;
    cuda::pinned_array<std::uint32_t> words_;                       // of the delivery kernel: done, started
    std::uint32_t next_ = 0;                                        // place in the ring
    std::uint32_t done_ = 0;                                        // places that the delivery kernel has done
    std::deque<std::pair<std::uint32_t, std::uint64_t>> under_way_; // place behind a delivery, its number
    std::uint64_t done_number_ = 0;
    bool running_ = false;
#endif
};

} // namespace dcuda
