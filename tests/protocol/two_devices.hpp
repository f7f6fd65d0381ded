// SPDX-License-Identifier: BSD-3-Clause
// Two devices inside one process, made by hand, so that ThreadSanitizer sees what orders one against the other: its
// eyes end at the process. The CPU backend runs a kernel on each of two streams, at the same time.
#pragma once

#include <dcuda/dcuda.hpp>

#include "device/device_access.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace litmus {

using namespace dcuda::detail;

inline constexpr unsigned ranks_per_device = 2;

// The memory of one device: what src/device/device_state.cpp makes of it, in little.
class small_device {
public:
    small_device(unsigned process, unsigned processes)
        : counters_(counter_count),
          barriers_(barrier_packets + entry_packets + slot_packets + ranks_per_device * pool_blocks * block_packets),
          status_(ranks_per_device), packets_(std::size_t(ranks_per_device) * partners * queues.size()), claimed_(1),
          places_(ranks_per_device * partners), credits_(ranks_per_device * partners), tag_records_(counter_count),
          connections_(ranks_per_device * partners), connection_index_(ranks_per_device * 2 * partners),
          tables_(ranks_per_device), lists_(ranks_per_device * list_words), waits_(ranks_per_device),
          collective_barriers_(collective::count), slots_(2), exports_(ranks_per_device), created_(ranks_per_device),
          replies_(ranks_per_device), words_(3 * 32), ring_(std::size_t(ring_capacity) * packets_per_command),
          peers_(processes), entries_(slots_.size() * processes * ranks_per_device) {
        const std::uint32_t world_size = processes * ranks_per_device, first_rank = process * ranks_per_device;
        fields_.ranks_per_device = ranks_per_device;
        fields_.ranks_per_block = 1;
        fields_.process_index = process;
        fields_.process_count = processes;
        fields_.communicators[static_cast<std::size_t>(dcuda::world)] = {world_size, 0, processes};
        fields_.communicators[static_cast<std::size_t>(dcuda::device)] = {ranks_per_device, first_rank, 1};
        const auto describe = [&](dcuda::communicator comm, std::uint32_t size, std::uint32_t number) {
            communicator_record record{};
            record.size = size;
            record.number = number;
            record.first_rank = first_rank - number;
            record.stride = 1;
            record.slots = static_cast<std::uint32_t>(comm) * ranks_per_device * fixed_packets;
            record.slots_stride = record.slots_packets = fixed_packets;
            for (communicator_table& table : tables_) {
                table.records[static_cast<std::size_t>(comm)] = record;
                ++record.number;
            }
        };
        describe(dcuda::world, world_size, first_rank);
        describe(dcuda::device, ranks_per_device, 0);
        describe(dcuda::node, world_size, first_rank);
        for (std::size_t rank = 0; rank < tables_.size(); ++rank) {
            tables_[rank].memory = {.entries = barrier_packets,
                                    .slots = barrier_packets + entry_packets,
                                    .pool = slot_packets,
                                    .fixed_packets = fixed_packets,
                                    .block_packets = block_packets,
                                    .list_words = list_words,
                                    .bounce = 0,
                                    .bounce_packets = 0,
                                    .bounce_from = UINT32_MAX,   // none
                                    .leaders_from = UINT32_MAX}; // none
            tables_[rank].lists = lists_.data() + rank * list_words;
        }
        fields_.communicator_tables = tables_.data();
        fields_.tags = {tags, tags, world_size};
        fields_.max_windows = static_cast<std::uint32_t>(slots_.size());
        fields_.queues = queues;
        fields_.queue_count = ranks_per_device * partners;
        fields_.partner_limit = partners;
        fields_.index_slots = 2 * partners;
        fields_.small_put_bytes = queues.packets * packet_payload_bytes;
        fields_.barriers = shape;
        fields_.peers = peers_.data();
        fields_.tag_records = tag_records_.data();
        fields_.connections = connections_.data();
        fields_.connection_index = connection_index_.data();
        fields_.waits = waits_.data();
        fields_.collective_barriers = collective_barriers_.data();
        fields_.windows = slots_.data();
        fields_.exports = exports_.data();
        fields_.created = created_.data();
        fields_.replies = replies_.data();
        fields_.aborted = words_.data();
        fields_.ring = {ring_.data(), reinterpret_cast<std::uint64_t*>(words_.data() + 32), words_.data() + 64};
        for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].entries = entries_.data() + i * world_size;
    }

    void knows(unsigned process, small_device& peer) {
        peers_[process] = {peer.counters_.data(), reinterpret_cast<std::uint64_t*>(peer.barriers_.data()),
                           peer.status_.data(),   peer.packets_.data(),
                           peer.claimed_.data(),  peer.places_.data(),
                           peer.credits_.data(),  0};
    }

    dcuda::context context() const { return {&fields_}; }
    const device_context& fields() const { return fields_; }
    window_entry* entries(std::uint32_t slot) { return slots_[slot].entries; }

    // Waits for the next command to arrive.
    command take_command() {
        const packet* const slot = ring_.data() + std::size_t(taken_ % ring_capacity) * packets_per_command;
        std::uint32_t words[command_words];
        for (std::size_t part = 0; part < packets_per_command; ++part) {
            while (!packet_arrived(slot + part, taken_ + 1)) pause_ns(0);
            for (std::size_t word = 0; word < 3; ++word) words[3 * part + word] = slot[part].payload[word];
        }
        ++taken_;
        command taken{};
        std::memcpy(&taken, words, sizeof taken);
        return taken;
    }

private:
    static constexpr std::uint32_t tags = 4, partners = 2 * ranks_per_device;
    static constexpr queue_shape queues{8, 8};
    static constexpr std::size_t counter_count = ranks_per_device * tags;
    static constexpr barrier_shape shape{ranks_per_device, 1, ranks_per_device}; // each rank is a row
    static constexpr std::uint32_t fixed_packets = 64, block_packets = 16, list_words = 256, entry_packets = 64;
    static constexpr std::uint32_t slot_packets = fixed_communicators * ranks_per_device * fixed_packets;
    static constexpr std::uint32_t barrier_packets = 2 * collective::barriers * shape.words() * barrier_line / 2;
    std::vector<std::uint32_t> counters_;
    std::vector<packet> barriers_; // and behind them what communicators need
    std::vector<mailbox_status> status_;
    std::vector<packet> packets_;
    std::vector<std::uint32_t> claimed_, places_, credits_;
    std::vector<tag_record> tag_records_;
    std::vector<rank_connection> connections_;
    std::vector<connection_slot> connection_index_;
    std::vector<communicator_table> tables_;
    std::vector<std::uint32_t> lists_;
    std::vector<wait_record> waits_;
    std::vector<collective_barrier> collective_barriers_;
    std::vector<window_slot> slots_;
    std::vector<window_entry> exports_;
    std::vector<std::uint32_t> created_, replies_, words_;
    std::vector<packet> ring_;
    std::vector<peer_view> peers_;
    std::vector<window_entry> entries_;
    kernel_context fields_{};
    std::uint32_t taken_ = 0;
};

// Two devices that know each other, and a kernel on each.
class two_devices {
public:
    two_devices() {
        for (unsigned of = 0; of < 2; ++of)
            for (unsigned target = 0; target < 2; ++target) device(of).knows(target, device(target));
        for (cudaStream_t& stream : streams_) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
    ~two_devices() {
        for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    }
    two_devices(const two_devices&) = delete;
    two_devices& operator=(const two_devices&) = delete;

    small_device& device(unsigned index) { return *devices_[index]; }

    // body(context) runs in every thread of every rank.
    template <class Body>
    void start(const Body& body) {
        for (unsigned index = 0; index < 2; ++index)
            exec::launch({dim3(2), ranks_per_device, 0, static_cast<int>(index * ranks_per_device)}, streams_[index],
                         [body, context = device(index).context()] { body(context); });
    }

    // 0 if both kernels ended well.
    int finish() {
        int failures = 0;
        for (cudaStream_t stream : streams_) failures += cudaStreamSynchronize(stream) != cudaSuccess;
        if (failures != 0) std::fprintf(stderr, "litmus: %s\n", exec::kernel_failure().c_str());
        return failures;
    }

private:
    std::array<std::unique_ptr<small_device>, 2> devices_{std::make_unique<small_device>(0, 2),
                                                          std::make_unique<small_device>(1, 2)};
    std::array<cudaStream_t, 2> streams_{};
};

// device_arrive, device_observe: a rank of each device writes, barrier(world), the ranks of the other device read.
inline int exchange_between_two_devices(int rounds) {
    two_devices devices;
    std::array<unsigned, 2> values{};
    std::atomic<int> wrong{0};
    devices.start([&values, &wrong, rounds](dcuda::context context) {
        __shared__ dcuda::state state;
        dcuda::rank self(context, state);
        const auto own = static_cast<unsigned>(self.id()) / ranks_per_device;
        for (int round = 0; round < rounds; ++round) {
            if (self.id(dcuda::device) == 0 && exec::thread_index() == 0) values[own] = static_cast<unsigned>(round);
            self.barrier(dcuda::world);
            if (values[1 - own] != static_cast<unsigned>(round)) ++wrong;
            self.barrier(dcuda::world);
        }
    });
    return devices.finish() + wrong;
}

// reply_publish, reply_observe: the host, this thread, fills in the entries of a window that spans two devices; the
// ranks put with them. The windows' memory is that of the other device's ranks, so nothing else is ordered by it.
inline int reply_to_a_rank(int rounds) {
    two_devices devices;
    std::vector<unsigned> memory(2 * ranks_per_device * 2);
    devices.start([&memory, rounds](dcuda::context context) {
        __shared__ dcuda::state state;
        dcuda::rank self(context, state);
        unsigned* const inbox = memory.data() + self.id() * 2;
        for (int round = 0; round < rounds; ++round) {
            const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
            self.put_notify(win, (self.id() + 1) % self.size(), 0, sizeof(unsigned), inbox + 1, 0);
            self.wait_notifications(0, 1);
            self.free_window(win);
        }
    });
    dcuda::device_access link;
    std::uint32_t reply = 0;
    for (int round = 0; round < rounds; ++round) {
        command asked[2];
        for (unsigned index = 0; index < 2; ++index) asked[index] = devices.device(index).take_command();
        reply = (reply & ~1u) + 3;
        for (unsigned index = 0; index < 2; ++index) {
            const std::uint32_t slot = fields_of<create_window_fields>(asked[index]).slot;
            for (unsigned from = 0; from < 2; ++from)
                link.write(devices.device(index).entries(slot) + from * ranks_per_device,
                           devices.device(from).fields().exports, ranks_per_device * sizeof(window_entry));
            link.publish_reply(devices.device(index).fields().replies + asked[index].rank, reply);
        }
    }
    return devices.finish();
}

} // namespace litmus
