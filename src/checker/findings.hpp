// SPDX-License-Identifier: BSD-3-Clause
// What is wrong, in words.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "checker/model.hpp"
#include "checker/places.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "dcuda/types.hpp"

namespace dcuda::detail::check {

// Of one process. Whoever has the turn uses it.
class findings final : public observer {
public:
    findings(const memory& shared, places& where) : m_(shared), where_(where) {}

    // Who is to end the run when something is wrong; called at the first finding if that ends the run.
    std::function<void()> end_run;

    void conflict_with_put(const put_record& earlier, address at, unsigned bytes, std::uint32_t rank, access_kind kind,
                           std::uint32_t origin) override;
    void conflict_of_put(const put_record& later, address at, unsigned bytes, std::uint32_t rank, access_kind kind,
                         std::uint32_t site) override;
    void conflict_of_accesses(const access& earlier, address at, unsigned bytes, std::uint32_t rank, access_kind kind,
                              std::uint32_t site) override;
    void out_of(const char* resource, std::size_t most) override;

    // The rank cannot go on with an operation on this window, which was freed.
    void use_of_freed(std::uint32_t rank, operation kind, std::uint32_t window, std::uint32_t site);
    void put_into_freed(const put_record& put, std::uint32_t site);
    void overlap(std::uint32_t rank, std::uint32_t window, std::uint64_t bytes, std::uint32_t site);
    void left_over(std::uint32_t rank, std::uint32_t tag);
    // No rank can go on; or all that could only make unsuccessful tests.
    void standstill();
    void mismatch(std::uint32_t rank, std::uint32_t other);
    void left_early(std::uint32_t rank);
    void threads_differ(std::uint32_t rank, const std::string& how, std::uint32_t site);

    // In report mode, at the end of a run.
    std::string list() const;
    // What has ended the run.
    std::string cause() const;

private:
    std::string range(const put_record& put, address at, unsigned bytes) const;
    std::string range(address at, unsigned bytes, std::uint32_t rank) const;
    std::uint32_t unused_edge(std::uint32_t rank, std::uint32_t other, std::uint32_t epoch) const;
    std::string missing_edge(const put_record& put, std::uint32_t rank) const;
    std::string put_of(const put_record& put);
    std::string wait_of(std::uint32_t rank);
    std::string window_name(std::uint32_t window) const;
    bool is_new(const char* kind, std::uint32_t a, std::uint32_t b);
    void report(const std::string& text);

    std::string name(std::uint32_t tag) const { return name_of_tag(tag, m_.tags()); }

    memory m_;
    places& where_;
    std::set<std::tuple<std::string, std::uint32_t, std::uint32_t>> known_;
};

} // namespace dcuda::detail::check
