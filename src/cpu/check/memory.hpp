// The checker's memory as this process maps it.
#pragma once

#include <cstring>

#include "cpu/check/shared.hpp"

namespace dcuda::detail::check {

class memory {
public:
    memory() = default;
    memory(std::byte* base, std::uint32_t ranks, std::uint32_t tags) : ranks_(ranks), tags_(tags), base_(base) {
        layout();
    }

    // How much of it there is; most of it is never touched.
    static std::size_t bytes(std::uint32_t ranks, std::uint32_t tags) { return memory(nullptr, ranks, tags).end_; }

    // To its state before a run.
    void clear() { std::memset(base_, 0, cleared_); }

    header& head() const { return at<header>(0); }
    rank_record& rank(std::uint32_t r) const { return at<rank_record>(rank_records_, r); }
    std::uint32_t* clock(std::uint32_t r) const { return &at<std::uint32_t>(clocks_, std::size_t(r) * ranks_); }
    notice_queue& arrived(std::uint32_t r, std::uint32_t tag) const {
        return at<notice_queue>(queues_, std::size_t(r) * tags_ + tag);
    }
    check::channel& channel(std::uint32_t source, std::uint32_t target) const {
        return at<check::channel>(channels_, std::size_t(source) * ranks_ + target);
    }
    window_record& window(std::uint32_t number) const {
        return *reinterpret_cast<window_record*>(base_ + windows_ + number * window_bytes_);
    }
    put_record& put(std::uint32_t id) const { return at<put_record>(puts_, id % most_puts); }
    check::notice& notice(std::uint32_t index) const {
        return *reinterpret_cast<check::notice*>(base_ + notices_ + index * notice_bytes_);
    }
    page_slot& page(std::uint32_t slot) const { return at<page_slot>(pages_, slot); }
    std::uint32_t* lists(std::uint32_t index) const { return &at<std::uint32_t>(lists_, index); }
    check::access& access(std::uint32_t index) const { return at<check::access>(accesses_, index); }
    check::site& site(std::uint32_t index) const { return at<check::site>(sites_, index); }
    module_name& module(std::uint32_t index) const { return at<module_name>(modules_, index); }
    finding_text& finding(std::uint32_t index) const { return at<finding_text>(findings_, index); }

    std::uint32_t ranks() const { return ranks_; }
    std::uint32_t tags() const { return tags_; }
    static constexpr std::uint32_t page_slots = 2 * most_pages;

private:
    template <class T>
    T& at(std::size_t offset, std::size_t index = 0) const {
        return reinterpret_cast<T*>(base_ + offset)[index];
    }

    void layout() {
        const std::size_t n = ranks_;
        const auto take = [&](std::size_t bytes) {
            const std::size_t begin = end_;
            end_ = (end_ + bytes + 63) / 64 * 64;
            return begin;
        };
        take(sizeof(header));
        rank_records_ = take(n * sizeof(rank_record));
        clocks_ = take(n * n * sizeof(std::uint32_t));
        queues_ = take(n * tags_ * sizeof(notice_queue));
        channels_ = take(n * n * sizeof(check::channel));
        pages_ = take(page_slots * sizeof(page_slot));
        cleared_ = end_;
        window_bytes_ = sizeof(window_record) + n * sizeof(window_part);
        windows_ = take(most_windows * window_bytes_);
        puts_ = take(most_puts * sizeof(put_record));
        notice_bytes_ = (sizeof(check::notice) + n * sizeof(std::uint32_t) + 15) / 16 * 16;
        notices_ = take(most_notices * notice_bytes_);
        lists_ = take(std::size_t(most_pages) * granules * sizeof(std::uint32_t));
        accesses_ = take(std::size_t(most_accesses) * sizeof(check::access));
        sites_ = take(most_sites * sizeof(check::site));
        modules_ = take(most_modules * sizeof(module_name));
        findings_ = take(most_findings * sizeof(finding_text));
    }

    std::uint32_t ranks_ = 0, tags_ = 0;
    std::byte* base_ = nullptr;
    std::size_t rank_records_ = 0, clocks_ = 0, queues_ = 0, channels_ = 0, pages_ = 0, cleared_ = 0, window_bytes_ = 0,
                windows_ = 0, puts_ = 0, notice_bytes_ = 0, notices_ = 0, lists_ = 0, accesses_ = 0, sites_ = 0,
                modules_ = 0, findings_ = 0, end_ = 0;
};

} // namespace dcuda::detail::check
