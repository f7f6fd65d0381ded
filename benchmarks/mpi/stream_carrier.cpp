// SPDX-License-Identifier: BSD-3-Clause
// dCUDA's puts, notifications and waits in stream order, as a carrier: the host calls them and waits for nothing.
#include <stdexcept>

#include "dcuda/stream.hpp"
#include "mpi/ways.hpp"

namespace benchmark {

namespace {

class stream_carrier final : public common::carrier {
public:
    stream_carrier(dcuda::runtime& runtime, const common::carrier_setting& given)
        : runtime_(runtime), own_(given.all.index()), count_(given.all.count()), port_(runtime, tags),
          window_(runtime.create_window(given.area, given.area_bytes)) {}
    ~stream_carrier() override {
        if (std::uncaught_exceptions() == 0) runtime_.free_window(window_);
    }

    std::string name() const override { return "dCUDA's stream port"; }

    void bring(std::span<const common::message> messages, cudaStream_t stream) override {
        for (const common::message& one : messages)
            if (one.out_bytes > 0)
                port_.put_notify(window_, one.peer, one.there, one.out, one.out_bytes, message_tag, stream);
        for (const common::message& one : messages)
            if (one.in_bytes > 0) port_.wait_from(one.peer, message_tag, 1, stream);
    }

    void meet(cudaStream_t stream) override {
        for (int other = 0; other < count_; ++other)
            if (other != own_) port_.notify(other, meeting_tag, stream);
        for (int other = 0; other < count_; ++other)
            if (other != own_) port_.wait_from(other, meeting_tag, 1, stream);
    }

private:
    static constexpr int message_tag = 0, meeting_tag = 1, tags = 2;

    dcuda::runtime& runtime_;
    int own_, count_;
    dcuda::stream_port port_;
    dcuda::window window_;
};

} // namespace

std::unique_ptr<common::carrier> make_stream_carrier(dcuda::runtime& runtime, const common::carrier_setting& given) {
    if (!runtime.network().empty()) throw std::runtime_error("streams use peer access, and there is none");
    return std::make_unique<stream_carrier>(runtime, given);
}

} // namespace benchmark
