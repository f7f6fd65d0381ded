// SPDX-License-Identifier: BSD-3-Clause
// Windows of elements: puts that count elements, and puts of one value.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

class TypedWindow : public device_test {};

// Twelve bytes, so that elements lie at any word of a packet.
struct point {
    float x, y, z;
};

// So many bytes that all threads of the block send them, from each thread's own copy; and no whole words.
struct line {
    unsigned char bytes[501];
};

__device__ unsigned long long number(unsigned char value) { return value; }
__device__ unsigned long long number(double value) { return static_cast<unsigned long long>(value); }
__device__ unsigned long long number(const point& value) { return static_cast<unsigned long long>(value.x + value.z); }

// A line is the number that all of its bytes are.
__device__ unsigned long long number(const line& value) {
    for (const unsigned char byte : value.bytes)
        if (byte != value.bytes[0]) return 1000;
    return value.bytes[0];
}

__device__ void set(unsigned char& element, int value) { element = static_cast<unsigned char>(value); }
__device__ void set(double& element, int value) { element = value; }
__device__ void set(point& element, int value) { element = {static_cast<float>(value), -1.0f, 0.0f}; }
__device__ void set(line& element, int value) {
    for (unsigned char& byte : element.bytes) byte = static_cast<unsigned char>(value);
}

constexpr int slots = 12; // of each rank; the upper half is what it sends

// Around the ring of the communicator: three elements with a notification, one without, and two values.
template <class Element>
__device__ void pass_around(dcuda::rank& self, findings* found, Element* own, dcuda::communicator comm) {
    const int ranks = self.size(comm), rank = self.id(comm), next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    const dcuda::typed_window<Element> win = self.create_typed_window(comm, own, slots / 2);
    EXPECT_SAME(static_cast<bool>(win), true);
    EXPECT_SAME(win == dcuda::typed_window<Element>{}, false);
    for (int round = 0; round < 20; ++round) {
        by_one_thread([&] {
            for (int i = 0; i < slots / 2; ++i) set(own[slots / 2 + i], (rank + round + 3 * i) % 200);
        });
        Element value;
        set(value, (rank + round + 100) % 200);
        self.put_value(win, next, 5, value);
        set(value, (rank + round + 90) % 200); // it has been read
        self.put_value_notify(win, next, 0, value, 6);
        set(value, 0);
        self.put(win, next, 4, 1, own + slots / 2 + 3);
        self.put_notify(win, next, 1, 3, own + slots / 2, 7);
        self.wait_notifications(6, 1);
        self.wait_notifications(7, 1);
        for (int i = 0; i < 3; ++i) EXPECT_SAME(number(own[1 + i]), (previous + round + 3 * i) % 200);
        EXPECT_SAME(number(own[4]), (previous + round + 9) % 200);
        EXPECT_SAME(number(own[5]), (previous + round + 100) % 200);
        EXPECT_SAME(number(own[0]), (previous + round + 90) % 200);
        self.notify(previous, comm, 8);
        self.wait_notifications(8, 1);
        self.flush(win); // the source may change
    }
    self.free_window(win);
}

template <class Element>
__global__ void ring_of(dcuda::context context, findings* found, Element* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    Element* const own = piece_of(memory, slots, self);
    pass_around(self, found, own, dcuda::world);
    pass_around(self, found, own, dcuda::device);
}

template <class Element>
class rings : public TypedWindow {
protected:
    void check_rings() {
        for (const int ranks : {1, 3})
            for (const int threads : {1, 48}) {
                const device_vector<Element> memory(static_cast<std::size_t>(slots * ranks));
                check(ring_of<Element>, shape(ranks, dim3(static_cast<unsigned>(threads))), memory.get());
            }
    }
};

using RingsOfBytes = rings<unsigned char>;
using RingsOfDoubles = rings<double>;
using RingsOfPoints = rings<point>;
using RingsOfLines = rings<line>;
TEST_F(RingsOfBytes, Arrive) { check_rings(); }
TEST_F(RingsOfDoubles, Arrive) { check_rings(); }
TEST_F(RingsOfPoints, Arrive) { check_rings(); }
TEST_F(RingsOfLines, Arrive) { check_rings(); }

// The last element is the last that may be put; what is one further is told in bytes.
__global__ void beyond(dcuda::context context, findings*, double* memory, std::size_t index, int count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    double* const own = piece_of(memory, slots, self);
    const auto win = self.create_typed_window(dcuda::world, own, 4);
    const int next = (self.id() + 1) % self.size();
    self.put_notify(win, next, index, static_cast<std::size_t>(count), own + 4, 1);
    self.wait_notifications(1, 1);
}

TEST_F(TypedWindow, BoundsAreThoseOfElements) {
    const device_vector<double> memory(2 * slots);
    check(beyond, shape(2), memory.get(), std::size_t{3}, 1);
    check(beyond, shape(2), memory.get(), std::size_t{0}, 4);
    for (const auto& [index, count, sentence] :
         {std::tuple(std::size_t{4}, 1, "put_notify of 8 B at offset 32 exceeds"),
          std::tuple(std::size_t{0}, 5, "put_notify of 40 B at offset 0 exceeds"),
          std::tuple(static_cast<std::size_t>(-1), 1, "put_notify of 8 B at offset -1 exceeds")}) {
        if (job().info().process_count > 1) break; // a failed run ends the whole job
        end_job();
        try {
            job().run(beyond, shape(2), static_cast<findings*>(nullptr), memory.get(), index, count);
            ADD_FAILURE() << "no error";
        } catch (const dcuda::error& problem) {
            EXPECT_NE(std::string(problem.what()).find(sentence), std::string::npos) << problem.what();
        }
        end_job();
    }
}

} // namespace
