// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Build-time configuration: version, which backend this translation unit is compiled for, and every DCUDA_ macro.
#pragma once

#if __cplusplus < 202002L
#error "dCUDA needs C++20: compile with -std=c++20, or with CXX_STANDARD and CUDA_STANDARD 20"
#endif

#define DCUDA_VERSION_MAJOR 0 ///< Changes when programs must be changed.
#define DCUDA_VERSION_MINOR 1 ///< Before 1.0 this may break programs, too.
#define DCUDA_VERSION_PATCH 0 ///< Changes with corrections alone.
/// The version as text.
#define DCUDA_VERSION_STRING "0.1.0"

#if defined(__CUDACC__) && !defined(DCUDA_BACKEND_CUDA)
/// 1 where this file is compiled for the CUDA backend, else 0. nvcc selects the CUDA backend by itself. A C++ compiler
/// selects the CPU backend, unless the build says that the file is host code of a CUDA program (the CMake target of the
/// CUDA backend does).
#define DCUDA_BACKEND_CUDA 1
#endif
#ifndef DCUDA_BACKEND_CUDA
#define DCUDA_BACKEND_CUDA 0
#endif
/// 1 where this file is compiled for the CPU backend, else 0.
#define DCUDA_BACKEND_CPU (!DCUDA_BACKEND_CUDA)

#if defined(__CUDACC__)
/// Before a function for kernels, which is inlined.
#define DCUDA_DEVICE __device__ __forceinline__
/// Before a function for kernels and for the host.
#define DCUDA_HOST_DEVICE __host__ __device__ __forceinline__
#if defined(__CUDA_ARCH__)
/// Before a function for kernels. What is long or rarely needed is called, not inlined: it costs the user's kernel no
/// instructions at each place of use. nvcc's host pass compiles no body, and its host compiler does not like the two
/// words together.
#define DCUDA_COLD __device__ __noinline__ inline
/// Before a loop over registers, which have no index.
#define DCUDA_UNROLL _Pragma("unroll")
/// Before a loop that stays one.
#define DCUDA_NO_UNROLL _Pragma("unroll 1")
#else
#define DCUDA_COLD __device__ inline
#define DCUDA_UNROLL
#define DCUDA_NO_UNROLL
#endif
#else
#define DCUDA_DEVICE inline
#define DCUDA_HOST_DEVICE inline
#define DCUDA_COLD inline
#define DCUDA_UNROLL
#define DCUDA_NO_UNROLL
#endif

#ifndef DCUDA_CHECKS
/// Checks of bounds, ranks, tags and windows in every device operation. On in all builds; -DDCUDA_CHECKS=0 shows what
/// they cost. The end of a run, wait_timeout and the watchdog work without them, too.
#define DCUDA_CHECKS 1
#endif

#ifndef DCUDA_PROFILING
/// Whether runs can be profiled (DCUDA_TRACE, DCUDA_STATS). On the CPU backend they always can. On a GPU it is said
/// when a program is compiled, -DDCUDA_PROFILING=1: the calls of what records cost a kernel registers, and so up to 80
/// ns an operation and 10 % of a stencil even where nothing is profiled (H200, 2026-11-22).
#define DCUDA_PROFILING DCUDA_BACKEND_CPU
#endif

#ifndef DCUDA_PARTS
/// Whether ranks can be parts of a block (launch_config::ranks_per_block). On the CPU backend they always can. On a GPU
/// it is said when a program is compiled, -DDCUDA_PARTS=1, for all files that are linked on the device together: a
/// kernel whose ranks may use any of the block's 16 hardware barriers has room for four blocks on a multiprocessor.
#define DCUDA_PARTS DCUDA_BACKEND_CPU
#endif

#ifndef DCUDA_LITMUS
/// Litmus builds (CPU only) can weaken one ordering tag at run time, to see that its test fails then:
/// detail/protocol/memory.hpp.
#define DCUDA_LITMUS 0
#endif

#ifndef DCUDA_CPU_WARPS
/// For tests (CPU only): the lead warp acts as on a GPU, 32 threads together, instead of one thread for all.
#define DCUDA_CPU_WARPS 0
#endif

#ifndef DCUDA_DELAYS
/// For tests (GPU only): warps of a block are delayed at random where their order matters; the number is the seed.
#define DCUDA_DELAYS 0
#endif
