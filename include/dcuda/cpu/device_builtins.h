// SPDX-License-Identifier: BSD-3-Clause
// What CUDA C++ builds into device code, for the CPU backend: keywords, thread coordinates, barriers, warp operations
// and intrinsics. A warp is 32 consecutive threads of a block.
#pragma once

#include <atomic>
#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <type_traits>

#include "vector_types.h"

// __noinline__ stays undefined: libstdc++ uses the word itself, and as a compiler attribute it means the same.
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local // each block is one OS thread
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// Real variables, so that a debugger prints them: threadIdx is that of the fiber that the OS thread runs.
// constinit: no initialisation wrapper stands between the code and the variable.
extern constinit thread_local uint3 threadIdx __attribute__((tls_model("initial-exec")));
extern constinit thread_local uint3 blockIdx __attribute__((tls_model("initial-exec")));
extern constinit thread_local dim3 blockDim __attribute__((tls_model("initial-exec")));
extern constinit thread_local dim3 gridDim __attribute__((tls_model("initial-exec")));
inline constexpr int warpSize = 32;

// Barriers of the block. Threads that have exited count as arrived, as on Volta and later.
void __syncthreads();
int __syncthreads_count(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_or(int predicate);

namespace dcuda::detail::cpu {

enum class warp_operation {
    synchronize,
    shuffle,
    shuffle_up,
    shuffle_down,
    shuffle_xor,
    ballot,
    match_any,
    match_all,
    add,
    min_signed,
    max_signed,
    min_unsigned,
    max_unsigned,
    bit_and,
    bit_or,
    bit_xor,
};

// All threads of the calling warp that `mask` names (and that have not exited) meet; returns the caller's result.
// `argument` and `width` are those of the shuffles.
std::uint64_t warp_exchange(warp_operation operation, unsigned mask, std::uint64_t value, unsigned argument = 0,
                            int width = warpSize);
unsigned lane();

// The caller found memory unchanged, perhaps for the n-th time: now and then its siblings and other blocks get a turn.
void spin_hint();
void sleep_ns(unsigned nanoseconds);
[[noreturn]] void trap();

template <class T>
T shuffle(warp_operation operation, unsigned mask, T value, unsigned argument, int width) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "a shuffle moves values of up to 8 bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = warp_exchange(operation, mask, bits, argument, width);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
std::uint64_t value_bits(T value) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "a match compares arithmetic values");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

} // namespace dcuda::detail::cpu

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    dcuda::detail::cpu::warp_exchange(dcuda::detail::cpu::warp_operation::synchronize, mask, 0);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source_lane, int width = warpSize) {
    return dcuda::detail::cpu::shuffle(dcuda::detail::cpu::warp_operation::shuffle, mask, value,
                                       static_cast<unsigned>(source_lane), width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    return dcuda::detail::cpu::shuffle(dcuda::detail::cpu::warp_operation::shuffle_up, mask, value, delta, width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    return dcuda::detail::cpu::shuffle(dcuda::detail::cpu::warp_operation::shuffle_down, mask, value, delta, width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
    return dcuda::detail::cpu::shuffle(dcuda::detail::cpu::warp_operation::shuffle_xor, mask, value,
                                       static_cast<unsigned>(lane_mask), width);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return static_cast<unsigned>(
        dcuda::detail::cpu::warp_exchange(dcuda::detail::cpu::warp_operation::ballot, mask, predicate != 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate == 0) == 0; }
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
    return static_cast<unsigned>(dcuda::detail::cpu::warp_exchange(dcuda::detail::cpu::warp_operation::match_any, mask,
                                                                   dcuda::detail::cpu::value_bits(value)));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all) {
    const auto equal = static_cast<unsigned>(dcuda::detail::cpu::warp_exchange(
        dcuda::detail::cpu::warp_operation::match_all, mask, dcuda::detail::cpu::value_bits(value)));
    *all = equal != 0;
    return equal;
}

// Only the caller is known to be converged with itself: code that follows CUDA's rules for __activemask stays correct.
inline unsigned __activemask() { return 1u << dcuda::detail::cpu::lane(); }

#define DCUDA_WARP_REDUCE(name, Type, operation)                                                                       \
    inline Type name(unsigned mask, Type value) {                                                                      \
        return static_cast<Type>(dcuda::detail::cpu::warp_exchange(dcuda::detail::cpu::warp_operation::operation,      \
                                                                   mask, static_cast<unsigned>(value)));               \
    }
DCUDA_WARP_REDUCE(__reduce_add_sync, unsigned, add)
DCUDA_WARP_REDUCE(__reduce_add_sync, int, add)
DCUDA_WARP_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
DCUDA_WARP_REDUCE(__reduce_min_sync, int, min_signed)
DCUDA_WARP_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
DCUDA_WARP_REDUCE(__reduce_max_sync, int, max_signed)
DCUDA_WARP_REDUCE(__reduce_and_sync, unsigned, bit_and)
DCUDA_WARP_REDUCE(__reduce_or_sync, unsigned, bit_or)
DCUDA_WARP_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef DCUDA_WARP_REDUCE

// Fences. ThreadSanitizer does not model them; for it all of them are steps of one chain. So it reports no race between
// threads that hand over by counts and fences, as CUDA programs do, but misses some races between others that use
// fences.
#if defined(__SANITIZE_THREAD__)
namespace dcuda::detail::cpu {
inline std::atomic<unsigned> fences{0};
}
inline void __threadfence_system() { dcuda::detail::cpu::fences.fetch_add(1, std::memory_order_seq_cst); }
#else
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
#endif
inline void __threadfence() { __threadfence_system(); }
inline void __threadfence_block() { __threadfence_system(); }

// Time. clock() is the C library's; clock64() counts nanoseconds (the device reports a clock rate of 1 GHz).
inline long long clock64() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}
inline void __nanosleep(unsigned nanoseconds) { dcuda::detail::cpu::sleep_ns(nanoseconds); }
[[noreturn]] inline void __trap() { dcuda::detail::cpu::trap(); }

// Loads and stores with cache hints.
template <class T>
T __ldg(const T* p) {
    return *p;
}
template <class T>
T __ldcg(const T* p) {
    return *p;
}
template <class T>
T __ldcs(const T* p) {
    return *p;
}
template <class T>
void __stcg(T* p, T value) {
    *p = value;
}
template <class T>
void __stcs(T* p, T value) {
    *p = value;
}

// Bits.
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<std::int64_t>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ using wide = unsigned __int128;
    return static_cast<unsigned long long>(static_cast<wide>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }

// Reinterpretation and conversion.
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2int_rn(double x) { return static_cast<int>(std::nearbyint(x)); }
inline int __double2int_rz(double x) { return static_cast<int>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(std::ceil(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// Arithmetic with an explicit rounding: round to nearest is what the CPU does anyway.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

// Mathematics that the C library lacks. The fast forms are macros because glibc declares functions of the same names.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline double sinpi(double x) { return std::sin(3.14159265358979323846 * std::remainder(x, 2.0)); }
inline double cospi(double x) { return std::cos(3.14159265358979323846 * std::remainder(x, 2.0)); }
inline float sinpif(float x) { return static_cast<float>(sinpi(static_cast<double>(x))); }
inline float cospif(float x) { return static_cast<float>(cospi(static_cast<double>(x))); }
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline float norm3df(float x, float y, float z) { return std::hypot(x, y, z); }
#define __sinf(x) ::sinf(x)
#define __cosf(x) ::cosf(x)
#define __tanf(x) ::tanf(x)
#define __expf(x) ::expf(x)
#define __logf(x) ::logf(x)
#define __log2f(x) ::log2f(x)
#define __log10f(x) ::log10f(x)
#define __powf(x, y) ::powf(x, y)

// min and max: CUDA's overloads, mixed signs become unsigned.
#define DCUDA_MIN_MAX(A, B, Result)                                                                                    \
    constexpr Result min(A a, B b) {                                                                                   \
        return static_cast<Result>(a) < static_cast<Result>(b) ? static_cast<Result>(a) : static_cast<Result>(b);      \
    }                                                                                                                  \
    constexpr Result max(A a, B b) {                                                                                   \
        return static_cast<Result>(a) > static_cast<Result>(b) ? static_cast<Result>(a) : static_cast<Result>(b);      \
    }
#define DCUDA_MIN_MAX_INTEGER(Type)                                                                                    \
    DCUDA_MIN_MAX(Type, Type, Type)                                                                                    \
    DCUDA_MIN_MAX(unsigned Type, unsigned Type, unsigned Type)                                                         \
    DCUDA_MIN_MAX(Type, unsigned Type, unsigned Type)                                                                  \
    DCUDA_MIN_MAX(unsigned Type, Type, unsigned Type)
DCUDA_MIN_MAX_INTEGER(int)
DCUDA_MIN_MAX_INTEGER(long)
DCUDA_MIN_MAX_INTEGER(long long)
#undef DCUDA_MIN_MAX_INTEGER
#undef DCUDA_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(float a, double b) { return std::fmin(static_cast<double>(a), b); }
inline double max(float a, double b) { return std::fmax(static_cast<double>(a), b); }
inline double min(double a, float b) { return std::fmin(a, static_cast<double>(b)); }
inline double max(double a, float b) { return std::fmax(a, static_cast<double>(b)); }
