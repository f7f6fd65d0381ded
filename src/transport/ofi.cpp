// SPDX-License-Identifier: BSD-3-Clause
// The network path over libfabric (OpenFabrics Interfaces): writes with remote completion data, fi_writedata, over the
// provider that the machine has: tcp and shm anywhere, verbs, efa, cxi on clusters.
#include "support/check.hpp"
#include "support/losses.hpp"
#include "transport/network.hpp"
#include "transport/shm_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace dcuda::transport {

namespace {

template <class Object>
struct closer {
    void operator()(Object* object) const { fi_close(&object->fid); }
};
template <class Object>
using owned = std::unique_ptr<Object, closer<Object>>;

struct info_deleter {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using owned_info = std::unique_ptr<fi_info, info_deleter>;

constexpr std::uint32_t api_version = FI_VERSION(1, 11);
constexpr std::size_t poll_batch = 16;
constexpr const char* loopback = "127.0.0.1";

void check(long result, const char* subject) {
    support::require(result >= 0, error_code::no_path, "libfabric: {}: {}", subject,
                     fi_strerror(static_cast<int>(-result)));
}

class ofi final : public network {
public:
    explicit ofi(const network_request& request) : lost_after_(request.lost_after) {
        const support::file_limit_as_error instead_of_signal; // shm makes a file
        find_provider(request);
        fid_fabric* fabric = nullptr;
        check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "opening the fabric");
        fabric_.reset(fabric);
        fid_domain* domain = nullptr;
        check(fi_domain(fabric, info_.get(), &domain, nullptr), "opening the domain");
        domain_.reset(domain);
        fi_cq_attr queue{};
        queue.format = FI_CQ_FORMAT_DATA;
        queue.wait_obj = FI_WAIT_NONE;
        fid_cq* completions = nullptr;
        check(fi_cq_open(domain, &queue, &completions, nullptr), "opening the completion queue");
        completions_.reset(completions);
        fi_av_attr addresses{};
        addresses.type = FI_AV_TABLE;
        fid_av* table = nullptr;
        check(fi_av_open(domain, &addresses, &table, nullptr), "opening the table of addresses");
        table_.reset(table);
        fid_ep* endpoint = nullptr;
        check(fi_endpoint(domain, info_.get(), &endpoint, nullptr), "opening the endpoint");
        endpoint_.reset(endpoint);
        check(fi_ep_bind(endpoint, &table->fid, 0), "binding the table of addresses");
        check(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "binding the completion queue");
        if (info_->fabric_attr->prov_name == std::string_view("shm")) choose_name();
        check(fi_enable(endpoint), "enabling the endpoint");
    }

    std::string name() const override { return std::string("ofi (") + info_->fabric_attr->prov_name + ")"; }

    std::string invite(int) override {
        std::string address(256, '\0');
        std::size_t bytes = address.size();
        check(fi_getname(&endpoint_->fid, address.data(), &bytes), "asking for the own address");
        address.resize(bytes);
        return address;
    }

    void connect(int peer, std::string_view invitation) override {
        const std::string address(invitation);
        fi_addr_t handle = FI_ADDR_UNSPEC;
        support::require(fi_av_insert(table_.get(), address.data(), 1, &handle, 0, nullptr) == 1, error_code::no_path,
                         "libfabric: {} does not take the address of process {}", name(), peer);
        peers_[peer] = handle;
    }

    remote_memory expose(void* base, std::size_t bytes, std::uint32_t) override {
        fid_mr* const region = add_memory(base, bytes, FI_REMOTE_WRITE | FI_WRITE);
        const bool is_virtual = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
        return {is_virtual ? reinterpret_cast<std::uintptr_t>(base) : 0, fi_mr_key(region)};
    }

    void add_source(const void* base, std::size_t bytes) override {
        if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return;
        sources_[static_cast<const std::byte*>(base)] = {
            bytes, fi_mr_desc(add_memory(const_cast<void*>(base), bytes, FI_WRITE))};
    }

    bool write(int peer, const remote_memory& region, std::size_t offset, const void* source, std::size_t bytes,
               std::uint32_t number, std::uint64_t token) override {
        const fi_addr_t destination = peers_.at(peer);
        const std::uint64_t target = region.address + offset;
        if (bytes <= info_->tx_attr->inject_size) {
            const auto result =
                fi_inject_writedata(endpoint_.get(), source, bytes, number, destination, target, region.key);
            if (!is_taken(result, peer)) return false;
            sent_.push_back(token); // its source may change at once
            return true;
        }
        operation* const context = take_operation();
        context->peer = peer;
        context->token = token;
        const auto result = fi_writedata(endpoint_.get(), source, bytes, descriptor_of(source), number, destination,
                                         target, region.key, &context->library);
        const bool taken = is_taken(result, peer);
        if (!taken) free_.push_back(context);
        return taken;
    }

    bool poll(network_event& event) override {
        if (!sent_.empty()) {
            event = {network_event::kind::sent, sent_.front()};
            sent_.pop_front();
            return true;
        }
        while (next_ == count_) {
            const auto got = fi_cq_read(completions_.get(), entries_.data(), entries_.size());
            if (got == -FI_EAGAIN) return false;
            if (got == -FI_EAVAIL) report_error();
            support::require(got >= 0, error_code::process_lost, "{}: cannot read the completion queue: {}", name(),
                             fi_strerror(static_cast<int>(-got)));
            next_ = 0;
            count_ = static_cast<std::size_t>(got);
        }
        const fi_cq_data_entry& entry = entries_[next_++];
        // Some providers (sockets) also mark our own writes as having data.
        if ((entry.flags & (FI_REMOTE_CQ_DATA | FI_WRITE)) == FI_REMOTE_CQ_DATA) {
            event = {network_event::kind::arrived, entry.data};
            return true;
        }
        auto* const context = reinterpret_cast<operation*>(entry.op_context);
        event = {network_event::kind::sent, context->token};
        free_.push_back(context);
        return true;
    }

private:
    // libfabric names a process's shared memory after its number alone. One that was killed leaves its memory behind,
    // and a later process with the same number would find it: "Device or resource busy". What such processes have left
    // is removed here, since nobody is there to do it when they end.
    void choose_name() {
        remove_shm_leftovers();
        const std::string name = "fi_shm://" + choose_shm_name();
        const int result = fi_setname(&endpoint_->fid, const_cast<char*>(name.c_str()), name.size() + 1);
        if (result != -FI_ENOSYS) check(result, "naming the endpoint");
    }

    // What the library keeps of a write, and what we do.
    struct operation {
        fi_context2 library; // first: the completion has its address
        int peer;
        std::uint64_t token;
    };
    struct source_memory {
        std::size_t bytes;
        void* descriptor;
    };

    // The provider that writes with remote completion data: the first of that name, or of any; on the interface with
    // that address, or on any.
    owned_info list(const std::string& provider, const std::string& address, int memory_modes, bool is_far,
                    int* problem = nullptr) {
        const owned_info hints(fi_allocinfo());
        support::require(hints != nullptr, error_code::out_of_resources, "libfabric: no memory");
        hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = memory_modes;
        hints->domain_attr->threading = FI_THREAD_DOMAIN;
        hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
        hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
        hints->domain_attr->cq_data_size = sizeof(std::uint32_t);
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        if (!provider.empty()) hints->fabric_attr->prov_name = strdup(provider.c_str());
        fi_info* first = nullptr;
        const int result = fi_getinfo(api_version, address.empty() ? nullptr : address.c_str(), nullptr,
                                      address.empty() ? 0 : FI_SOURCE, hints.get(), &first);
        if (problem != nullptr) *problem = result;
        if (result != 0) return nullptr;
        const owned_info all(first);
        for (const fi_info* each = first; each != nullptr; each = each->next)
            if (!is_far || !std::string_view(each->fabric_attr->prov_name).starts_with("shm"))
                return owned_info(fi_dupinfo(each));
        return nullptr;
    }

    void find_provider(const network_request& request) {
        // Debian's build waits 20 s for PSM hardware that is not there; sockets loses what arrives at a slow target;
        // cxi has no writes with completion data, though it says so (libfabric 2.1).
        const bool has_psm = access("/dev/hfi1_0", F_OK) == 0 || access("/dev/ipath", F_OK) == 0;
        setenv("FI_PROVIDER", has_psm ? "^sockets,cxi" : "^psm,psm2,sockets,cxi", 0);
        // Buffers for messages, of which we send none: with 16 KiB each, the default, 80 MiB per process.
        setenv("FI_OFI_RXM_BUFFER_SIZE", "1024", 0);
        constexpr int modes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
        const bool is_far = !request.local_address.empty();
        int problem = 0;
        // Without an address, which adapters such as EFA do not have.
        info_ = list(request.provider, "", modes, is_far, &problem);
        support::require(
            info_ != nullptr, error_code::no_path,
            "libfabric has no provider{}{} that writes with remote completion data here ({}); `fi_info` lists "
            "what there is",
            request.provider.empty() ? "" : " ", request.provider, fi_strerror(-problem));
        const auto choose = [&](const std::string& provider, const std::string& source_address, int memory_modes) {
            owned_info found = list(provider, source_address, memory_modes, is_far);
            if (found == nullptr) return false;
            info_ = std::move(found);
            return true;
        };
        // Whoever reaches the port may connect, so it is where only this host's processes reach it if these are all.
        const auto address_of = [&](const std::string& provider) {
            return !uses_sockets(provider) ? "" : is_far ? request.local_address : loopback;
        };
        std::string chosen = info_->fabric_attr->prov_name;
        // tcp under rxm follows a null pointer when a connection ends in the middle of a write with completion data
        // (rxm_handle_comp_error, seen in 1.17). From 1.18 on tcp needs no rxm; until then that provider is called net.
        if (chosen == "tcp;ofi_rxm" && choose("net", address_of("net"), modes)) chosen = info_->fabric_attr->prov_name;
        const std::string address = address_of(chosen);
        support::require(address.empty() || choose(chosen, address, modes) || !is_far, error_code::no_path,
                         "libfabric: the provider {} has no interface with the address {}, where the other hosts reach "
                         "this one",
                         chosen, address);
        // Keys of the provider's own choice count from 1, or are what a device says: ours are better.
        choose(chosen, address, modes & ~FI_MR_PROV_KEY);
        info_->tx_attr->op_flags = 0;
    }

    // The providers that listen at a port of the operating system.
    static bool uses_sockets(std::string_view provider) {
        return std::ranges::any_of(std::array<std::string_view, 4>{"tcp", "net", "udp", "sockets"},
                                   [&](std::string_view name) { return provider.starts_with(name); });
    }

    // A write that comes with a memory's key is made, wherever it comes from: a key must be secret. The peers
    // learn ours over the control plane.
    std::uint64_t make_key() const {
        std::uint64_t key = 0;
        support::check_errno(getentropy(&key, sizeof key), "libfabric: no random number for a key of memory");
        const std::size_t bytes = info_->domain_attr->mr_key_size;
        return bytes < sizeof key ? key & ((std::uint64_t{1} << 8 * bytes) - 1) : key;
    }

    fid_mr* add_memory(void* base, std::size_t bytes, std::uint64_t access) {
        const bool key_is_ours = (info_->domain_attr->mr_mode & FI_MR_PROV_KEY) == 0;
        fid_mr* region = nullptr;
        int result = 0;
        do // a key may be in use, where they have few bytes
            result =
                fi_mr_reg(domain_.get(), base, bytes, access, 0, key_is_ours ? make_key() : 0, 0, &region, nullptr);
        while (result == -FI_ENOKEY && key_is_ours);
        check(result, "registering memory");
        regions_.emplace_back(region);
        if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
            check(fi_mr_bind(region, &endpoint_->fid, 0), "binding memory to the endpoint");
            check(fi_mr_enable(region), "enabling memory");
        }
        return region;
    }

    void* descriptor_of(const void* source) const {
        const auto* const address = static_cast<const std::byte*>(source);
        auto after = sources_.upper_bound(address);
        return after == sources_.begin() ? nullptr : std::prev(after)->second.descriptor;
    }

    operation* take_operation() {
        if (free_.empty()) {
            operations_.push_back(std::make_unique<operation>());
            free_.push_back(operations_.back().get());
        }
        operation* const taken = free_.back();
        free_.pop_back();
        return taken;
    }

    // Whether the library has taken a write, which it says with this result; false: not now. A provider over sockets
    // connects at the first write to a process (xnet_get_conn in libfabric's prov/tcp). Where that fails nothing was
    // sent, so the write is made again: a link that is down for a moment takes the host's routes away.
    bool is_taken(long result, int peer) {
        if (result == 0) {
            no_way_since_.erase(peer);
            return true;
        }
        if (result == -FI_EAGAIN) return false;
        const std::string cause = fi_strerror(static_cast<int>(-result));
        support::require(is_no_way(result), error_code::process_lost, "{}: cannot write to process {}: {}", name(),
                         peer, cause);
        const auto now = std::chrono::steady_clock::now();
        const auto [entry, is_first] = no_way_since_.try_emplace(peer, now);
        support::require(now - entry->second < std::chrono::duration<double>(lost_after_), error_code::process_lost,
                         "{}: cannot connect to process {} since {} s: {}", name(), peer, lost_after_, cause);
        return false;
    }

    // What connect() says where the other host cannot be reached at present.
    static bool is_no_way(long result) {
        constexpr std::array<long, 5> results{-ENETUNREACH, -EHOSTUNREACH, -ENETDOWN, -EHOSTDOWN, -ETIMEDOUT};
        return std::ranges::find(results, result) != results.end();
    }

    [[noreturn]] void report_error() {
        fi_cq_err_entry problem{};
        check(fi_cq_readerr(completions_.get(), &problem, 0), "reading an error");
        const std::string reason = fi_cq_strerror(completions_.get(), problem.prov_errno, problem.err_data, nullptr, 0);
        const std::string cause = fmt::format("{} ({})", fi_strerror(problem.err), reason);
        const auto* const context = static_cast<const operation*>(problem.op_context);
        if (context != nullptr && (problem.flags & FI_WRITE) != 0)
            support::fail(error_code::process_lost, "{}: a write to process {} failed: {}", name(), context->peer,
                          cause);
        support::fail(error_code::process_lost, "{}: {}", name(), cause);
    }

    owned_info info_;
    owned<fid_fabric> fabric_;
    owned<fid_domain> domain_;
    owned<fid_av> table_;
    owned<fid_cq> completions_;
    std::vector<owned<fid_mr>> regions_;
    std::vector<std::unique_ptr<operation>> operations_;
    owned<fid_ep> endpoint_; // closed first: until then it may write to all of these
    std::map<int, fi_addr_t> peers_;
    std::map<int, std::chrono::steady_clock::time_point> no_way_since_; // peers that no connection could be made to
    double lost_after_;
    std::map<const std::byte*, source_memory> sources_;
    std::vector<operation*> free_;
    std::deque<std::uint64_t> sent_; // injected
    std::array<fi_cq_data_entry, poll_batch> entries_{};
    std::size_t next_ = 0, count_ = 0;
};

} // namespace

} // namespace dcuda::transport

DCUDA_EXPORT_NETWORK(dcuda::transport::ofi)
