// SPDX-License-Identifier: BSD-3-Clause
#include "stream/port_sends.hpp"

#include "support/losses.hpp"

namespace dcuda {

port_sends::port_sends(int processes) {
    for (int process = 0; process < processes; ++process)
        for (auto* streams : {&sending_, &receiving_}) streams->emplace_back(cuda::stream::priority::highest);
}

request port_sends::prepare(int process, const transfer& work) {
    request made;
    made.implementation_ = unused();
    made.implementation_->process = process;
    made.implementation_->work = work;
    made.implementation_->owner = port_;
    made.implementation_->is_posted = false;
    return made;
}

// It looks at a few, and next time at others: so there are soon as many as the program has at a time.
std::shared_ptr<request::implementation> port_sends::unused() {
    for (int looks = 0; looks < 8 && !requests_.empty(); ++looks) {
        looked_at_ = (looked_at_ + 1) % requests_.size();
        if (requests_[looked_at_].use_count() == 1) return requests_[looked_at_];
    }
    requests_.push_back(std::make_shared<request::implementation>());
    return requests_.back();
}

request::implementation& port_sends::owned(const request& chosen) const {
    support::require(chosen.implementation_ != nullptr, error_code::invalid_argument, "stream_port: an empty request");
    const auto& owner = chosen.implementation_->owner;
    support::require(!owner.owner_before(port_) && !port_.owner_before(owner), error_code::invalid_argument,
                     "stream_port: a request of another port");
    return *chosen.implementation_;
}

void port_sends::post(std::span<const request> requests, std::optional<cudaStream_t> stream) {
    for (const request& each : requests) static_cast<void>(owned(each));
    const bool captures = stream && cuda::is_captured(*stream);
    if (stream) begin_.record(*stream);
    for (const request& each : requests) {
        request::implementation& chosen = *each.implementation_;
        const cuda::stream& own = stream_of(chosen);
        support::require(captures || !cuda::is_captured(own.get()), error_code::invalid_argument,
                         "stream_port: a send or a receive is posted outside while a graph is captured that has one "
                         "with the same process ({})",
                         chosen.process);
        if (stream) own.wait_for(begin_);
        start(chosen, own);
        chosen.is_captured = captures;
    }
}

void port_sends::start(request::implementation& chosen, const cuda::stream& own) {
    cuda::check(append_transfer(chosen.work, own.get()), "posting a send or a receive");
    chosen.done.record(own.get());
    chosen.is_posted = true;
}

const cuda::event& port_sends::awaited_by_stream(const request& chosen) const {
    const request::implementation& awaited = owned(chosen);
    support::require(awaited.is_posted, error_code::invalid_argument,
                     "stream_port: a wait for a request that was not posted");
    return awaited.done;
}

const cuda::event& port_sends::awaited_by_host(const request& chosen) const {
    const cuda::event& done = awaited_by_stream(chosen);
    support::require(!owned(chosen).is_captured, error_code::invalid_argument,
                     "stream_port: the host asks for a request that was posted in a graph: only a stream of that graph "
                     "can wait for it");
    return done;
}

void port_sends::tell_of_open(int own_process) const {
    const auto look = [&](const std::deque<cuda::stream>& streams, const char* subject) {
        for (std::size_t process = 0; process < streams.size(); ++process)
            if (cudaStreamQuery(streams[process].get()) == cudaErrorNotReady)
                support::tell(fmt::format("process {}: the stream port ends while a {} process {} is under way, and "
                                          "waits for it",
                                          own_process, subject, process));
    };
    look(sending_, "send to");
    look(receiving_, "receive from");
}

} // namespace dcuda
