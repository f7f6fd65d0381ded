// SPDX-License-Identifier: BSD-3-Clause
// What a rank does to windows of others, as the checker does it.
#include "checker/checked_rank.hpp"
#include "dcuda/detail/ops/one_sided/accumulate.hpp"
#include "dcuda/detail/ops/one_sided/atomics.hpp"
#include "dcuda/detail/ops/one_sided/get.hpp"

namespace dcuda::detail::check {

void checked_rank::put(window win, const device_window& opened, std::uint32_t target, std::size_t offset,
                       std::size_t bytes, const void* source, bool is_value, std::uint32_t tag) {
    if (!going(turns_.next())) return;
    const window_entry& entry = opened.entries[target];
    const std::uint32_t receiver = world_rank_of(state_, static_cast<communicator>(opened.comm), target);
    ++m_.head().puts;
    ++m_.head().progress;
    put_record record{};
    record.source = static_cast<std::uint16_t>(rank_);
    record.target = static_cast<std::uint16_t>(receiver);
    record.window = window_of(win);
    record.tag = tag;
    record.site = own().site;
    record.position = run_.happened.next_position(rank_, receiver);
    record.offset = offset;
    record.bytes = bytes;
    record.place = place_of(m_.rank(receiver).process, entry.home + offset);
    record.buffer = is_value ? no_buffer : place_of(all_.process(), source);
    message sent;
    sent.window = record.window;
    if (bytes != 0 && record.place != record.buffer) {
        if (record.place < record.buffer + bytes && record.buffer < record.place + bytes)
            run_.found.overlap(rank_, record.window, bytes, record.site);
        if (!is_value && (record.buffer & private_memory) != 0) ++run_.private_pages;
        run_.happened.issue(record);
        sent.target = entry.base + offset;
        sent.source = static_cast<const std::byte*>(source);
        sent.bytes = bytes;
        if (is_value) { // gone when the thread goes on
            sent.copy.assign(sent.source, sent.source + bytes);
            sent.is_read = true;
        }
    }
    if (tag != no_tag) {
        ++m_.head().notifications;
        sent.tag = tag;
        sent.notice = run_.happened.make_notice(rank_, receiver, tag, record.site, operation::put_notify);
    }
    if (sent.bytes != 0 || sent.notice != none) turns_.send(receiver, std::move(sent));
}

// Where a range lies, when what the rank has put there before is in its place.
checked_rank::reached_range checked_rank::reach(const device_window& opened, const accessed_range& range) {
    const window_entry& entry = opened.entries[range.rank];
    const std::uint32_t target = world_rank_of(state_, static_cast<communicator>(opened.comm), range.rank);
    ++m_.head().progress;
    turns_.place_all(target);
    return {target, place_of(m_.rank(target).process, entry.home + range.offset), entry.base + range.offset};
}

void checked_rank::notify_reached(const accessed_range& range, const reached_range& reached) {
    if (range.notifies() && !ended()) notify(range.where, reached.target, wire_tag(state_, range.tag));
}

// The bytes come at once, though nobody may rely on that.
void checked_rank::get(const device_window& opened, const get_request& request) {
    if (!going(turns_.next())) return;
    const accessed_range& range = request.range;
    const reached_range from = reach(opened, range);
    if (range.bytes != 0) {
        run_.happened.load_or_store(rank_, from.place, range.bytes, access_kind::load, own().site, true);
        run_.happened.load_or_store(rank_, place_of(all_.process(), request.destination), range.bytes,
                                    access_kind::store, own().site);
        if (from.memory != request.destination) std::memmove(request.destination, from.memory, range.bytes);
    }
    notify_reached(range, from);
}

std::uint64_t checked_rank::update(const device_window& opened, const update_request& request) {
    if (!going(turns_.next())) return 0;
    const accessed_range& range = request.range;
    const reached_range element = reach(opened, range);
    run_.happened.load_or_store(rank_, element.place, range.bytes, access_kind::atomic, own().site, true);
    run_.happened.synchronize(rank_, m_.atomic_clock(element.place));
    return update_element(element.memory, request.update);
}

// Elements are atomic, but order nothing.
void checked_rank::accumulate(const device_window& opened, const accumulate_request& request) {
    if (!going(turns_.next())) return;
    const accessed_range& range = request.range;
    const reached_range elements = reach(opened, range);
    if (range.bytes != 0) {
        run_.happened.load_or_store(rank_, elements.place, range.bytes, access_kind::atomic, own().site, true);
        if (!exec::cpu::is_on_own_stack(request.source))
            run_.happened.load_or_store(rank_, place_of(all_.process(), request.source), range.bytes, access_kind::load,
                                        own().site);
        for (std::size_t i = 0; i < request.count(); ++i)
            update_element(elements.memory + i * request.element_bytes(), request.update(i));
    }
    notify_reached(range, elements);
}

} // namespace dcuda::detail::check
