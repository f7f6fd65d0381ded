// SPDX-License-Identifier: BSD-3-Clause
// The contracts that an operation of a rank checks: the kernel breaks one of them.
#include "misuse.hpp"

#include <dcuda/dcuda.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace {

constexpr std::size_t shared_bytes = 64;

// What a kernel does wrong. Rank `culprit` does it, the others wait for a notification that never comes.
enum class wrong : int {
    offset,
    size,
    offset_plus_size,
    negative_size,
    rank,
    negative_rank,
    tag,
    negative_tag,
    notify_tag,
    notify_rank,
    notify_each_rank,
    notify_negative_count,
    wait_tag,
    freed_window,
    freed_twice,
    no_window,
    flush_no_window,
    communicator,
    barrier_communicator,
    negative_count,
    any_of_no_tag,
    any_of_too_many_tags,
    some_of_no_tag,
    some_to_own_memory,
    pending_tag,
    wait_for_negative_count,
    matched_tag,
    matched_range,
    from_plain_tag,
    from_no_member,
    from_no_communicator,
    from_negative_count,
    shared_memory,
    null_window,
    freed_communicator,
    split_of_none,
    world_freed,
    root,
    started_twice,
    started_array_twice,
    split_while_started,
    finish_of_nothing,
    overlap,
    move_overlap,
    gather_root,
    own_memory,
};

// What the culprit has when it breaks a rule: `gone` is a freed window, `freed` a freed communicator, `other` a rank
// that is not it.
struct scene {
    dcuda::rank& self;
    unsigned char* memory;
    unsigned char* shared;
    int* numbers;
    dcuda::window win, gone;
    dcuda::communicator freed;
    int ranks, other;
};

// The operations stand in one function for each kind, none inlined: in one kernel ptxas takes more than ten minutes for
// them.

// Of puts and notifications.
DCUDA_COLD void break_rule_of_puts(const scene& at, wrong rule) {
    switch (rule) {
    case wrong::offset:
        at.self.put(at.win, at.other, window_bytes + 1, 0, at.memory);
        break;
    case wrong::size:
        at.self.put_notify(at.win, at.other, 0, window_bytes + 1, at.memory, 0);
        break;
    case wrong::offset_plus_size:
        at.self.put(at.win, at.other, SIZE_MAX - 7, 16, at.memory);
        break;
    case wrong::negative_size:
        at.self.put(at.win, at.other, 8, static_cast<std::size_t>(-4), at.memory);
        break;
    case wrong::rank:
        at.self.put(at.win, at.ranks, 0, 4, at.memory);
        break;
    case wrong::negative_rank:
        at.self.put_notify(at.win, -1, 0, 4, at.memory, 0);
        break;
    case wrong::tag:
        at.self.put_notify(at.win, at.other, 0, 4, at.memory, 256);
        break;
    case wrong::negative_tag:
        at.self.put_notify(at.win, at.other, 0, 4, at.memory, -1);
        break;
    case wrong::notify_tag:
        at.self.notify(at.other, dcuda::world, 256);
        break;
    case wrong::notify_rank:
        at.self.notify(at.ranks, dcuda::world, 0);
        break;
    case wrong::notify_each_rank: // the second one of the list
        if (at.self.thread() == 0) {
            at.numbers[0] = at.other;
            at.numbers[1] = at.ranks;
        }
        __syncthreads();
        at.self.notify_each(at.numbers, 2, dcuda::world, 7);
        break;
    case wrong::notify_negative_count:
        at.self.notify_each(at.numbers, -2, dcuda::world, 3);
        break;
    case wrong::communicator:
        at.self.notify(at.other, static_cast<dcuda::communicator>(5), 0);
        break;
    case wrong::no_window:
        at.self.put_notify(dcuda::window{}, at.other, 0, 4, at.memory, 0);
        break;
    case wrong::freed_window:
        at.self.put(at.gone, at.other, 0, 4, at.memory);
        break;
    case wrong::flush_no_window:
        at.self.flush(dcuda::window{});
        break;
    default:
        break;
    }
}

// Of waits.
DCUDA_COLD void break_rule_of_waits(const scene& at, wrong rule) {
    switch (rule) {
    case wrong::wait_tag:
        at.self.wait_notifications(1000, 1);
        break;
    case wrong::negative_count:
        at.self.wait_notifications(3, -2);
        break;
    case wrong::any_of_no_tag:
        at.self.wait_any(3, 0);
        break;
    case wrong::any_of_too_many_tags:
        at.self.wait_any(250, 7);
        break;
    case wrong::some_of_no_tag:
        at.self.wait_some(-1, 4, at.numbers);
        break;
    case wrong::some_to_own_memory: {
        int own[4];
        at.self.wait_some(0, 4, own);
        break;
    }
    case wrong::pending_tag:
        at.self.pending_notifications(256);
        break;
    case wrong::wait_for_negative_count:
        at.self.wait_notifications_for(3, -1, 1000);
        break;
    case wrong::matched_tag:
        at.self.wait_notifications(255, 1);
        break;
    case wrong::matched_range:
        at.self.wait_some(250, 6, at.numbers);
        break;
    case wrong::from_plain_tag:
        at.self.wait_notifications_from(0, dcuda::world, 253, 1);
        break;
    case wrong::from_no_member:
        at.self.wait_notifications_from(at.ranks, dcuda::world, 254, 1);
        break;
    case wrong::from_no_communicator:
        at.self.wait_notifications_from(0, dcuda::none, 254, 1);
        break;
    case wrong::from_negative_count:
        at.self.wait_notifications_from(0, dcuda::world, 254, -1);
        break;
    default:
        break;
    }
}

// Of windows and communicators.
DCUDA_COLD void break_rule_of_management(const scene& at, wrong rule) {
    switch (rule) {
    case wrong::freed_twice:
        at.self.free_window(at.gone);
        break;
    case wrong::shared_memory:
        at.self.create_window(dcuda::device, at.shared, shared_bytes);
        break;
    case wrong::null_window:
        at.self.create_window(dcuda::world, nullptr, 64);
        break;
    case wrong::barrier_communicator:
        at.self.barrier(static_cast<dcuda::communicator>(-1));
        break;
    case wrong::freed_communicator:
        at.self.barrier(at.freed);
        break;
    case wrong::split_of_none:
        at.self.split(dcuda::none, 0, 0);
        break;
    case wrong::world_freed:
        at.self.free_communicator(dcuda::world);
        break;
    default:
        break;
    }
}

// Of reductions.
DCUDA_COLD void break_rule_of_reductions(const scene& at, wrong rule) {
    switch (rule) {
    case wrong::started_twice:
        at.self.start_allreduce(dcuda::world, 1, dcuda::sum{});
        at.self.start_allreduce(dcuda::world, 1, dcuda::sum{});
        break;
    case wrong::started_array_twice:
        at.self.start_allreduce(dcuda::world, at.numbers, at.numbers, 8, dcuda::sum{});
        at.self.start_allreduce(dcuda::world, at.numbers, at.numbers, 8, dcuda::sum{});
        break;
    case wrong::split_while_started:
        at.self.start_allreduce(dcuda::world, 1, dcuda::sum{});
        at.self.split(dcuda::world, 0, 0);
        break;
    case wrong::finish_of_nothing:
        at.self.finish_allreduce(dcuda::started_value<int, dcuda::sum>{dcuda::device, 1, {}, 0});
        break;
    case wrong::overlap:
        at.self.allreduce(dcuda::device, at.memory + 4, at.memory, 8, dcuda::sum{});
        break;
    case wrong::own_memory: {
        int value = 1;
        at.self.allreduce(dcuda::device, &value, &value, 1, dcuda::sum{});
        break;
    }
    default:
        break;
    }
}

// Of collectives that move data.
DCUDA_COLD void break_rule_of_moves(const scene& at, wrong rule) {
    switch (rule) {
    case wrong::root:
        at.self.broadcast(dcuda::node, 1, -3);
        break;
    case wrong::move_overlap:
        at.self.all_to_all(dcuda::device, at.memory + 1, at.memory, 4);
        break;
    case wrong::gather_root:
        at.self.gather(dcuda::device, at.memory, at.memory + 64, 4, 7);
        break;
    default:
        break;
    }
}

__global__ void contract(dcuda::context context, unsigned char* memory, wrong rule, int culprit) {
    __shared__ dcuda::state state;
    __shared__ unsigned char shared[shared_bytes];
    __shared__ int numbers[8];
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::world, memory, window_bytes);
    const dcuda::window gone = self.create_window(dcuda::world, memory, window_bytes);
    self.free_window(gone);
    const dcuda::communicator freed = self.split(dcuda::world, 0, 0);
    self.free_communicator(freed);
    const int ranks = self.size(), other = (self.id() + 1) % ranks;
    if (self.id() == culprit) {
        const scene at{self, memory, shared, numbers, win, gone, freed, ranks, other};
        break_rule_of_puts(at, rule);
        break_rule_of_waits(at, rule);
        break_rule_of_management(at, rule);
        break_rule_of_reductions(at, rule);
        break_rule_of_moves(at, rule);
    }
    self.wait_notifications(5, 1);
}

const std::map<std::string, wrong> rules = {
    {"offset", wrong::offset},
    {"size", wrong::size},
    {"offset_plus_size", wrong::offset_plus_size},
    {"negative_size", wrong::negative_size},
    {"rank", wrong::rank},
    {"negative_rank", wrong::negative_rank},
    {"tag", wrong::tag},
    {"negative_tag", wrong::negative_tag},
    {"notify_tag", wrong::notify_tag},
    {"notify_rank", wrong::notify_rank},
    {"notify_each_rank", wrong::notify_each_rank},
    {"notify_negative_count", wrong::notify_negative_count},
    {"wait_tag", wrong::wait_tag},
    {"freed_window", wrong::freed_window},
    {"freed_twice", wrong::freed_twice},
    {"no_window", wrong::no_window},
    {"flush_no_window", wrong::flush_no_window},
    {"communicator", wrong::communicator},
    {"barrier_communicator", wrong::barrier_communicator},
    {"negative_count", wrong::negative_count},
    {"any_of_no_tag", wrong::any_of_no_tag},
    {"any_of_too_many_tags", wrong::any_of_too_many_tags},
    {"some_of_no_tag", wrong::some_of_no_tag},
    {"some_to_own_memory", wrong::some_to_own_memory},
    {"pending_tag", wrong::pending_tag},
    {"wait_for_negative_count", wrong::wait_for_negative_count},
    {"matched_tag", wrong::matched_tag},
    {"matched_range", wrong::matched_range},
    {"from_plain_tag", wrong::from_plain_tag},
    {"from_no_member", wrong::from_no_member},
    {"from_no_communicator", wrong::from_no_communicator},
    {"from_negative_count", wrong::from_negative_count},
    {"shared_memory", wrong::shared_memory},
    {"null_window", wrong::null_window},
    {"freed_communicator", wrong::freed_communicator},
    {"split_of_none", wrong::split_of_none},
    {"world_freed", wrong::world_freed},
    {"root", wrong::root},
    {"started_twice", wrong::started_twice},
    {"started_array_twice", wrong::started_array_twice},
    {"split_while_started", wrong::split_while_started},
    {"finish_of_nothing", wrong::finish_of_nothing},
    {"overlap", wrong::overlap},
    {"move_overlap", wrong::move_overlap},
    {"gather_root", wrong::gather_root},
    {"own_memory", wrong::own_memory},
};

} // namespace

bool run_contract(const std::string& name, dcuda::runtime& job) {
    const auto rule = rules.find(name);
    if (rule == rules.end()) return false;
    const int culprit = job.plan(contract, shape()).rank_count - 1;
    job.run(contract, shape(), device_memory<unsigned char>(window_bytes, 0), rule->second, culprit);
    return true;
}
