// SPDX-License-Identifier: BSD-3-Clause
#include "device/device_access.hpp"

#include "dcuda/detail/protocol/memory.hpp"

namespace dcuda {

using detail::order_tag;
using detail::scope;

#if DCUDA_BACKEND_CUDA

namespace {

using stream_write_value = int (*)(cudaStream_t, unsigned long long address, std::uint32_t value, unsigned flags);

} // namespace

device_access::device_access() = default;

void device_access::read(void* target, const void* device_source, std::size_t bytes) {
    if (bytes == 0) return;
    cuda::check(cudaMemcpyAsync(target, device_source, bytes, cudaMemcpyDeviceToHost, stream_.get()),
                "reading device memory");
    cuda::check(cudaStreamSynchronize(stream_.get()), "reading device memory");
}

void device_access::write(void* device_target, const void* source, std::size_t bytes) {
    if (bytes == 0) return;
    cuda::check(cudaMemcpyAsync(device_target, source, bytes, cudaMemcpyHostToDevice, stream_.get()),
                "writing device memory");
    cuda::check(cudaStreamSynchronize(stream_.get()), "writing device memory");
}

std::uint64_t device_access::start_read(void* pinned_target, const void* device_source, std::size_t bytes) {
    while (reads_.is_full()) detail::pause_ns(0);
    return reads_.start(pinned_target, device_source, bytes, "reading device memory");
}

bool device_access::is_read(std::uint64_t number) { return reads_.is_done(number); }

void device_access::read_words(std::uint32_t* target, const std::uint32_t* device_source, std::size_t count) {
    read(target, device_source, count * sizeof(std::uint32_t));
}

void device_access::write_word(std::uint32_t* device_word, std::uint32_t value) {
    static const auto write = cuda::driver_function<stream_write_value>("cuStreamWriteValue32");
    const auto address = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(device_word));
    const int result = write(stream_.get(), address, value, 0);
    support::require(result == 0, error_code::cuda_failure, "cuStreamWriteValue32 failed: CUresult {}", result);
}

void device_access::publish_reply(std::uint32_t* device_word, std::uint32_t value) { write_word(device_word, value); }
void device_access::publish_free_slots(std::uint32_t* device_word, std::uint32_t value) {
    write_word(device_word, value);
}
void device_access::publish_notifications(std::uint32_t* device_word, std::uint32_t value, std::uint32_t*) {
    write_word(device_word, value);
}

#else

device_access::device_access() = default;

void device_access::read(void* target, const void* device_source, std::size_t bytes) {
    if (bytes != 0) std::memcpy(target, device_source, bytes);
}

void device_access::write(void* device_target, const void* source, std::size_t bytes) {
    if (bytes != 0) std::memcpy(device_target, source, bytes);
}

std::uint64_t device_access::start_read(void* pinned_target, const void* device_source, std::size_t bytes) {
    std::memcpy(pinned_target, device_source, bytes);
    return 0;
}

bool device_access::is_read(std::uint64_t) { return true; }

void device_access::read_words(std::uint32_t* target, const std::uint32_t* device_source, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) target[i] = detail::load_relaxed(device_source + i);
}

void device_access::write_word(std::uint32_t* device_word, std::uint32_t value) {
    detail::store_release<order_tag::none>(scope::system, device_word, value);
}

void device_access::publish_reply(std::uint32_t* device_word, std::uint32_t value) {
    detail::store_release<order_tag::reply_publish>(scope::system, device_word, value);
}

void device_access::publish_free_slots(std::uint32_t* device_word, std::uint32_t value) {
    detail::store_release<order_tag::slot_free>(scope::system, device_word, value);
}

void device_access::publish_notifications(std::uint32_t* device_word, std::uint32_t value, std::uint32_t* doorbell) {
    detail::store_release<order_tag::notify_publish>(scope::system, device_word, value);
    detail::ring_doorbell(doorbell);
}

#endif

} // namespace dcuda
