// SPDX-License-Identifier: BSD-3-Clause
// How the host reads and writes device memory while a kernel runs.
#pragma once

#include "support/cuda.hpp"

#include <cstdint>

namespace dcuda {

// Used by one thread. All operations are in order: a word is written after everything that was written before it.
class device_access {
public:
    device_access();

    // Return when the bytes are there.
    void read(void* target, const void* device_source, std::size_t bytes);
    void write(void* device_target, const void* source, std::size_t bytes);

    // Begins to read into pinned memory. When is_read(what it returned), the bytes are there.
    std::uint64_t start_read(void* pinned_target, const void* device_source, std::size_t bytes);
    bool is_read(std::uint64_t number);

    // Reads words that the kernel may be writing: each is old or new, whole.
    void read_words(std::uint32_t* target, const std::uint32_t* device_source, std::size_t count);

    // Writes a word for which ranks poll with acquire. ORDER reply-publish, slot-free: everything written before is
    // visible to whoever sees the word. On a GPU by stream order and the system-wide fence that cuStreamWriteValue32
    // puts before its write (CUDA driver API, stream memory operations); on the CPU by a release store.
    void publish_reply(std::uint32_t* device_word, std::uint32_t value);
    void publish_free_slots(std::uint32_t* device_word, std::uint32_t value);

    // The same of a count of notifications: what was copied to the device before is there. ORDER notify-publish. On the
    // CPU who waits is woken by the doorbell.
    void publish_notifications(std::uint32_t* device_word, std::uint32_t value, std::uint32_t* doorbell);

    // Writes a word on which nothing depends but its value.
    void write_word(std::uint32_t* device_word, std::uint32_t value);

private:
    cuda::stream stream_;
#if DCUDA_BACKEND_CUDA
    cuda::copy_queue reads_;
#endif
};

} // namespace dcuda
