// SPDX-License-Identifier: BSD-3-Clause
#include "agent.hpp"

#include "channel.hpp"
#include "listener.hpp"
#include "local_host.hpp"

#include <csignal>
#include <cstdlib>
#include <dcuda/config.hpp>
#include <fmt/format.h>
#include <unistd.h>

namespace launch {

namespace {

// Output that the other side has not asked for stays here, so that messages never wait behind it.
constexpr long output_ahead_bytes = 1 << 20;

class agent final : public host_events {
public:
    int run() {
        channel_.send({"hello", DCUDA_VERSION_STRING, std::to_string(host_.gpus())});
        while (!over_) step();
        children_.end();
        if (!finishing_) return EXIT_FAILURE;
        channel_.send({"done"});
        while (!channel_.sent() && !channel_.closed() && !channel_.silent()) {
            channel_.watch(loop_);
            loop_.wait();
        }
        return EXIT_SUCCESS;
    }

private:
    void step() {
        loop_.watch(signals_.fd(), POLLIN, [](short) {});
        channel_.watch(loop_);
        host_.watch(loop_);
        loop_.wait();
        while (const int signal = signals_.next()) {
            if (signal == SIGCHLD) {
                for (auto [pid, status] : children_.reap()) host_.child_ended(pid, status);
            } else if (signal == SIGHUP || signal == SIGINT || signal == SIGTERM || signal == SIGQUIT) {
                over_ = true;
            }
        }
        while (auto arrived = channel_.next()) {
            paused_ = false;
            handle(*arrived);
        }
        if (channel_.closed() || (channel_.silent() && !paused_)) over_ = true;
        if (finishing_ && host_.reached() == host::phase::finished) over_ = true;
    }

    void handle(const message& received) {
        fields rest(received);
        const std::string& kind = received[0];
        if (kind == "prepare") return attempt([&] { prepare(rest); });
        if (kind == "start") return attempt([&] { start(rest.text()); });
        if (kind == "signal") {
            const auto signal = static_cast<int>(rest.number());
            paused_ = signal == SIGTSTP; // dcuda-run stops, too
            host_.signal_all(signal);
        } else if (kind == "input") {
            host_.input(rest.text());
        } else if (kind == "more output") {
            output_credit_ += rest.number();
        } else if (kind == "close output") {
            host_.close_output(static_cast<int>(rest.number()));
        } else if (kind == "finish" && !finishing_) {
            finishing_ = true;
            host_.finish();
        }
    }

    template <typename Action>
    void attempt(Action action) {
        try {
            action();
        } catch (const start_error& problem) {
            channel_.send({"failed", std::to_string(problem.exit_code), problem.what()});
        }
    }

    void prepare(fields& arguments) {
        job_share share;
        const std::string name = arguments.text(), directory = arguments.text();
        for (const auto& variable : arguments.list()) {
            const auto equal = variable.find('=');
            setenv(variable.substr(0, equal).c_str(), variable.c_str() + equal + 1, 1);
        }
        share.first = static_cast<int>(arguments.number());
        share.count = static_cast<int>(arguments.number());
        share.total = static_cast<int>(arguments.number());
        share.key = arguments.text();
        share.environment = arguments.list();
        share.command = arguments.list();
        share.listens = arguments.number() != 0;
        share.interface = arguments.text();

        if (chdir(directory.c_str()) != 0) fail_errno("cannot change to the working directory " + directory);
        try {
            host_.prepare(share);
        } catch (const start_error& problem) {
            throw start_error(problem.exit_code, fmt::format("{} (in {})", problem.what(), directory));
        }
        std::string address;
        if (share.listens) {
            auto listener = listen_for_others(name, share.interface);
            host_.listen_with(std::move(listener.socket));
            address = listener.address;
        }
        channel_.send({"ready", address});
    }

    void start(const std::string& rendezvous) {
        host_.start(rendezvous);
        channel_.send({"started"});
    }

    void output(int index, int stream, std::string_view text) override {
        output_credit_ -= static_cast<long>(text.size());
        channel_.send({"output", std::to_string(index), std::to_string(stream), std::string(text)});
    }
    bool takes_output(int) const override { return output_credit_ > 0; }
    void input_taken() override { channel_.send({"input taken"}); }
    void input_refused() override { channel_.send({"input refused"}); }
    void ended(int index, pid_t pid, int status) override {
        channel_.send({"ended", std::to_string(index), std::to_string(pid), std::to_string(status)});
    }
    void blamed(int speaker, int culprit) override {
        channel_.send({"blamed", std::to_string(speaker), std::to_string(culprit)});
    }
    void say(const std::string&) override {}
    void lost(const host&, int, const std::string&) override {}

    event_loop loop_;
    signal_reader signals_;
    children children_{signals_};
    channel channel_{STDIN_FILENO, STDOUT_FILENO, true};
    local_host host_{{.pipe_output = true, .pipe_input = true, .output_folder = {}}, children_, *this};
    long output_credit_ = output_ahead_bytes;
    bool paused_ = false; // nothing is heard of the other side, rightly
    bool finishing_ = false;
    bool over_ = false;
};

} // namespace

int run_agent() { return agent().run(); }

} // namespace launch
