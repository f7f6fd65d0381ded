// SPDX-License-Identifier: BSD-3-Clause
// Dynamically connected transport (DC) of mlx5 devices: one target that all processes write to, and a few initiators
// that connect to another target for each write that asks for it. A process with thousands of peers needs no more.
//
// Written after the manual pages of mlx5dv and compiled; NOT RUN: no device of the developers has DC, and soft-RoCE
// does not emulate it. It is built only with the option DCUDA_WITH_VERBS_DC, and used only where DCUDA_VERBS_DC=1 asks
// for it.
#include "transport/verbs.hpp"

#include <infiniband/mlx5dv.h>
#include <map>
#include <random>
#include <vector>

namespace dcuda::transport::rdma {

namespace {

constexpr const char* cure = "unset DCUDA_VERBS_DC to use reliable connections";

class dynamic_connections final : public connections {
public:
    dynamic_connections(const resources& shared, int queues) : resources_(shared), key_(std::random_device()()) {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        init.pd = shared.domain;
        init.send_cq = init.recv_cq = shared.completions;
        init.srq = shared.receives;
        mlx5dv_qp_init_attr kind{};
        kind.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        kind.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
        kind.dc_init_attr.dct_access_key = key_;
        target_ = create(init, kind);
        initialize(target_.get(), shared.used, true);
        ibv_qp_attr ready = ready_to_receive();
        ready.min_rnr_timer = rnr_delay;
        ready.ah_attr.is_global = shared.used.is_ethernet() ? 1 : 0;
        ready.ah_attr.grh.sgid_index = shared.used.gid_index;
        ready.ah_attr.grh.hop_limit = 64;
        check(ibv_modify_qp(target_.get(), &ready, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER),
              "making the dynamic target ready");
        for (int i = 0; i < queues; i++) add_initiator();
    }

    address invite(int) override {
        address own_address{};
        own_address.kind = address::connection::dynamic;
        own_address.queue_pair = target_->qp_num; // known since the target is ready
        own_address.key = key_;
        return own_address;
    }

    void connect(int peer, const address& peer_address) override {
        ibv_ah_attr path = path_to(resources_.used, peer_address);
        peers_[peer] = {owned<ibv_ah, ibv_destroy_ah>(
                            check(ibv_create_ah(resources_.domain, &path), "making the path to a process")),
                        peer_address.queue_pair, peer_address.key};
    }

    // A queue comes here with another peer only when nothing is in flight in it (initiator_pool), so its connection to
    // the last peer has nothing to lose.
    int post(int queue, int peer, ibv_send_wr& write) override {
        const initiator& sender = initiators_[static_cast<std::size_t>(queue)];
        const target& destination = peers_.at(peer);
        ibv_qp_ex* const pair = sender.extended;
        ibv_wr_start(pair);
        pair->wr_id = write.wr_id;
        pair->wr_flags = write.send_flags;
        if (write.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
            ibv_wr_rdma_write_imm(pair, write.wr.rdma.rkey, write.wr.rdma.remote_addr, write.imm_data);
        else
            ibv_wr_rdma_write(pair, write.wr.rdma.rkey, write.wr.rdma.remote_addr);
        mlx5dv_wr_set_dc_addr(sender.mlx5, destination.path.get(), destination.number, destination.key);
        ibv_wr_set_sge(pair, write.sg_list->lkey, write.sg_list->addr, write.sg_list->length);
        return ibv_wr_complete(pair);
    }

private:
    struct initiator {
        owned_queue_pair pair;
        ibv_qp_ex* extended;
        mlx5dv_qp_ex* mlx5;
    };
    struct target {
        owned<ibv_ah, ibv_destroy_ah> path;
        std::uint32_t number;
        std::uint64_t key;
    };

    owned_queue_pair create(ibv_qp_init_attr_ex& init, mlx5dv_qp_init_attr& kind) {
        ibv_qp* const pair = mlx5dv_create_qp(resources_.used.context.get(), &init, &kind);
        support::require(pair != nullptr, error_code::no_path,
                         "verbs: {} makes no dynamically connected queue pairs ({}); {}", resources_.used.name,
                         std::strerror(errno), cure);
        return owned_queue_pair(pair);
    }

    ibv_qp_attr ready_to_receive() const {
        ibv_qp_attr change{};
        change.qp_state = IBV_QPS_RTR;
        change.path_mtu = resources_.used.attributes.active_mtu;
        change.ah_attr.port_num = resources_.used.port;
        return change;
    }

    void add_initiator() {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
        init.pd = resources_.domain;
        init.send_cq = init.recv_cq = resources_.completions;
        init.cap.max_send_wr = resources_.depth;
        init.cap.max_send_sge = 1;
        mlx5dv_qp_init_attr kind{};
        kind.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        kind.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
        owned_queue_pair pair = create(init, kind);
        initialize(pair.get(), resources_.used, false);
        ibv_qp_attr ready = ready_to_receive();
        check(ibv_modify_qp(pair.get(), &ready, IBV_QP_STATE | IBV_QP_PATH_MTU), "making a dynamic initiator ready");
        make_ready_to_send(pair.get(), 0);
        ibv_qp_ex* const extended = ibv_qp_to_qp_ex(pair.get());
        initiators_.push_back({std::move(pair), extended, mlx5dv_qp_ex_from_ibv_qp_ex(extended)});
    }

    resources resources_;
    std::uint64_t key_;
    std::map<int, target> peers_;
    owned_queue_pair target_;
    std::vector<initiator> initiators_;
};

} // namespace

std::unique_ptr<connections> open_dynamic_connections(const resources& shared, int queues) {
    support::require(mlx5dv_is_supported(shared.used.context->device), error_code::no_path,
                     "verbs: {} has no dynamically connected transport, which mlx5 devices have; {}", shared.used.name,
                     cure);
    return std::make_unique<dynamic_connections>(shared, queues);
}

} // namespace dcuda::transport::rdma
