// SPDX-License-Identifier: BSD-3-Clause
// Which peer's writes go through which of a bounded number of send queues.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace dcuda::transport {

// A peer keeps the queue of its last write until another peer needs it, and a queue changes its peer only when nothing
// is in flight in it. When peers wait, a queue takes `depth` entries for its peer, runs empty and goes to the one that
// has waited longest: so all peers that keep asking get their turn.
class initiator_pool {
public:
    initiator_pool(int queues, int peers, unsigned depth)
        : depth_(depth), queues_(static_cast<std::size_t>(queues)), queue_of_(static_cast<std::size_t>(peers), none),
          waits_(static_cast<std::size_t>(peers), false) {}

    unsigned depth() const { return depth_; }

    // The queue with room for `entries` (at most depth()) of this peer, which are now in flight. Nothing: not now.
    std::optional<int> take(int peer, unsigned entries) {
        int& own = queue_of_[index(peer)];
        if (own == none && !bind_idle(peer)) return std::nullopt;
        queue& current = queues_[index(own)];
        if (current.in_flight + entries > depth_) return std::nullopt;
        if (!waiting_.empty() && current.taken >= depth_) return std::nullopt; // its turn is over
        current.in_flight += entries;
        current.taken += entries;
        return own;
    }

    // The oldest `entries` in flight in this queue are complete.
    void complete(int number, unsigned entries) {
        queue& current = queues_[index(number)];
        current.in_flight -= entries;
        if (current.in_flight > 0 || waiting_.empty()) return;
        bind(number, waiting_.front());
        current.patience = patience;
    }

private:
    static constexpr int none = -1;
    // How often others must ask for a queue before the peer that it was kept for is held to have given up.
    static constexpr int patience = 100;

    struct queue {
        int peer = none;
        unsigned in_flight = 0;
        unsigned taken = 0; // since it has this peer
        int patience = 0;   // while this peer has not used it
    };

    static std::size_t index(int number) { return static_cast<std::size_t>(number); }

    void bind(int number, int peer) {
        queue& current = queues_[index(number)];
        if (current.peer != none) queue_of_[index(current.peer)] = none;
        current = queue{peer};
        queue_of_[index(peer)] = number;
        if (waits_[index(peer)]) std::erase(waiting_, peer);
        waits_[index(peer)] = false;
    }

    bool bind_idle(int peer) {
        for (std::size_t tried = 0; tried < queues_.size(); tried++) {
            const std::size_t number = next_++ % queues_.size(); // in turn: the last peer may come back
            queue& current = queues_[number];
            if (current.in_flight > 0) continue;
            if (current.taken == 0 && current.patience-- > 0) continue;
            bind(static_cast<int>(number), peer);
            return true;
        }
        if (!waits_[index(peer)]) waiting_.push_back(peer);
        waits_[index(peer)] = true;
        return false;
    }

    unsigned depth_;
    std::vector<queue> queues_;
    std::vector<int> queue_of_; // by peer
    std::vector<bool> waits_;   // by peer: it is in `waiting_`
    std::deque<int> waiting_;
    std::size_t next_ = 0;
};

} // namespace dcuda::transport
