// SPDX-License-Identifier: BSD-3-Clause
#include "stream/port_sends.hpp"

#include "support/losses.hpp"

namespace dcuda {

port_sends::port_sends(int processes) {
    for (int process = 0; process < processes; ++process)
        for (auto* streams : {&sending_, &receiving_}) streams->emplace_back(cuda::stream::priority::highest);
}

request port_sends::prepare(transfer_direction direction, int process, const transfer& work) {
    if (!requests_.empty()) looked_at_ = (looked_at_ + 1) % requests_.size();
    if (requests_.empty() || requests_[looked_at_].use_count() > 1) {
        looked_at_ = requests_.size();
        requests_.push_back(std::make_shared<request::implementation>());
    }
    request made;
    made.implementation_ = requests_[looked_at_];
    made.implementation_->direction = direction;
    made.implementation_->process = process;
    made.implementation_->work = work;
    made.implementation_->is_posted = false;
    return made;
}

void port_sends::post(std::span<const request> requests, std::optional<cudaStream_t> stream) {
    for (const request& each : requests)
        support::require(each.implementation_ != nullptr, error_code::invalid_argument,
                         "stream_port: an empty request is posted");
    if (stream) begin_.record(*stream);
    for (const request& each : requests) {
        request::implementation& chosen = *each.implementation_;
        const cuda::stream& own = stream_of(chosen.direction, chosen.process);
        if (stream) own.wait_for(begin_);
        start(chosen, own);
    }
}

void port_sends::start(request::implementation& chosen, const cuda::stream& own) {
    cuda::check(chosen.direction == transfer_direction::send ? append_send(chosen.work, own.get())
                                                             : append_receive(chosen.work, own.get()),
                "posting a send or a receive");
    chosen.done.record(own.get());
    chosen.is_posted = true;
}

request::implementation& port_sends::posted(const request& chosen) {
    support::require(chosen.implementation_ != nullptr && chosen.implementation_->is_posted,
                     error_code::invalid_argument, "stream_port: a wait for a request that was not posted");
    return *chosen.implementation_;
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
