// SPDX-License-Identifier: BSD-3-Clause
// What the two kinds of connections of the transport verbs share: reliable ones (verbs.cpp) and mlx5's dynamic ones
// (verbs_dc.cpp, with the option DCUDA_WITH_VERBS_DC).
#pragma once

#include "support/check.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <infiniband/verbs.h>
#include <memory>
#include <string>

namespace dcuda::transport::rdma {

template <auto Destroy>
struct destroyer {
    template <class Object>
    void operator()(Object* object) const {
        Destroy(object);
    }
};
template <class Object, auto Destroy>
using owned = std::unique_ptr<Object, destroyer<Destroy>>;

using owned_queue_pair = owned<ibv_qp, ibv_destroy_qp>;

// For calls that return an object or set errno.
template <class Object>
Object* check(Object* object, const char* subject) {
    if (object == nullptr)
        support::fail(error_code::no_path, "verbs: {}: {} (errno {})", subject, std::strerror(errno), errno);
    return object;
}

// For calls that return an errno.
inline void check(int number, const char* subject) {
    if (number != 0)
        support::fail(error_code::no_path, "verbs: {}: {} (errno {})", subject, std::strerror(number), number);
}

// An open device with the port that is used.
struct device {
    owned<ibv_context, ibv_close_device> context;
    std::string name; // "mlx5_0:1"
    std::uint8_t port;
    ibv_device_attr limits;
    ibv_port_attr attributes;
    std::uint8_t gid_index;
    ibv_gid gid;

    bool is_ethernet() const { return attributes.link_layer == IBV_LINK_LAYER_ETHERNET; }
};

// Where a process receives, as its invitation carries it.
struct address {
    enum class connection : std::uint32_t { reliable = 1, dynamic = 2 };
    connection kind;
    std::uint32_t queue_pair;
    std::uint32_t first_packet;
    std::uint32_t lid;
    std::uint64_t key; // of a dynamic connection
    ibv_gid gid;
    ibv_mtu mtu;
    std::uint32_t unused;
};

// The queue pairs of one kind.
class connections {
public:
    virtual ~connections() = default;
    virtual address invite(int peer) = 0;
    virtual void connect(int peer, const address& peer_address) = 0;
    // Posts one write through the send queue of this number; returns an errno.
    virtual int post(int queue, int peer, ibv_send_wr& write) = 0;
};

// What queue pairs are made with. All must live longer than the connections.
struct resources {
    const device& used;
    ibv_pd* domain;
    ibv_cq* completions;
    ibv_srq* receives;
    unsigned depth; // of a send queue
};

#if DCUDA_WITH_VERBS_DC
// Throws error(no_path) where there is no such thing.
std::unique_ptr<connections> open_dynamic_connections(const resources& shared, int queues);
#endif

// As rnr_retry: a receiver without free receives slows its senders down, no more. It is asked again after 0.32 ms.
constexpr std::uint8_t endless = 7;
constexpr std::uint8_t rnr_delay = 10;
// Without an answer the peer is lost after 7 times 4.096 us * 2^18, 7.5 s; devices may take longer. A count of 7 would
// be endless in soft-RoCE.
constexpr std::uint8_t retries = 6;
constexpr std::uint8_t retry_timeout = 18;

inline ibv_ah_attr path_to(const device& own, const address& peer) {
    ibv_ah_attr path{};
    path.port_num = own.port;
    path.dlid = static_cast<std::uint16_t>(peer.lid);
    path.is_global = own.is_ethernet() || own.gid.global.subnet_prefix != peer.gid.global.subnet_prefix ? 1 : 0;
    path.grh.dgid = peer.gid;
    path.grh.sgid_index = own.gid_index;
    path.grh.hop_limit = 64;
    return path;
}

inline void initialize(ibv_qp* pair, const device& used, bool receives) {
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_INIT;
    change.port_num = used.port;
    change.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    check(ibv_modify_qp(pair, &change,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (receives ? IBV_QP_ACCESS_FLAGS : 0)),
          "initializing a queue pair");
}

inline void make_ready_to_send(ibv_qp* pair, std::uint32_t first_packet) {
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_RTS;
    change.sq_psn = first_packet;
    change.timeout = retry_timeout;
    change.retry_cnt = retries;
    change.rnr_retry = endless;
    change.max_rd_atomic = 1;
    check(ibv_modify_qp(pair, &change,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_MAX_QP_RD_ATOMIC),
          "making a queue pair ready to send");
}

} // namespace dcuda::transport::rdma
