// SPDX-License-Identifier: BSD-3-Clause
// What the hosts of a job send each other: barrier, broadcast, gather.
#include "device_test.hpp"

#include <array>
#include <numeric>

using namespace dcuda::test;

namespace {

class HostCollectives : public device_test {};

struct setup {
    int steps;
    double width;
    friend bool operator==(const setup&, const setup&) = default;
};

__global__ void nothing(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
}

TEST_F(HostCollectives, ValuesComeFromTheRoot) {
    const int processes = job().info().process_count, here = job().info().process_index;
    for (int root = 0; root < processes; ++root) {
        setup value{here, 0.5 * here};
        job().broadcast(value, root);
        EXPECT_EQ(value, (setup{root, 0.5 * root}));
    }
    std::array<float, 1000> many{};
    if (here == 0) std::iota(many.begin(), many.end(), 1.0f);
    job().broadcast(std::span(many));
    EXPECT_EQ(many[999], 1000.0f);
    std::vector<std::byte> bytes(3 << 20, here == processes - 1 ? std::byte{7} : std::byte{0}), none;
    job().broadcast(std::span(bytes), processes - 1);
    EXPECT_EQ(bytes, std::vector<std::byte>(3 << 20, std::byte{7}));
    job().broadcast(std::span(none));
}

TEST_F(HostCollectives, TheRootGathers) {
    const int processes = job().info().process_count, here = job().info().process_index;
    for (int root = 0; root < processes; ++root) {
        const std::vector<setup> all = job().gather(setup{here, 1.0}, root);
        ASSERT_EQ(all.size(), root == here ? static_cast<std::size_t>(processes) : 0u);
        for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], (setup{static_cast<int>(i), 1.0}));
    }
    EXPECT_EQ(job().gather(true), std::vector<bool>(here == 0 ? static_cast<std::size_t>(processes) : 0u, true));
    // As many values as the process's number says.
    const std::vector<long> own(static_cast<std::size_t>(here), here);
    const std::vector<std::vector<long>> all = job().gather(std::span(own));
    ASSERT_EQ(all.size(), here == 0 ? static_cast<std::size_t>(processes) : 0u);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], std::vector<long>(i, static_cast<long>(i)));
    const std::vector<std::byte> bytes(100'000, static_cast<std::byte>(here));
    const auto gathered = job().gather(std::span<const std::byte>(bytes), processes - 1);
    ASSERT_EQ(gathered.size(), here == processes - 1 ? static_cast<std::size_t>(processes) : 0u);
    for (std::size_t i = 0; i < gathered.size(); ++i)
        EXPECT_EQ(gathered[i], std::vector<std::byte>(100'000, static_cast<std::byte>(i)));
}

TEST_F(HostCollectives, BetweenRuns) {
    for (int run = 0; run < 3; ++run) {
        job().run(nothing, shape(2));
        int number = job().info().process_index == 0 ? run : -1;
        job().broadcast(number);
        EXPECT_EQ(number, run);
        job().barrier();
    }
}

TEST_F(HostCollectives, BarrierWaitsForAll) {
    // Each process says that it has come on a channel of its own: a file that the others see after the barrier.
    const int processes = job().info().process_count, here = job().info().process_index;
    std::array<char, 64> folder{};
    if (here == 0) {
        const std::string path = testing::TempDir() + "dcuda_barrier_XXXXXX";
        path.copy(folder.data(), folder.size() - 1);
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
    }
    job().broadcast(std::span(folder));
    const auto file = [&](int process) { return std::string(folder.data()) + "/" + std::to_string(process); };
    if (std::FILE* own = std::fopen(file(here).c_str(), "w")) std::fclose(own);
    job().barrier();
    for (int process = 0; process < processes; ++process) {
        std::FILE* other = std::fopen(file(process).c_str(), "r");
        EXPECT_NE(other, nullptr) << process;
        if (other != nullptr) std::fclose(other);
    }
    job().barrier();
    std::remove(file(here).c_str());
    job().barrier();
    if (here == 0) std::remove(folder.data());
}

TEST_F(HostCollectives, WrongRootsAreNamed) {
    const int processes = job().info().process_count;
    int value = 0;
    for (const int root : {-1, processes})
        for (const bool gathers : {false, true}) try {
                if (gathers)
                    job().gather(value, root);
                else
                    job().broadcast(value, root);
                ADD_FAILURE() << "no error";
            } catch (const dcuda::error& problem) {
                EXPECT_EQ(problem.code(), dcuda::error_code::invalid_argument);
                EXPECT_NE(
                    std::string(problem.what())
                        .find(std::to_string(root) + ": there are processes 0 to " + std::to_string(processes - 1)),
                    std::string::npos)
                    << problem.what();
            }
    job().broadcast(value); // nobody has begun a call that the others would wait for
}

} // namespace
