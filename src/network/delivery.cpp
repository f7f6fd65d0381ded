// SPDX-License-Identifier: BSD-3-Clause
#include "network/delivery.hpp"

#include "device/delivery_kernel.hpp"

#include <cstring>

namespace dcuda {

using namespace detail;

namespace {

constexpr const char* pinned = "pinned memory for the delivery kernel";

} // namespace

#if DCUDA_BACKEND_CUDA

device_delivery::device_delivery(device_state& state)
    : state_(state), results_(cuda::allocate_pinned<std::uint64_t>(delivery_results, pinned)),
      ring_(cuda::allocate_pinned<packet>(std::size_t(delivery_capacity) * packets_per_command, pinned)),
      words_(cuda::allocate_pinned<std::uint32_t>(2, pinned)) {
    for (std::size_t i = 0; i < std::size_t(delivery_capacity) * packets_per_command; ++i) ring_[i] = packet{};
    words_[0] = words_[1] = 0;
}

void device_delivery::start(unsigned threads_of_rank) {
    delivery_task task{ring_.get(),      words_.get(),
                       words_.get() + 1, state_.inbox().counters,
                       results_.get(),   state_.fields().tags.wire_count()};
    void* arguments[] = {&task};
    cuda::check(cudaLaunchKernel(delivery_kernel_address(), dim3(1), dim3(delivery_threads(threads_of_rank)), arguments,
                                 0, stream_.get()),
                "starting the delivery kernel");
    running_ = true;
}

bool device_delivery::has_started() const { return load_relaxed(words_.get() + 1) != 0; }

device_delivery::~device_delivery() {
    if (!running_) return;
    while (!has_room(1) && cudaStreamQuery(stream_.get()) == cudaErrorNotReady) pause_ns(0);
    if (!has_room(1)) return; // the device has failed
    const std::uint32_t words[command_words] = {static_cast<std::uint32_t>(delivery_kind::stop), 0, no_tag};
    store(words, command_words);
    cudaStreamSynchronize(stream_.get()); // what fails here has failed before
}

packet* device_delivery::slot(std::uint32_t number) const {
    return ring_.get() + std::size_t(number % delivery_capacity) * packets_per_command;
}

bool device_delivery::has_room(std::uint32_t commands) {
    if (next_ + commands - done_ <= delivery_capacity) return true;
    done();
    return next_ + commands - done_ <= delivery_capacity;
}

// The next command; payload goes on in those behind it.
void device_delivery::store(const std::uint32_t* words, std::size_t count) {
    for (std::size_t i = 0; i < count; i += 3) {
        const std::uint32_t number = next_ + static_cast<std::uint32_t>(i / command_words);
        store_packet<order_tag::command_publish>(slot(number) + i % command_words / 3, words[i], words[i + 1],
                                                 words[i + 2], number + 1);
    }
    next_ += static_cast<std::uint32_t>(count / command_words);
    under_way_.emplace_back(next_, ++issued_);
}

bool device_delivery::put(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t rank,
                          std::uint32_t tag) {
    if (bytes > max_delivery_bytes)
        return store_copy(delivery_kind::copy, place, payload, bytes, rank, tag, static_cast<std::uint32_t>(bytes), 0,
                          no_update);
    const std::uint32_t commands = delivery_commands(static_cast<std::uint32_t>(bytes));
    if (!has_room(commands)) return false;
    std::uint32_t words[8 * command_words] = {static_cast<std::uint32_t>(delivery_kind::put),
                                              rank,
                                              tag,
                                              static_cast<std::uint32_t>(bytes),
                                              static_cast<std::uint32_t>(place),
                                              static_cast<std::uint32_t>(place >> 32)};
    if (bytes != 0) std::memcpy(words + 6, payload, bytes);
    store(words, commands * command_words);
    return true;
}

// A delivery whose payload stays in host memory.
bool device_delivery::store_copy(delivery_kind kind, std::uint64_t place, const std::byte* payload, std::size_t bytes,
                                 std::uint32_t rank, std::uint32_t tag, std::uint32_t width, std::uint64_t distance,
                                 std::uint32_t code) {
    if (!has_room(1)) return false;
    std::uint32_t words[command_words] = {static_cast<std::uint32_t>(kind),
                                          rank,
                                          tag,
                                          static_cast<std::uint32_t>(bytes),
                                          static_cast<std::uint32_t>(place),
                                          static_cast<std::uint32_t>(place >> 32)};
    const auto address = reinterpret_cast<std::uintptr_t>(payload);
    std::memcpy(words + 6, &address, sizeof address);
    words[8] = width;
    std::memcpy(words + 9, &distance, sizeof distance);
    words[11] = code;
    store(words, command_words);
    return true;
}

bool device_delivery::put_rows(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t width,
                               std::uint64_t distance) {
    return store_copy(delivery_kind::rows, place, payload, bytes, 0, no_tag, width, distance, no_update);
}

bool device_delivery::combine(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t code) {
    return store_copy(delivery_kind::combine, place, payload, bytes, 0, no_tag, static_cast<std::uint32_t>(bytes), 0,
                      code);
}

bool device_delivery::put_packets(std::uint64_t place, const std::byte* values, std::uint32_t rank,
                                  std::uint32_t word) {
    if (!has_room(1)) return false;
    std::uint32_t words[command_words] = {static_cast<std::uint32_t>(delivery_kind::packets),
                                          rank,
                                          word,
                                          unit_bytes,
                                          static_cast<std::uint32_t>(place),
                                          static_cast<std::uint32_t>(place >> 32)};
    static_assert(unit_bytes == sizeof words - 6 * sizeof words[0]);
    std::memcpy(words + 6, values, unit_bytes);
    store(words, command_words);
    return true;
}

std::uint64_t device_delivery::start_copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) {
    if (copies_.is_full()) return 0;
    return copies_.start(reinterpret_cast<void*>(static_cast<std::uintptr_t>(place)), payload, bytes,
                         "writing device memory");
}

bool device_delivery::is_copied(std::uint64_t copy) { return copies_.is_done(copy); }

bool device_delivery::update(std::uint64_t place, const atomic_update& update, std::uint32_t number) {
    if (!has_room(1)) return false;
    std::uint32_t words[command_words] = {static_cast<std::uint32_t>(delivery_kind::update),
                                          0,
                                          update_code(update),
                                          number,
                                          static_cast<std::uint32_t>(place),
                                          static_cast<std::uint32_t>(place >> 32)};
    std::memcpy(words + 6, &update.operand, sizeof update.operand);
    std::memcpy(words + 8, &update.expected, sizeof update.expected);
    store(words, command_words);
    return true;
}

bool device_delivery::reply(std::uint32_t* device_word, std::uint32_t value) {
    if (!has_room(1)) return false;
    const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(device_word));
    const std::uint32_t words[command_words] = {
        static_cast<std::uint32_t>(delivery_kind::reply), 0,    no_tag, 0, static_cast<std::uint32_t>(place),
        static_cast<std::uint32_t>(place >> 32),          value};
    store(words, command_words);
    return true;
}

std::uint64_t device_delivery::done() {
    // ORDER slot-free -> slot-reuse: what the delivery kernel has read and placed.
    done_ = load_acquire<order_tag::slot_reuse>(scope::system, words_.get());
    while (!under_way_.empty() && static_cast<std::int32_t>(done_ - under_way_.front().first) >= 0) {
        done_number_ = under_way_.front().second;
        under_way_.pop_front();
    }
    return done_number_;
}

#else

device_delivery::device_delivery(device_state& state)
    : state_(state), results_(cuda::allocate_pinned<std::uint64_t>(delivery_results, pinned)) {}
void device_delivery::start(unsigned) {}
bool device_delivery::has_started() const { return true; }
device_delivery::~device_delivery() = default;

bool device_delivery::put(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t rank,
                          std::uint32_t tag) {
    ++issued_;
    if (bytes != 0) std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(place)), payload, bytes);
    if (tag == no_tag) return true;
    const peer_view& inbox = state_.inbox();
    add_release<order_tag::notify_publish>(
        scope::system, inbox.counters + std::size_t(rank) * state_.fields().tags.wire_count() + tag, 1u);
    ring_doorbell(&inbox.status[rank].doorbell);
    return true;
}

bool device_delivery::put_rows(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t width,
                               std::uint64_t distance) {
    ++issued_;
    auto* const first = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place));
    for (std::size_t row = 0; row < bytes / width; ++row)
        std::memcpy(first + row * distance, payload + row * width, width);
    return true;
}

bool device_delivery::combine(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t code) {
    ++issued_;
    auto* const elements = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place));
    const element_type type = update_of(code, 0, 0).type;
    for (std::size_t i = 0; i < bytes; i += size_of_element(type))
        update_element(elements + i, update_of(code, bits_at(payload + i, type), 0));
    return true;
}

bool device_delivery::put_packets(std::uint64_t place, const std::byte* values, std::uint32_t rank,
                                  std::uint32_t word) {
    ++issued_;
    auto* const slot = reinterpret_cast<packet*>(static_cast<std::uintptr_t>(place));
    for (unsigned i = 0; i < unit_packets; ++i) {
        std::uint32_t words[3];
        std::memcpy(words, values + i * sizeof words, sizeof words);
        store_packet<order_tag::exchange_publish>(slot + i, words[0], words[1], words[2], word);
    }
    ring_doorbell(&state_.inbox().status[rank].doorbell);
    return true;
}

std::uint64_t device_delivery::start_copy(std::uint64_t, const std::byte*, std::size_t) { return 0; }
bool device_delivery::is_copied(std::uint64_t) { return true; }

bool device_delivery::update(std::uint64_t place, const atomic_update& update, std::uint32_t number) {
    ++issued_;
    results_[number] = update_element(reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place)), update);
    return true;
}

bool device_delivery::reply(std::uint32_t* device_word, std::uint32_t value) {
    ++issued_;
    store_release<order_tag::reply_publish>(scope::system, device_word, value);
    return true;
}

std::uint64_t device_delivery::done() { return issued_; }

#endif

} // namespace dcuda
