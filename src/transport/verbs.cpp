// SPDX-License-Identifier: BSD-3-Clause
// The network path over InfiniBand or RoCE, directly by libibverbs: every write is an RDMA write with immediate, over a
// reliable connection per peer or, if asked for, over mlx5's dynamic connections (verbs_dc.cpp).
#include "transport/verbs.hpp"

#include "support/env.hpp"
#include "transport/initiator_pool.hpp"
#include "transport/network.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <map>
#include <random>
#include <vector>

namespace dcuda::transport {

namespace rdma {

namespace {

// RoCE has a GID for each protocol version and address of the port: version 2 over IPv4 is what networks route.
std::uint8_t choose_gid(ibv_context* context, const std::string& name, int port, const ibv_port_attr& attributes) {
    if (const auto given = support::env_integer("DCUDA_VERBS_GID", 0, attributes.gid_tbl_len - 1))
        return static_cast<std::uint8_t>(*given);
    if (attributes.link_layer != IBV_LINK_LAYER_ETHERNET) return 0;
    int best = -1, best_rank = 0;
    for (int i = 0; i < std::min(attributes.gid_tbl_len, 256); i++) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(context, static_cast<std::uint32_t>(port), static_cast<std::uint32_t>(i), &entry, 0) != 0)
            continue;
        constexpr std::array<std::uint8_t, 12> ipv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        const bool is_ipv4 = std::equal(ipv4.begin(), ipv4.end(), entry.gid.raw);
        const int rank = entry.gid_type != IBV_GID_TYPE_ROCE_V2 ? 1 : is_ipv4 ? 3 : 2;
        if (rank > best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    support::require(best >= 0, error_code::no_path,
                     "verbs: the RoCE port {} has no GID: give its network interface an address", name);
    return static_cast<std::uint8_t>(best);
}

// The device and port that `wanted` names, as "mlx5_0" or "mlx5_0:1", or else the first active port.
device open_device(const std::string& wanted) {
    int count = 0;
    const owned<ibv_device*, ibv_free_device_list> list(ibv_get_device_list(&count));
    std::string seen;
    const auto reject = [&](const std::string& description) { seen += (seen.empty() ? "" : ", ") + description; };
    for (int i = 0; list != nullptr && i < count; i++) {
        ibv_device* const candidate = list.get()[i];
        const std::string name = ibv_get_device_name(candidate);
        if (candidate->transport_type != IBV_TRANSPORT_IB) { // iWARP has no immediates
            reject(name + " is neither");
            continue;
        }
        if (!wanted.empty() && wanted.substr(0, wanted.find(':')) != name) {
            reject(name);
            continue;
        }
        device opened{};
        opened.context.reset(ibv_open_device(candidate));
        if (opened.context == nullptr || ibv_query_device(opened.context.get(), &opened.limits) != 0) {
            reject(name + " does not open");
            continue;
        }
        for (int port = 1; port <= opened.limits.phys_port_cnt; port++) {
            opened.port = static_cast<std::uint8_t>(port);
            opened.name = fmt::format("{}:{}", name, port);
            const bool is_known = ibv_query_port(opened.context.get(), opened.port, &opened.attributes) == 0;
            if (!is_known || opened.attributes.state != IBV_PORT_ACTIVE) {
                reject(fmt::format("{} is {}", opened.name,
                                   is_known ? ibv_port_state_str(opened.attributes.state) : "not to be asked"));
                continue;
            }
            if (wanted.find(':') != std::string::npos && wanted != opened.name) {
                reject(opened.name);
                continue;
            }
            opened.gid_index = choose_gid(opened.context.get(), opened.name, port, opened.attributes);
            check(ibv_query_gid(opened.context.get(), opened.port, opened.gid_index, &opened.gid), "reading the GID");
            return opened;
        }
    }
    support::fail(error_code::no_path,
                  "no InfiniBand or RoCE device{}{} with an active port is here ({}): load the adapter's driver and "
                  "connect the port (`ibv_devinfo` shows what there is), name another one in DCUDA_VERBS_DEVICE, or "
                  "choose another transport",
                  wanted.empty() ? "" : " ", wanted, seen.empty() ? "libibverbs finds none" : seen);
}

class reliable_connections final : public connections {
public:
    explicit reliable_connections(const resources& shared) : resources_(shared) {}

    address invite(int peer) override {
        ibv_qp_init_attr init{};
        init.qp_type = IBV_QPT_RC;
        init.send_cq = init.recv_cq = resources_.completions;
        init.srq = resources_.receives;
        init.cap.max_send_wr = resources_.depth;
        init.cap.max_send_sge = 1;
        pair& made = pairs_[peer];
        made.queue.reset(check(ibv_create_qp(resources_.domain, &init), "making a queue pair"));
        made.first_packet = static_cast<std::uint32_t>(random_()) & 0xffffff;
        initialize(made.queue.get(), resources_.used, true);
        address own_address{};
        own_address.kind = address::connection::reliable;
        own_address.queue_pair = made.queue->qp_num;
        own_address.first_packet = made.first_packet;
        return own_address;
    }

    void connect(int peer, const address& peer_address) override {
        const pair& own = pairs_.at(peer);
        ibv_qp_attr change{};
        change.qp_state = IBV_QPS_RTR;
        change.path_mtu = std::min(resources_.used.attributes.active_mtu, peer_address.mtu);
        change.dest_qp_num = peer_address.queue_pair;
        change.rq_psn = peer_address.first_packet;
        change.max_dest_rd_atomic = 1;
        change.min_rnr_timer = rnr_delay;
        change.ah_attr = path_to(resources_.used, peer_address);
        check(ibv_modify_qp(own.queue.get(), &change,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "connecting a queue pair");
        make_ready_to_send(own.queue.get(), own.first_packet);
    }

    // The queue is a permission to use the peer's own.
    int post(int, int peer, ibv_send_wr& write) override {
        ibv_send_wr* refused = nullptr;
        return ibv_post_send(pairs_.at(peer).queue.get(), &write, &refused);
    }

private:
    struct pair {
        owned_queue_pair queue;
        std::uint32_t first_packet;
    };

    resources resources_;
    std::random_device random_;
    std::map<int, pair> pairs_;
};

} // namespace

} // namespace rdma

namespace {

bool wants_dynamic_connections() {
    const bool wanted = support::env_flag("DCUDA_VERBS_DC").value_or(false);
#if !DCUDA_WITH_VERBS_DC
    support::require(
        !wanted, error_code::no_path,
        "verbs: DCUDA_VERBS_DC=1 asks for dynamic connections, which this build does not have: build dCUDA with "
        "-DDCUDA_WITH_VERBS_DC=ON, or unset DCUDA_VERBS_DC to use reliable connections");
#endif
    return wanted;
}

class verbs final : public network {
public:
    explicit verbs(const network_request& request)
        : is_dynamic_(wants_dynamic_connections()), device_(rdma::open_device(wanted_device(request))) {
        // Completions must never be more than the queue holds: half of it for receives, half for writes in flight.
        const int entries = std::min(device_.limits.max_cqe, max_completions);
        const auto wanted = support::env_integer("DCUDA_VERBS_RECEIVES", 1, max_completions).value_or(max_completions);
        const int receives = std::min({device_.limits.max_srq_wr, entries / 2, static_cast<int>(wanted)});
        const unsigned depth = static_cast<unsigned>(std::min(device_.limits.max_qp_wr, max_depth));
        domain_.reset(rdma::check(ibv_alloc_pd(device_.context.get()), "allocating the protection domain"));
        completions_.reset(rdma::check(ibv_create_cq(device_.context.get(), entries, nullptr, nullptr, 0),
                                       "making the completion queue"));
        ibv_srq_init_attr init{};
        init.attr.max_wr = static_cast<std::uint32_t>(receives);
        init.attr.max_sge = 1;
        receives_.reset(rdma::check(ibv_create_srq(domain_.get(), &init), "making the queue of receives"));
        prepare_refill(std::max(1, receives / 8));
        for (int posted = 0; posted + static_cast<int>(refill_.size()) <= receives;
             posted += static_cast<int>(refill_.size()))
            refill();
        operations_.resize(static_cast<std::size_t>(entries - receives));
        for (operation& each : operations_) free_.push_back(&each);

        int queues = static_cast<int>(support::env_integer("DCUDA_VERBS_POOL", 0, 65536).value_or(0));
        if (queues == 0) queues = is_dynamic_ ? default_initiators : request.process_count;
        pool_.emplace(queues, request.process_count, depth);
        const rdma::resources shared{device_, domain_.get(), completions_.get(), receives_.get(), depth};
#if DCUDA_WITH_VERBS_DC
        if (is_dynamic_) connections_ = rdma::open_dynamic_connections(shared, queues);
#endif
        if (!is_dynamic_) connections_ = std::make_unique<rdma::reliable_connections>(shared);
        max_part_ = std::min<std::size_t>(device_.attributes.max_msg_sz, std::size_t{1} << 30);
    }

    std::string name() const override { return "verbs (" + device_.name + ")"; }

    std::string invite(int peer) override {
        rdma::address own_address = connections_->invite(peer);
        own_address.lid = device_.attributes.lid;
        own_address.gid = device_.gid;
        own_address.mtu = device_.attributes.active_mtu;
        own_kind_ = own_address.kind;
        return {reinterpret_cast<const char*>(&own_address), sizeof(own_address)};
    }

    void connect(int peer, std::string_view invitation) override {
        rdma::address peer_address{};
        support::require(invitation.size() == sizeof(peer_address), error_code::no_path,
                         "{}: the invitation of process {} has {} bytes, not {}", name(), peer, invitation.size(),
                         sizeof(peer_address));
        std::memcpy(&peer_address, invitation.data(), sizeof(peer_address));
        support::require(peer_address.kind == own_kind_, error_code::no_path,
                         "{}: process {} uses another kind of connections: set DCUDA_VERBS_DC alike everywhere", name(),
                         peer);
        connections_->connect(peer, peer_address);
    }

    remote_memory expose(void* base, std::size_t bytes, std::uint32_t) override {
        // Never IBV_ACCESS_RELAXED_ORDERING: the immediate could then overtake the data of its own write.
        const ibv_mr* const region = add_memory(base, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        return {reinterpret_cast<std::uintptr_t>(base), region->rkey};
    }

    void add_source(const void* base, std::size_t bytes) override {
        sources_.push_back(add_memory(const_cast<void*>(base), bytes, 0));
    }

    bool write(int peer, const remote_memory& region, std::size_t offset, const void* source, std::size_t bytes,
               std::uint32_t number, std::uint64_t token) override {
        // What exceeds the port's largest message precedes the write with the number, which comes last: the writes of
        // one connection are placed in order.
        const std::size_t parts = (bytes + max_part_ - 1) / max_part_;
        support::require(parts <= pool_->depth(), error_code::invalid_argument,
                         "{}: a write of {} bytes is too large; at most {}", name(), bytes, pool_->depth() * max_part_);
        if (free_.empty()) return false;
        const std::optional<int> queue = pool_->take(peer, static_cast<unsigned>(parts));
        if (!queue) return false;
        operation* const running = free_.back();
        free_.pop_back();
        *running = {token, peer, *queue, static_cast<unsigned>(parts)};

        // Not inline, however small: the source may be memory that only the device can read.
        ibv_sge piece{};
        piece.lkey = key_of(source, bytes);
        ibv_send_wr work{};
        work.wr_id = static_cast<std::uint64_t>(running - operations_.data());
        work.sg_list = &piece;
        work.num_sge = 1;
        work.wr.rdma.rkey = static_cast<std::uint32_t>(region.key);
        for (std::size_t done = 0; done < bytes; done += piece.length) {
            const bool is_last = bytes - done <= max_part_;
            piece.addr = reinterpret_cast<std::uintptr_t>(source) + done;
            piece.length = static_cast<std::uint32_t>(std::min(bytes - done, max_part_));
            work.wr.rdma.remote_addr = region.address + offset + done;
            work.opcode = is_last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
            work.send_flags = is_last ? IBV_SEND_SIGNALED : 0;
            if (is_last) work.imm_data = htonl(number);
            const int problem = connections_->post(*queue, peer, work);
            support::require(problem == 0, error_code::process_lost, "{}: cannot write to process {}: {}", name(), peer,
                             std::strerror(problem));
        }
        return true;
    }

    bool poll(network_event& event) override {
        if (next_ == count_) {
            const int got = ibv_poll_cq(completions_.get(), poll_batch, entries_.data());
            support::require(got >= 0, error_code::process_lost, "{}: cannot read the completion queue", name());
            next_ = 0;
            count_ = static_cast<std::size_t>(got);
            if (got == 0) return false;
        }
        const ibv_wc& entry = entries_[next_++];
        if (entry.status != IBV_WC_SUCCESS) report(entry);
        if (entry.wr_id == receive_id) {
            if (++used_receives_ == refill_.size()) refill();
            event = {network_event::kind::arrived, ntohl(entry.imm_data)};
            return true;
        }
        operation& done = operations_[entry.wr_id];
        pool_->complete(done.queue, done.parts);
        free_.push_back(&done);
        event = {network_event::kind::sent, done.token};
        return true;
    }

private:
    // A write in flight.
    struct operation {
        std::uint64_t token;
        int peer;
        int queue;
        unsigned parts;
    };

    static constexpr int max_completions = 8192;
    static constexpr int max_depth = 256; // writes in flight through one queue
    static constexpr int default_initiators = 8;
    static constexpr int poll_batch = 16;
    static constexpr std::uint64_t receive_id = ~std::uint64_t{0};

    static std::string wanted_device(const network_request& request) {
        if (!request.provider.empty()) return request.provider;
        return support::env_string("DCUDA_VERBS_DEVICE").value_or("");
    }

    ibv_mr* add_memory(void* base, std::size_t bytes, unsigned access) {
        ibv_mr* const region = ibv_reg_mr(domain_.get(), base, bytes, access);
        support::require(region != nullptr, error_code::out_of_resources,
                         "{}: cannot register {} bytes of memory: {}; `ulimit -l` must allow as much locked memory",
                         name(), bytes, std::strerror(errno));
        regions_.emplace_back(region);
        return region;
    }

    std::uint32_t key_of(const void* source, std::size_t bytes) const {
        const auto* const begin = static_cast<const std::byte*>(source);
        for (const ibv_mr* region : sources_) {
            const auto* const base = static_cast<const std::byte*>(region->addr);
            if (base <= begin && begin + bytes <= base + region->length) return region->lkey;
        }
        support::fail(error_code::invalid_argument, "{}: a write comes from memory that was not announced", name());
    }

    // Immediates need no memory: all receives are alike.
    void prepare_refill(int batch) {
        refill_.resize(static_cast<std::size_t>(batch));
        for (std::size_t i = 0; i < refill_.size(); i++) {
            refill_[i].wr_id = receive_id;
            refill_[i].next = i + 1 < refill_.size() ? &refill_[i + 1] : nullptr;
        }
    }

    void refill() {
        ibv_recv_wr* refused = nullptr;
        rdma::check(ibv_post_srq_recv(receives_.get(), refill_.data(), &refused), "posting receives");
        used_receives_ = 0;
    }

    [[noreturn]] void report(const ibv_wc& entry) const {
        const std::string cause = fmt::format("{} (status {}, vendor's code {})", ibv_wc_status_str(entry.status),
                                              static_cast<int>(entry.status), entry.vendor_err);
        if (entry.wr_id == receive_id) support::fail(error_code::process_lost, "{}: cannot receive: {}", name(), cause);
        support::fail(error_code::process_lost, "{}: a write to process {} failed: {}", name(),
                      operations_[entry.wr_id].peer, cause);
    }

    bool is_dynamic_;
    // Destroyed from the last to the first.
    rdma::device device_;
    rdma::owned<ibv_pd, ibv_dealloc_pd> domain_;
    rdma::owned<ibv_cq, ibv_destroy_cq> completions_;
    rdma::owned<ibv_srq, ibv_destroy_srq> receives_;
    std::vector<rdma::owned<ibv_mr, ibv_dereg_mr>> regions_;
    std::unique_ptr<rdma::connections> connections_;
    rdma::address::connection own_kind_{};
    std::optional<initiator_pool> pool_;
    std::size_t max_part_ = 0;
    std::vector<const ibv_mr*> sources_;
    std::vector<operation> operations_;
    std::vector<operation*> free_;
    std::vector<ibv_recv_wr> refill_;
    std::size_t used_receives_ = 0;
    std::array<ibv_wc, poll_batch> entries_{};
    std::size_t next_ = 0, count_ = 0;
};

} // namespace

} // namespace dcuda::transport

DCUDA_EXPORT_NETWORK(dcuda::transport::verbs)
