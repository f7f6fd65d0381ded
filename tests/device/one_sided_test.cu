// SPDX-License-Identifier: BSD-3-Clause
// Gets, atomic operations, accumulates and boxes.
#include "device_test.hpp"

#include <algorithm>
#include <limits>
#include <random>

using namespace dcuda::test;

namespace {

class OneSided : public device_test {};

// --- Atomic operations ---------------------------------------------------------------------------------------------

// Every rank draws tickets from a counter of rank 0, and marks each at the last rank: all are drawn once. 16 ranks of
// 64 threads fit on a multiprocessor.
template <class T>
__global__ void __launch_bounds__(64, 16)
    draw_tickets(dcuda::context context, findings* found, T* counters, T* marks, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), last = ranks - 1;
    const std::size_t tickets = static_cast<std::size_t>(rounds) * ranks;
    const auto counter = self.create_typed_window(dcuda::world, piece_of(counters, 1, self), 1);
    const auto seen = self.create_typed_window(dcuda::world, marks, self.id() == last ? tickets : 0);
    T before = 0;
    for (int round = 0; round < rounds; ++round) {
        const T ticket = self.fetch_add(counter, 0, 0, T{1});
        EXPECT_SAME(round == 0 || ticket > before, true);
        EXPECT_SAME(ticket < static_cast<T>(tickets), true);
        before = ticket;
        const T marked = self.fetch_add(seen, last, static_cast<std::size_t>(ticket), T{1});
        EXPECT_SAME(marked, 0);
        if (round % 3 == 0) self.add(seen, last, static_cast<std::size_t>(ticket), T{1});
    }
    self.flush(seen);
    self.barrier(dcuda::world);
    const T drawn = self.fetch_add(counter, 0, 0, T{0});
    EXPECT_SAME(drawn, tickets);
    if (self.id() == last) {
        __shared__ unsigned long long sum;
        by_one_thread([&] {
            sum = 0;
            for (std::size_t i = 0; i < tickets; ++i) sum += static_cast<unsigned long long>(marks[i]);
        });
        self.sync();
        EXPECT_SAME(sum, tickets + static_cast<std::size_t>(ranks) * ((rounds + 2) / 3));
    }
    self.free_window(seen);
    self.free_window(counter);
}

template <class T>
class Tickets : public OneSided {};
using number_types = testing::Types<int, unsigned, long, unsigned long long, float, double>;
TYPED_TEST_SUITE(Tickets, number_types);
TYPED_TEST(Tickets, AreDrawnOnce) {
    using number = TypeParam;
    for (const int ranks : {1, 3, 8})
        for (const unsigned threads : {1u, 64u}) {
            const int rounds = rounds_of(200, 30, 10);
            const device_vector<number> counters(static_cast<std::size_t>(ranks));
            const device_vector<number> marks(static_cast<std::size_t>(ranks * rounds) * 64);
            this->check(draw_tickets<number>, this->shape(ranks, dim3(threads)), counters.get(), marks.get(), rounds);
        }
}

// Constants, as nvcc calls no such function in a kernel.
template <class T>
constexpr T lowest = std::numeric_limits<T>::lowest();
template <class T>
constexpr T highest = std::numeric_limits<T>::max();

// What each operation returns and leaves, on elements of another rank that nobody else uses.
template <class T>
__device__ void operate(dcuda::rank& self, findings* found, const dcuda::typed_window<T>& win, int target,
                        std::size_t index) {
    const T low = lowest<T>, high = highest<T>;
    EXPECT_SAME(self.exchange(win, target, index, T{5}), 0);
    EXPECT_SAME(self.compare_swap(win, target, index, T{4}, T{9}), 5);
    EXPECT_SAME(self.compare_swap(win, target, index, T{5}, T{9}), 5);
    EXPECT_SAME(self.fetch_min(win, target, index, T{11}), 9);
    EXPECT_SAME(self.fetch_min(win, target, index, T{7}), 9);
    EXPECT_SAME(self.fetch_max(win, target, index, T{6}), 7);
    EXPECT_SAME(self.fetch_max(win, target, index, T{12}), 7);
    EXPECT_SAME(self.fetch_max(win, target, index, low), 12);
    EXPECT_SAME(self.fetch_min(win, target, index, high), 12);
    self.add(win, target, index, T{3});
    EXPECT_SAME(self.fetch_add(win, target, index, T{2}), 15);
    EXPECT_SAME(self.exchange(win, target, index, low) == T{17}, true);
    EXPECT_SAME(self.exchange(win, target, index, high) == low, true);
    EXPECT_SAME(self.exchange(win, target, index, T{0}) == high, true);
}
template <class T>
__device__ void operate_on_bits(dcuda::rank& self, findings* found, const dcuda::typed_window<T>& win, int target,
                                std::size_t index) {
    const T ones = static_cast<T>(~T{0});
    EXPECT_SAME(self.fetch_or(win, target, index, T{12}), 0);
    EXPECT_SAME(self.fetch_and(win, target, index, T{10}), 12);
    EXPECT_SAME(self.fetch_xor(win, target, index, T{15}), 8);
    EXPECT_SAME(self.fetch_or(win, target, index, ones), 7);
    EXPECT_SAME(self.fetch_add(win, target, index, T{1}) == ones, true); // and around
    EXPECT_SAME(self.exchange(win, target, index, T{0}), 0);
}

template <class T>
__global__ void try_operations(dcuda::context context, findings* found, T* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size();
    T* const own = piece_of(memory, static_cast<std::size_t>(ranks), self);
    const auto win = self.create_typed_window(dcuda::world, own, static_cast<std::size_t>(ranks));
    for (int target = 0; target < ranks; ++target) {
        operate(self, found, win, target, static_cast<std::size_t>(self.id()));
        if constexpr (std::is_integral_v<T>)
            operate_on_bits(self, found, win, target, static_cast<std::size_t>(self.id()));
    }
    self.free_window(win);
}

template <class T>
class Operations : public OneSided {};
TYPED_TEST_SUITE(Operations, number_types);
TYPED_TEST(Operations, DoWhatTheySay) {
    for (const unsigned threads : {1u, 33u, 128u}) {
        const device_vector<TypeParam> memory(3 * 3 * 64);
        this->check(try_operations<TypeParam>, this->shape(3, dim3(threads)), memory.get());
    }
}

// A lock at rank 0 guards two numbers at the last rank, which ranks get, add to and put.
__global__ void count_under_lock(dcuda::context context, findings* found, int* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), last = ranks - 1;
    int* const own = piece_of(memory, 8, self); // the lock; two numbers; this rank's copy of them
    const auto win = self.create_typed_window(dcuda::world, own, 4);
    for (int round = 0; round < rounds; ++round) {
        while (self.compare_swap(win, 0, 0, 0, 1) != 0) {
        }
        self.get(win, last, 1, 2, own + 4);
        self.flush(win);
        EXPECT_SAME(own[4], own[5]);
        self.sync();
        by_one_thread([&] {
            ++own[4];
            ++own[5];
        });
        self.put(win, last, 1, 2, own + 4);
        self.flush(win);
        EXPECT_SAME(self.exchange(win, 0, 0, 0), 1);
    }
    self.barrier(dcuda::world);
    if (self.id() == last) EXPECT_SAME(own[1], rounds * ranks);
    self.free_window(win);
}

TEST_F(OneSided, LockGuardsWhatIsPut) {
    const device_vector<int> memory(8 * 4);
    check(count_under_lock, shape(4, dim3(32)), memory.get(), rounds_of(100, 10, 3));
}

// A rank puts straight into a window and raises a flag there; its partner polls the flag by atomic operations.
__global__ void raise_flags(dcuda::context context, findings* found, int* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr int numbers = 1000;
    const int half = self.size() / 2, partner = (self.id() + half) % self.size();
    int* const own = piece_of(memory, 2 * numbers + 2, self);
    const auto win = self.create_typed_window(dcuda::world, own, numbers + 1, dcuda::window_kind::direct);
    for (int round = 1; round <= rounds; ++round) {
        if (self.id() < half) {
            for_each_thread(numbers, [&](std::size_t i) { own[numbers + 2 + i] = round + static_cast<int>(i); });
            self.put(win, partner, 1, numbers, own + numbers + 2);
            self.add(win, partner, 0, 1);
            self.wait_notifications(0, 1);
            self.flush(win);
        } else {
            while (self.fetch_add(win, self.id(), 0, 0) != round) {
            }
            for_each_thread(numbers, [&](std::size_t i) { EXPECT_SAME(own[1 + i], round + static_cast<int>(i)); });
            self.sync();
            self.notify(partner, dcuda::world, 0);
        }
    }
    self.free_window(win);
}

TEST_F(OneSided, FlagComesAfterWhatWasPut) {
    for (const unsigned threads : {32u, 128u}) {
        const device_vector<int> memory(2002 * 4);
        check(raise_flags, shape(4, dim3(threads)), memory.get(), rounds_of(200, 20, 3));
    }
}

// --- Gets ----------------------------------------------------------------------------------------------------------

// Every rank gets pieces of all sizes from a rank further on.
__global__ void get_pieces(dcuda::context context, findings* found, unsigned char* windows, unsigned char* copies,
                           std::size_t bytes, std::size_t size, std::size_t offset, std::size_t skew) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned char* const own = piece_of(windows, bytes, self);
    unsigned char* const copy = piece_of(copies, bytes + 64, self);
    for_each_thread(bytes, [&](std::size_t i) { own[i] = pattern(i, static_cast<std::uint64_t>(self.id())); });
    for_each_thread(bytes + 64, [&](std::size_t i) { copy[i] = 77; });
    const dcuda::window win = self.create_window(dcuda::world, own, bytes);
    self.barrier(dcuda::world);
    const int source = (self.id() + 1) % self.size();
    self.get(win, source, offset, size, copy + 16 + skew);
    self.flush(win);
    for_each_thread(bytes + 64, [&](std::size_t i) {
        const bool is_inside = i >= 16 + skew && i < 16 + skew + size;
        EXPECT_SAME(copy[i], is_inside ? pattern(offset + i - 16 - skew, static_cast<std::uint64_t>(source)) : 77);
    });
    self.free_window(win);
}

TEST_F(OneSided, GetsOfAllSizes) {
    constexpr std::size_t most = 1 << 20;
    const device_vector<unsigned char> windows(2 * (most + 64)), copies(2 * (most + 128));
    for (const std::size_t size :
         {0, 1, 2, 3, 4, 31, 32, 33, 127, 128, 129, 1000, 4096, 4097, 65536, 100000, 1 << 20}) {
        if (few_addresses && size > 5000) break;
        for (const std::size_t offset : {0, 3, 16})
            for (const std::size_t skew : {0, 1, 8}) {
                if (size > 5000 && (offset == 3) != (skew == 1)) continue;
                check(get_pieces, shape(2, dim3(size % 2 == 0 ? 128 : 32)), windows.get(), copies.get(),
                      std::min(most, size + 64) + 64, size, offset, skew);
            }
    }
}

// A get sees what its rank has put there before, in any way; and nothing that it puts afterwards.
__global__ void get_between_puts(dcuda::context context, findings* found, int* memory, std::size_t numbers,
                                 int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int target = (self.id() + 1) % self.size();
    int* const own = piece_of(memory, 4 * numbers, self);
    const auto win = self.create_typed_window(dcuda::world, own, numbers);
    int* const first = own + numbers;
    int* const second = first + numbers;
    int* const got = second + numbers;
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(numbers, [&](std::size_t i) {
            first[i] = 2 * round + static_cast<int>(i);
            second[i] = -first[i];
        });
        if (round % 2 == 0)
            self.put_notify(win, target, 0, numbers, first, 1);
        else
            self.put(win, target, 0, numbers, first);
        self.get(win, target, 0, numbers, got);
        if (round % 3 == 0)
            self.put(win, target, 0, numbers, second);
        else
            self.put_notify(win, target, 0, numbers, second, 2);
        self.flush(win);
        for_each_thread(numbers, [&](std::size_t i) { EXPECT_SAME(got[i], first[i]); });
        if (round % 2 == 0) self.wait_notifications(1, 1);
        if (round % 3 != 0) self.wait_notifications(2, 1);
        self.barrier(dcuda::world);
        for_each_thread(numbers, [&](std::size_t i) { EXPECT_SAME(own[i], second[i]); });
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(OneSided, GetsKeepTheirPlaceBetweenPuts) {
    for (const std::size_t numbers : {1, 60, 300, 20000}) {
        if (few_addresses && numbers > 1000) break;
        const device_vector<int> memory(4 * numbers * 3);
        check(get_between_puts, shape(3, dim3(64)), memory.get(), numbers, rounds_of(60, 12, 6));
    }
}

// Ranks read each other's numbers, and change their own when they are told that they were read.
__global__ void get_and_tell(dcuda::context context, findings* found, int* memory, std::size_t numbers, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), next = (self.id() + 1) % ranks, previous = (self.id() + ranks - 1) % ranks;
    int* const own = piece_of(memory, 2 * numbers, self);
    const auto win = self.create_typed_window(dcuda::world, own, numbers);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(numbers, [&](std::size_t i) { own[i] = round * 1000 + self.id() + static_cast<int>(i); });
        self.flush(win);
        self.notify(previous, dcuda::world, 0); // who reads
        self.wait_notifications(0, 1);
        self.get_notify(win, next, 0, numbers, own + numbers, 1);
        self.wait_notifications(1, 1);
        for_each_thread(numbers, [&](std::size_t i) { own[i] = -1; });
        self.flush(win);
        for_each_thread(
            numbers, [&](std::size_t i) { EXPECT_SAME(own[numbers + i], round * 1000 + next + static_cast<int>(i)); });
        self.sync();
    }
    self.free_window(win);
}

TEST_F(OneSided, NotificationOfGetComesAfterItsReading) {
    for (const std::size_t numbers : {0, 1, 100, 2000, 50000}) {
        if (few_addresses && numbers > 1000) break;
        const device_vector<int> memory(2 * numbers * 3 + 8);
        check(get_and_tell, shape(3, dim3(128)), memory.get(), numbers, rounds_of(60, 12, 4));
    }
}

// Many partners, many ranks, while small puts go both ways.
__global__ void __launch_bounds__(64, 16) cross(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr std::size_t numbers = 24;
    const int ranks = self.size(), me = self.id();
    unsigned* const own = piece_of(memory, 4 * numbers, self); // counts, what arrives, what is sent, what is got
    const auto win = self.create_typed_window(dcuda::world, own, 2 * numbers);
    for_each_thread(numbers, [&](std::size_t i) { own[2 * numbers + i] = static_cast<unsigned>(me) + i; });
    for (int round = 0; round < rounds; ++round) {
        const int step = 1 + (round * 7) % (ranks > 1 ? ranks - 1 : 1);
        const int target = (me + step) % ranks, source = (me + ranks - step % ranks) % ranks;
        self.put_notify(win, target, numbers, numbers, own + 2 * numbers, 3);
        self.add(win, target, static_cast<std::size_t>(round) % numbers, 1u);
        self.wait_notifications(3, 1);
        for_each_thread(numbers,
                        [&](std::size_t i) { EXPECT_SAME(own[numbers + i], static_cast<unsigned>(source) + i); });
        self.get(win, target, numbers, numbers, own + 3 * numbers); // this rank's own put
        self.flush(win);
        for_each_thread(numbers,
                        [&](std::size_t i) { EXPECT_SAME(own[3 * numbers + i], static_cast<unsigned>(me) + i); });
        self.barrier(dcuda::world);
    }
    if (self.thread() == 0) {
        unsigned sum = 0;
        for (std::size_t i = 0; i < numbers; ++i) sum += own[i];
        EXPECT_SAME(sum, rounds);
    }
    self.free_window(win);
}

TEST_F(OneSided, BesidePutsAndNotifications) {
    for (const int ranks : {1, 2, 17}) {
        const device_vector<unsigned> memory(96 * static_cast<std::size_t>(ranks));
        check(cross, shape(ranks, dim3(64)), memory.get(), rounds_of(60, 20, 6));
    }
}

// --- Accumulates -----------------------------------------------------------------------------------------------------

// What a rank brings for an element: results of it are exact in all types.
template <class T, class Operator = dcuda::sum>
__device__ T brought(int rank, std::size_t element) {
    constexpr std::size_t values = std::is_same_v<Operator, dcuda::product> ? 2 : 50;
    return static_cast<T>(1 + (static_cast<std::size_t>(rank) * 7 + element * 3) % values);
}

// All ranks accumulate into all windows, and each looks at its own.
template <class T, class Operator>
__device__ void accumulate_with(dcuda::rank& self, findings* found, const dcuda::typed_window<T>& win, T* own,
                                std::size_t count, Operator op) {
    const T start = 20;
    T* const source = own + count;
    for_each_thread(count, [&](std::size_t i) {
        own[i] = start;
        source[i] = brought<T, Operator>(self.id(), i);
    });
    self.barrier(dcuda::world);
    for (int target = 0; target < self.size(); ++target) self.accumulate(win, target, 0, count, source, op);
    self.flush(win);
    self.barrier(dcuda::world);
    for_each_thread(count, [&](std::size_t i) {
        T expected = start;
        for (int rank = 0; rank < self.size(); ++rank) expected = op(expected, brought<T, Operator>(rank, i));
        EXPECT_SAME(own[i], expected);
    });
    self.barrier(dcuda::world);
}

template <class T>
__global__ void accumulate_all(dcuda::context context, findings* found, T* memory, std::size_t count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    T* const own = piece_of(memory, 2 * count, self);
    const auto win = self.create_typed_window(dcuda::world, own, count);
    accumulate_with(self, found, win, own, count, dcuda::sum{});
    accumulate_with(self, found, win, own, count, dcuda::product{});
    accumulate_with(self, found, win, own, count, dcuda::minimum{});
    accumulate_with(self, found, win, own, count, dcuda::maximum{});
    if constexpr (std::is_integral_v<T>) {
        accumulate_with(self, found, win, own, count, dcuda::bit_and{});
        accumulate_with(self, found, win, own, count, dcuda::bit_or{});
        accumulate_with(self, found, win, own, count, dcuda::bit_xor{});
    }
    self.free_window(win);
}

template <class T>
class Accumulates : public OneSided {};
TYPED_TEST_SUITE(Accumulates, number_types);
TYPED_TEST(Accumulates, LoseNothing) {
    using number = TypeParam;
    const bool is_alone = this->job().info().process_count == 1 && !few_addresses;
    for (const std::size_t count : {0, 1, 2, 3, 31, 32, 33, 127, 128, 129, 1000, 4097, 1 << 20}) {
        if (count > (is_alone ? std::size_t{1} << 20 : few_addresses ? 1000 : 4097)) break;
        if (count > 5000 && !std::is_same_v<number, float>) break;
        const device_vector<number> memory(2 * count * 3);
        this->check(accumulate_all<number>, this->shape(3, dim3(count % 2 == 0 ? 64 : 33)), memory.get(), count);
    }
}

// Puts come before, and what the notification tells of is there. 16 ranks of 64 threads fit on a multiprocessor.
__global__ void __launch_bounds__(64, 16)
    accumulate_and_tell(dcuda::context context, findings* found, int* memory, std::size_t count, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), next = (self.id() + 1) % ranks, previous = (self.id() + ranks - 1) % ranks;
    int* const own = piece_of(memory, 3 * count, self);
    int* const base = own + count;
    int* const more = base + count;
    const auto win = self.create_typed_window(dcuda::world, own, count);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(count, [&](std::size_t i) {
            base[i] = 1000 * round + self.id() + static_cast<int>(i);
            more[i] = brought<int>(self.id(), i);
        });
        if (round % 2 == 0)
            self.put_notify(win, next, 0, count, base, 2); // by message, if it is small
        else
            self.put(win, next, 0, count, base);
        self.accumulate(win, next, 0, count, more, dcuda::sum{});
        self.accumulate_notify(win, next, 0, count, more, dcuda::sum{}, 1);
        self.wait_notifications(1, 1);
        for_each_thread(count, [&](std::size_t i) {
            EXPECT_SAME(own[i], 1000 * round + previous + static_cast<int>(i) + 2 * brought<int>(previous, i));
        });
        if (round % 2 == 0) self.wait_notifications(2, 1);
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(OneSided, NotificationOfAccumulateComesAfterItsSums) {
    for (const std::size_t count : {0, 1, 60, 300, 20000}) {
        if (few_addresses && count > 1000) break;
        const device_vector<int> memory(3 * count * 3 + 8);
        check(accumulate_and_tell, shape(3, dim3(64)), memory.get(), count, rounds_of(60, 12, 4));
    }
}

// --- Boxes -----------------------------------------------------------------------------------------------------------

struct moved_box {
    std::size_t offset; // in the window
    dcuda::box shape;
    dcuda::pitch at_target, here;

    // Whether a byte so far behind the beginning is in the box, and which one of its bytes it is.
    __host__ __device__ bool find(const dcuda::pitch& distance, std::size_t byte, std::size_t& number) const {
        if (shape.width_bytes == 0 || shape.height == 0) return false;
        const std::size_t row_bytes = shape.height > 1 ? distance.row_bytes : 0;
        const std::size_t slice_bytes = shape.depth > 1 ? distance.slice_bytes : 0;
        std::size_t row = 0, slice = 0;
        const bool slices_first = slice_bytes > row_bytes;
        if (slices_first) slice = byte / slice_bytes;
        if (row_bytes != 0) row = (byte - slice * slice_bytes) / row_bytes;
        if (!slices_first && slice_bytes != 0) slice = (byte - row * row_bytes) / slice_bytes;
        const std::size_t in_row = byte - slice * slice_bytes - row * row_bytes;
        number = (slice * shape.height + row) * shape.width_bytes + in_row;
        return slice < shape.depth && row < shape.height && in_row < shape.width_bytes;
    }
};
enum class box_way { put, put_notify, get, get_notify };

__device__ unsigned char byte_of(int rank, std::size_t number) {
    return static_cast<unsigned char>((static_cast<std::size_t>(rank) * 31 + number * 7) % 199);
}
constexpr unsigned char untouched = 0xee;

// Fills the box of one side, moves it, and looks at every byte of the other.
__global__ void move_boxes(dcuda::context context, findings* found, unsigned char* memory, std::size_t room,
                           moved_box moved, box_way way) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), next = (self.id() + 1) % ranks, previous = (self.id() + ranks - 1) % ranks;
    unsigned char* const in_window = piece_of(memory, 2 * room, self);
    unsigned char* const here = in_window + room;
    const bool is_get = way == box_way::get || way == box_way::get_notify;
    unsigned char* const from = is_get ? in_window : here;
    unsigned char* const into = is_get ? here : in_window;
    const std::size_t from_offset = is_get ? moved.offset : 0, into_offset = is_get ? 0 : moved.offset;
    const dcuda::pitch from_pitch = is_get ? moved.at_target : moved.here;
    const dcuda::pitch into_pitch = is_get ? moved.here : moved.at_target;
    const auto win = self.create_window(dcuda::world, in_window, room);
    std::size_t number = 0;
    for_each_thread(room, [&](std::size_t i) {
        into[i] = untouched;
        from[i] = 0;
        if (i >= from_offset && moved.find(from_pitch, i - from_offset, number)) from[i] = byte_of(self.id(), number);
    });
    self.barrier(dcuda::world);
    if (way == box_way::put) self.put(win, next, moved.offset, moved.at_target, moved.shape, here, moved.here);
    if (way == box_way::put_notify)
        self.put_notify(win, next, moved.offset, moved.at_target, moved.shape, here, moved.here, 1);
    if (way == box_way::get) self.get(win, next, moved.offset, moved.at_target, moved.shape, here, moved.here);
    if (way == box_way::get_notify)
        self.get_notify(win, next, moved.offset, moved.at_target, moved.shape, here, moved.here, 1);
    if (way == box_way::put) self.notify(next, dcuda::world, 1);
    if (way != box_way::get) self.wait_notifications(1, 1);
    if (way == box_way::get_notify) // what was read may be changed
        for_each_thread(room, [&](std::size_t i) { from[i] = 1; });
    self.flush(win);
    for_each_thread(room, [&](std::size_t i) {
        const bool is_inside = i >= into_offset && moved.find(into_pitch, i - into_offset, number);
        EXPECT_SAME(into[i], is_inside ? byte_of(is_get ? next : previous, number) : untouched);
    });
    self.free_window(win);
}

TEST_F(OneSided, BoxesMoveTheirBytesAndNoOthers) {
    std::mt19937 random(7);
    const auto one_of = [&](std::initializer_list<std::size_t> values) {
        return *(values.begin() + std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random));
    };
    constexpr std::size_t room = 16384;
    const device_vector<unsigned char> memory(2 * room * 3);
    const int rounds = rounds_of(150, 150, 20);
    int moved = 0;
    for (int round = 0; round < rounds; ++round) {
        moved_box now{one_of({0, 1, 4, 16}),
                      {one_of({0, 1, 2, 4, 8, 12, 16, 48, 100}), one_of({1, 2, 3, 33, 200}), one_of({1, 1, 2, 3})},
                      {},
                      {}};
        if (round % 25 == 0) now.shape.height = 0;
        if (round % 40 == 7) now.shape = {8, 100, 1}; // a column
        for (dcuda::pitch* const distance : {&now.at_target, &now.here}) {
            distance->row_bytes = now.shape.width_bytes + one_of({0, 1, 4, 16, 64});
            distance->slice_bytes = now.shape.height * distance->row_bytes + one_of({0, 3, 16});
            if (now.shape.depth > 1 && one_of({0, 0, 1}) != 0) { // a row of each slice, then the next row of each
                distance->slice_bytes = now.shape.width_bytes + one_of({0, 1, 4, 16});
                distance->row_bytes = now.shape.depth * distance->slice_bytes + one_of({0, 3, 16});
            }
        }
        const auto ends_at = [&](const dcuda::pitch& distance) {
            return now.shape.depth * distance.slice_bytes + now.shape.height * distance.row_bytes + 128;
        };
        if (ends_at(now.at_target) > room || ends_at(now.here) > room) continue;
        ++moved;
        const unsigned threads = round % 3 == 0 ? 1 : round % 3 == 1 ? 33 : 128;
        check(move_boxes, shape(1 + round % 3, dim3(threads)), memory.get(), room, now,
              static_cast<box_way>((round / 3) % 4));
    }
    EXPECT_GT(moved, std::min(8, rounds / 2)); // of few rounds a tool asks for
}

// More than a command over a network holds: many narrow rows, also one of each slice, long ones, and wide ones.
TEST_F(OneSided, LargeBoxes) {
    constexpr std::size_t room = 160 << 10;
    const device_vector<unsigned char> memory(2 * room * 3);
    const moved_box boxes[] = {
        {4, {4, 9000}, {16}, {12}},
        {8, {8, 1, 5000}, {0, 16}, {0, 24}},
        {0, {1000, 50, 2}, {1500, 76000}, {1001, 60001}},
        {16, {4096, 10, 3}, {4112, 48000}, {4096, 40960}},
    };
    for (const moved_box& each : boxes)
        for (const box_way way : {box_way::put_notify, box_way::get_notify})
            check(move_boxes, shape(2, dim3(64)), memory.get(), room, each, way);
}

// Of overlapping puts of a rank the later wins, by message or as a box.
__global__ void __launch_bounds__(64, 16)
    boxes_between_puts(dcuda::context context, findings* found, int* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr int columns = 6, rows = 5, all = columns * rows;
    const int ranks = self.size(), next = (self.id() + 1) % ranks, previous = (self.id() + ranks - 1) % ranks;
    int* const own = piece_of(memory, 4 * all, self);
    int* const first = own + all;
    int* const column = first + all;
    int* const last = column + all;
    constexpr dcuda::pitch distance{columns * sizeof(int)}, close{sizeof(int)};
    const auto win = self.create_window(dcuda::world, own, all * sizeof(int));
    const auto value = [&](int rank, int round, int put) { return 100000 * put + 100 * round + rank % 100; };
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(all, [&](std::size_t i) {
            first[i] = value(self.id(), round, 1);
            column[i] = value(self.id(), round, 2);
            last[i] = value(self.id(), round, 3);
        });
        self.put_notify(win, next, 0, all * sizeof(int), first, 2);
        self.put(win, next, 2 * sizeof(int), distance, dcuda::box{sizeof(int), rows}, column, close);
        self.put_notify(win, next, columns * sizeof(int), columns * sizeof(int), last, 1); // the second row
        self.wait_notifications(1, 1);
        for_each_thread(all, [&](std::size_t i) {
            const int put = i / columns == 1 ? 3 : i % columns == 2 ? 2 : 1;
            EXPECT_SAME(own[i], value(previous, round, put));
        });
        self.wait_notifications(2, 1);
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(OneSided, BoxesKeepTheirPlaceBetweenPuts) {
    const device_vector<int> memory(4 * 30 * 3);
    check(boxes_between_puts, shape(3, dim3(64)), memory.get(), rounds_of(60, 12, 6));
}

#if DCUDA_BACKEND_CUDA
TEST_F(OneSided, OnFullDevice) {
    for (const int ranks : {132, 1056, all_of(2112)}) {
        const dcuda::launch_config config = shape(ranks, dim3(64));
        const device_vector<unsigned> memory(96 * static_cast<std::size_t>(ranks));
        check(cross, config, memory.get(), rounds_of(30, 1));
        const int rounds = rounds_of(50, 1);
        const device_vector<int> counters(static_cast<std::size_t>(ranks));
        const device_vector<int> marks(static_cast<std::size_t>(ranks * rounds) * 8);
        check(draw_tickets<int>, config, counters.get(), marks.get(), rounds);
        const device_vector<int> sums(3 * 100 * static_cast<std::size_t>(ranks));
        check(accumulate_and_tell, config, sums.get(), std::size_t{100}, rounds_of(20, 1));
        const device_vector<int> matrices(4 * 30 * static_cast<std::size_t>(ranks));
        check(boxes_between_puts, config, matrices.get(), rounds_of(20, 1));
    }
}
#endif

// Statistics count each, and none of them as a put or a notification.
__global__ void count_calls(dcuda::context context, findings*, int* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    int* const own = piece_of(memory, 8, self);
    const auto win = self.create_typed_window(dcuda::world, own, 4);
    const int next = (self.id() + 1) % self.size();
    for (int i = 0; i < 3; ++i) self.fetch_add(win, next, 0, 1);
    self.compare_swap(win, next, 1, 0, 1);
    self.add(win, next, 1, 1);
    self.get(win, next, 2, 2, own + 4);
    self.get_notify(win, next, 2, 2, own + 6, 1);
    self.wait_notifications(1, 1);
    self.barrier(dcuda::world); // the other rank's get is over
    self.accumulate(win, next, 2, 2, own + 4, dcuda::sum{});
    self.accumulate_notify(win, next, 2, 2, own + 4, dcuda::maximum{}, 1);
    self.wait_notifications(1, 1);
    self.free_window(win);
}

TEST_F(OneSided, AreCounted) {
    if (DCUDA_PROFILING == 0) return;
    requested.count = true;
    const device_vector<int> memory(8 * 2);
    check(count_calls, shape(2), memory.get());
    const dcuda::rank_statistics total = job().statistics().total();
    EXPECT_EQ(total.atomics, 2 * 7u);
    EXPECT_EQ(total.gets, 2 * 2u);
    for (const dcuda::path_statistics& way : {total.local, total.peer, total.network}) {
        EXPECT_EQ(way.puts + way.notified_puts + way.notifications, 0u);
        EXPECT_EQ(way.bytes, 0u);
    }
}

// A put of a box is a put, which never goes through a mailbox.
__global__ void count_boxes(dcuda::context context, findings*, int* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    int* const own = piece_of(memory, 8, self);
    const auto win = self.create_window(dcuda::world, own, 4 * sizeof(int));
    const int next = (self.id() + 1) % self.size();
    const dcuda::pitch two_apart{2 * sizeof(int)};
    for (int i = 0; i < 3; ++i)
        self.put_notify(win, next, 0, two_apart, dcuda::box{sizeof(int), 2}, own + 4, two_apart, 1);
    self.wait_notifications(1, 3);
    self.free_window(win);
}
TEST_F(OneSided, BoxesAreCountedAsPuts) {
    if (DCUDA_PROFILING == 0) return;
    requested.count = true;
    const device_vector<int> memory(8 * 2);
    check(count_boxes, shape(2), memory.get());
    const dcuda::rank_statistics total = job().statistics().total();
    EXPECT_EQ(total.local.notified_puts + total.peer.notified_puts + total.network.notified_puts, 2 * 3u);
    EXPECT_EQ(total.local.bytes + total.peer.bytes + total.network.bytes, 2 * 3 * 2 * sizeof(int));
    EXPECT_EQ(total.through_mailbox, 0u);
}

// --- Misuse --------------------------------------------------------------------------------------------------------

enum class mistake {
    beyond,
    misaligned,
    no_rank,
    freed,
    get_beyond,
    get_into_own,
    box_into_own,
    get_tag,
    wraps,
    sums_beyond,
    sums_misaligned,
    sums_tag,
    get_no_tag,
    box_no_tag,
    sums_no_tag,
    too_many,
    index_wraps,
    rows,
    slices,
    box_beyond,
    box_wraps
};

__global__ void err(dcuda::context context, findings*, int* memory, mistake kind) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    int* const own = piece_of(memory, 8, self);
    dcuda::window win = self.create_window(dcuda::world, own, 16);
    const int next = (self.id() + 1) % self.size();
    if (kind == mistake::beyond) self.fetch_add(win, next, 16, 1);
    if (kind == mistake::misaligned) self.fetch_add(win, next, 4, 1ull);
    if (kind == mistake::no_rank) self.exchange(win, 7, 0, 1);
    if (kind == mistake::freed) {
        self.free_window(win);
        self.add(win, next, 0, 1);
    }
    if (kind == mistake::get_beyond) self.get(win, next, 12, 8, own + 4);
    if (kind == mistake::wraps) self.get(win, next, ~std::size_t{3}, 8, own + 4);
    if (kind == mistake::get_tag) self.get_notify(win, next, 0, 8, own + 4, 100000);
    using dcuda::box, dcuda::pitch;
    if (kind == mistake::rows) self.put(win, next, 0, pitch{4}, box{8, 2}, own + 4, pitch{8});
    if (kind == mistake::slices) self.get(win, next, 0, pitch{4, 8}, box{4, 2, 2}, own + 4, pitch{4, 4});
    if (kind == mistake::box_beyond) self.put_notify(win, next, 4, pitch{8}, box{4, 3}, own + 4, pitch{4}, 1);
    if (kind == mistake::box_wraps)
        self.put(win, next, 0, pitch{~std::size_t{0} / 2}, box{4, 4}, own + 4, pitch{~std::size_t{0} / 2});
    if (kind == mistake::sums_beyond) self.accumulate(win, next, 8, 3, own + 4, dcuda::sum{});
    if (kind == mistake::sums_misaligned) self.accumulate(win, next, 2, 3, own + 4, dcuda::bit_or{});
    if (kind == mistake::sums_tag) self.accumulate_notify(win, next, 0, 1, own + 4, dcuda::sum{}, -3);
    if (kind == mistake::get_no_tag) self.get_notify(win, next, 0, 8, own + 4, -1);
    if (kind == mistake::box_no_tag) self.put_notify(win, next, 0, pitch{8}, box{4, 2}, own + 4, pitch{4}, -1);
    if (kind == mistake::sums_no_tag) self.accumulate_notify(win, next, 0, 1, own + 4, dcuda::sum{}, -1);
    if (kind == mistake::too_many) self.accumulate(win, next, 0, (~std::size_t{0} >> 2) + 2, own + 4, dcuda::sum{});
    const dcuda::typed_window<int> ints{win};
    if (kind == mistake::index_wraps) self.fetch_add(ints, next, (std::size_t{1} << 62) + 1, 1);
    if (kind == mistake::get_into_own) {
        int local[2] = {self.id(), 0};
        self.get(win, next, 0, 8, local);
        self.log() << local[0];
    }
    if (kind == mistake::box_into_own) {
        int local[4] = {self.id(), 0, 0, 0};
        self.get(win, next, 0, pitch{8}, box{4, 2}, local, pitch{8});
        self.log() << local[2];
    }
    self.barrier(dcuda::world);
}

TEST_F(OneSided, MistakesAreNamed) {
    if (job().info().process_count > 1) return; // a failed run ends the whole job
    const device_vector<int> memory(2 * 8);
    for (const auto& [kind, sentence] :
         {std::pair(mistake::beyond, "fetch_add of 4 B at offset 16 exceeds window 0 of rank"),
          std::pair(mistake::misaligned, "fetch_add of 8 B at offset 4 of window 0 of rank"),
          std::pair(mistake::no_rank, "exchange to rank 7: there are ranks 0 to 1 in window 0"),
          std::pair(mistake::freed, std::getenv("DCUDA_CHECK") == nullptr
                                        ? "add on window 0, which does not exist (any more)"
                                        : "on window 0, which was freed"),
          std::pair(mistake::get_beyond, "get of 8 B at offset 12 exceeds window 0 of rank"),
          std::pair(mistake::wraps, "get of 8 B at offset -4 exceeds window 0 of rank"),
          std::pair(mistake::get_tag, "get_notify with tag 100000: there are tags"),
          std::pair(mistake::sums_beyond, "accumulate of 12 B at offset 8 exceeds window 0 of rank"),
          std::pair(mistake::sums_misaligned, "accumulate of 12 B at offset 2 of window 0 of rank"),
          std::pair(mistake::sums_tag, "accumulate_notify with tag -3: there are tags"),
          std::pair(mistake::get_no_tag, "get_notify with tag -1: there are tags"),
          std::pair(mistake::box_no_tag, "put_notify with tag -1: there are tags"),
          std::pair(mistake::sums_no_tag, "accumulate_notify with tag -1: there are tags"),
          std::pair(mistake::too_many, "accumulate of -1 B at offset 0 exceeds window 0 of rank"),
          std::pair(mistake::index_wraps, "fetch_add of 4 B at offset -1 exceeds window 0 of rank"),
          std::pair(mistake::rows, "put of a box on window 0 whose rows of 8 B begin 4 B apart: they overlap"),
          std::pair(mistake::slices, "get of a box on window 0 whose slices of 8 B begin 4 B apart: they overlap"),
          std::pair(mistake::box_beyond, "put_notify of 20 B at offset 4 exceeds window 0 of rank"),
          std::pair(mistake::box_wraps, "put of -1 B at offset 0 exceeds window 0 of rank"),
          std::pair(mistake::get_into_own, "which is one thread's own"),
          std::pair(mistake::box_into_own, "which is one thread's own")}) {
        end_job();
        try {
            job().run(err, shape(2), static_cast<findings*>(nullptr), memory.get(), kind);
            ADD_FAILURE() << "no error: " << sentence;
        } catch (const dcuda::error& problem) {
            EXPECT_NE(std::string(problem.what()).find(sentence), std::string::npos) << problem.what();
        }
    }
    end_job();
}

} // namespace
