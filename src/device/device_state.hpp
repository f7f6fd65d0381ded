// SPDX-License-Identifier: BSD-3-Clause
// All memory that ranks, their host and other devices share during a run, for one number of ranks.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "device/host_window.hpp"
#include "device/settings.hpp"
#include "support/cuda.hpp"
#include "transport/peer.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace dcuda {

class device_state {
public:
    // Collective over the processes: maps everybody's inbox into every process, but for those that are remote, of which
    // it learns the addresses. `has_network`: some pair of processes of the job is reached over a network only.
    // `is_near`: by process: another one of this host.
    device_state(bootstrap::control& control, const settings& chosen, std::vector<bool> is_remote,
                 std::vector<bool> is_near, bool has_network, int ranks_per_device);

    // Sets everything to its state before a run, in which there are these windows already. No kernel may be running
    // that uses it, here or elsewhere.
    void reset(void* user_data, const std::vector<host_window>& windows, int ranks_per_block,
               const detail::staging_shape& staging, const detail::profiler_view& profiler);

#if DCUDA_BACKEND_CPU
    // Before reset: the next run is checked. Null: it is not.
    void check_by(detail::check::session* checker) { fields_.checker = checker; }
#endif

    int ranks() const { return ranks_; }
    int ranks_per_block() const { return ranks_per_block_; } // of this run
    int world_size() const { return ranks_ * control_.count(); }
    int first_rank() const { return ranks_ * control_.index(); }
    dcuda::context context() const { return {context_.get(), fields_.profiler.counters != nullptr ? 1u : 0u}; }

    // Whether that process is reached over a network only.
    bool is_remote(int process) const { return is_remote_[static_cast<std::size_t>(process)]; }

    // Whether other processes map memory of this one.
    bool is_mapped() const { return std::count(is_remote_.begin(), is_remote_.end(), false) > 1; } // we, and others

    // Where notifications of this device's ranks arrive.
    const detail::peer_view& inbox() const { return own_inbox_; }

    // Where other processes may write in exchanges and splits: exchange_memory.
    std::span<const detail::packet> exchange_slots() const {
        const inbox_layout at = layout();
        return {inbox_.get() + at.slots, at.bounce - at.slots};
    }
    // And in collective operations on much data, by rank.
    std::vector<detail::window_entry> bounce_buffers() const;
    std::span<const detail::split_entry> split_entries() const {
        return {reinterpret_cast<const detail::split_entry*>(inbox_.get() + layout().entries),
                static_cast<std::size_t>(world_size())};
    }

    // Device addresses and pinned memory, for the host's part of the protocol.
    const detail::device_context& fields() const { return fields_; }
    detail::window_entry* window_entries(std::uint32_t slot) const {
        return entries_.get() + std::size_t(slot) * static_cast<std::size_t>(world_size());
    }

private:
    // Where the parts of an inbox lie, in packets.
    struct inbox_layout {
        std::size_t barriers, status, places, claimed, credits, counters, queues, entries, slots, pool, bounce, end;
    };
    inbox_layout layout() const;
    std::size_t counter_count() const { return std::size_t(ranks_) * fields_.tags.wire_count(); }
    void number_tags();
    void agree_on_queues();
    void size_exchanges(std::size_t device_bytes);
    void describe_communicators();
    void open_communicators();
    void share_inbox();
    void choose_bounces(const std::vector<detail::peer_view>& peers);
    void open_windows(const std::vector<host_window>& windows);
    void fill_barriers(std::uint32_t fills, std::vector<std::uint64_t>& words) const;
    void start_from(std::uint32_t start);
    void clear_last_run();

    bootstrap::control& control_;
    settings settings_;
    std::vector<bool> is_remote_, is_near_; // by process
    int ranks_;
    detail::peer_view own_inbox_{};
    cuda::device_array<detail::packet> inbox_; // see peer_view
    cuda::device_array<detail::tag_record> tag_records_;
    cuda::device_array<detail::rank_connection> connections_;
    cuda::device_array<detail::connection_slot> connection_index_;
    cuda::device_array<detail::inbound_queue> far_queues_;
    cuda::device_array<detail::peer_view> peers_;
    cuda::device_array<detail::communicator_table> communicator_tables_;
    cuda::device_array<std::uint32_t> member_lists_; // of communicators; last those of `node`
    detail::exchange_memory exchange_{};
    detail::communicator_record fixed_[detail::fixed_communicators]{}; // `number`: of the device's first rank
    cuda::device_array<detail::wait_record> waits_;
    cuda::device_array<detail::block_claims> claims_;
    cuda::device_array<detail::collective_barrier> collective_barriers_;
    cuda::device_array<detail::window_slot> slots_;
    cuda::device_array<detail::window_entry> entries_;
    cuda::device_array<detail::window_entry> exports_;
    cuda::device_array<std::uint32_t> flushed_, answered_, met_; // see network_view
    cuda::device_array<std::uint64_t> results_;                  // likewise
    cuda::device_array<std::uint32_t> created_;
    cuda::device_array<std::uint32_t> replies_;
    cuda::device_array<std::uint32_t> words_; // aborted, ring tail, ring head: a cache line each
    cuda::pinned_array<detail::packet> ring_;
    cuda::device_array<detail::kernel_context> context_;
    int ranks_per_block_ = 1;
    bool has_run_ = false;
    detail::device_context fields_{};
    transport::peer_mappings inboxes_; // last: unmapped before our own memory goes
};

} // namespace dcuda
