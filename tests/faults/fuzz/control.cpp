// SPDX-License-Identifier: BSD-3-Clause
// The control plane: handshakes, frames, what they hold, and the control server with a stranger and a
// member that send anything.
#include "bootstrap/control_server.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/rendezvous.hpp"
#include "dcuda/config.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "support/wire.hpp"
#include "target.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

namespace dcuda::fuzz {

using namespace bootstrap;

namespace {

std::pair<descriptor, descriptor> socket_pair() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    return {descriptor(ends[0]), descriptor(ends[1])};
}

// Sends it in pieces of growing size, and lets the other side respond after each. False: it is gone, or takes no more.
bool send_in_pieces(const descriptor& socket, std::string_view input, const std::function<void()>& respond) {
    for (std::size_t size = 1; !input.empty(); size = size * 3 + 1) {
        const std::string_view piece = input.substr(0, size);
        if (send(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
            static_cast<ssize_t>(piece.size()))
            return false;
        input.remove_prefix(piece.size());
        respond();
    }
    return true;
}

} // namespace

void frames(std::string_view input) {
    auto [other, ours] = socket_pair();
    channel from(std::move(ours));
    from.expect_payload(input.size() % 2 == 0 ? 1000
                                              : 100'000); // memory for more is taken as it comes, which costs time here
    send_in_pieces(other, input, [&] {
        from.read_available();
        while (auto frame = from.next())
            if (encode(*frame).size() > input.size()) std::abort(); // it is made of what has come
    });
}

void parts(std::string_view input) {
    try {
        const blob bytes(input);
        if (encode_parts(decode_parts(bytes)) != bytes) std::abort();
    } catch (const error&) {
    }
}

void records(std::string_view input) {
    // The kinds of reading that there are, in an order that the input chooses.
    support::wire_reader from(input);
    try {
        for (;;) {
            switch (from.get<unsigned char>() % 5) {
            case 0:
                from.get<bool>();
                break;
            case 1:
                from.get_text();
                break;
            case 2:
                from.get_vector<detail::wait_record>();
                break;
            case 3:
                from.get_vector<std::uint64_t>();
                break;
            default:
                from.get<detail::window_entry>();
            }
        }
    } catch (const error&) { // the end at the latest
    }
}

void authentication(std::string_view input) {
    static const auth_key key("00112233445566778899aabbccddeeff", 0);
    auto [other, ours] = socket_pair();
    handshake one(!input.empty() && input[0] % 2 == 0 ? handshake::side::server : handshake::side::process, key);
    one.advance(ours.get());
    const int end = ours.get();
    send_in_pieces(other, input, [&] {
        if (one.advance(end) == handshake::state::done) std::abort(); // without the key
    });
}

// A job of two processes on one host, with a stranger who does not know its key. The first half of the input is what he
// says before the job is complete, the other half what process 1 says afterwards. The job must meet all the same, and
// the control server must serve process 0 to its end.
void server_clients(std::string_view input) {
    static std::mt19937_64 random{std::random_device{}()};
    static unsigned number = 0;
    const std::string address = fmt::format("dcuda-fuzz-{}-{}", getpid(), ++number);
    const job who{0, 2, 0, 2, fmt::format("{}", random()), "fuzz"};
    auto [own, of_server] = socket_pair();
    control_server server(who, "fuzz", {listen_local(address)}, std::move(of_server),
                          {.connect = 20, .lost_after = 10, .silent_after = 0}, nullptr);
    const auto say_hello = [&](channel& process, int index) {
        process.send(frame{frame_type::hello, index, static_cast<std::uint64_t>(getpid()), 2, DCUDA_VERSION_STRING,
                           encode_parts({"fuzz", who.key, ""})});
    };
    const auto wait_for = [](channel& from, std::initializer_list<frame_type> wanted) {
        for (;;) {
            from.flush();
            from.read_available();
            while (auto frame = from.next())
                if (std::ranges::find(wanted, frame->type) != wanted.end()) return;
            if (from.closed()) std::abort(); // the control server has ended
            pollfd one{from.fd(), POLLIN, 0};
            if (poll(&one, 1, 20'000) == 0) std::abort(); // it hangs
        }
    };
    const std::string_view before = input.substr(0, input.size() / 2), after = input.substr(before.size());
    {
        const descriptor stranger = try_connect_local(address);
        send_in_pieces(stranger, before, [] {});
        channel zero(std::move(own)), one(try_connect_local(address));
        say_hello(zero, 0);
        say_hello(one, 1);
        wait_for(zero, {frame_type::welcome});
        wait_for(one, {frame_type::welcome});
        send(one.fd(), after.data(), after.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        shutdown(one.fd(), SHUT_WR);
        // Process 0 is told what became of process 1, or its message to itself comes back, as long as it has not ended
        // badly.
        zero.send(frame{frame_type::post, 0, 0, 0, {}, "a message"});
        wait_for(zero, {frame_type::message});
        zero.send(frame{frame_type::goodbye, 0});
    }
}

void launcher_store(std::string_view input) {
    auto [launcher, ours] = socket_pair();
    send(launcher.get(), input.data(), std::min<std::size_t>(input.size(), 100'000), MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(launcher.get(), SHUT_WR);
    setenv("PMI_FD", std::to_string(ours.get()).c_str(), 1);
    try {
        job who{1, 2, 0, 1, "key", "pmi"};
        const rendezvous found = find_rendezvous(who, 0, 5);
        if (found.address.empty() || found.secret.empty()) std::abort();
    } catch (const error&) {
    }
}

} // namespace dcuda::fuzz
