// SPDX-License-Identifier: BSD-3-Clause
// dCUDA's puts, notifications and waits in stream order: the host calls them and waits for nothing, and they can be
// captured in CUDA graphs. The puts and waits of a list are one kernel if they are small.
#include <exception>
#include <stdexcept>

#include "common/models/carrier.hpp"
#include "dcuda/stream.hpp"

namespace common {

namespace {

class stream_carrier final : public carrier {
public:
    explicit stream_carrier(const carrier_setting& given)
        : runtime_(*given.runtime), own_(given.all.index()), count_(given.all.count()), port_(runtime_, tags),
          window_(runtime_.create_window(given.area, given.area_bytes)) {}
    ~stream_carrier() override {
        if (std::uncaught_exceptions() == 0) runtime_.free_window(window_);
    }

    std::string name() const override { return "dCUDA's stream port"; }

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        dcuda::stream_batch all(port_);
        for (const message& one : messages)
            if (one.out_bytes > 0) all.put_notify(window_, one.peer, one.there, one.out, one.out_bytes, message_tag);
        for (const message& one : messages)
            if (one.in_bytes > 0) all.wait_from(one.peer, message_tag, 1);
        all.post(stream);
    }

    void meet(cudaStream_t stream) override {
        dcuda::stream_batch all(port_);
        for (int other = 0; other < count_; ++other)
            if (other != own_) all.notify(other, meeting_tag);
        for (int other = 0; other < count_; ++other)
            if (other != own_) all.wait_from(other, meeting_tag, 1);
        all.post(stream);
    }

private:
    static constexpr int message_tag = 0, meeting_tag = 1, tags = 2;

    dcuda::runtime& runtime_;
    int own_, count_;
    dcuda::stream_port port_;
    dcuda::window window_;
};

const carriers::entry made("stream", [](const carrier_setting& given) -> std::unique_ptr<carrier> {
    if (given.runtime == nullptr) throw std::runtime_error("streams need dCUDA's runtime, which this program has not");
    return std::make_unique<stream_carrier>(given);
});

} // namespace

} // namespace common
