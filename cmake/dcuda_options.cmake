# SPDX-License-Identifier: BSD-3-Clause
# Every option of the build. Presets set them: CMakePresets.json.
set(DCUDA_BACKEND cpu CACHE STRING "What ranks run on: cpu (any C++20 compiler) or cuda (nvcc)")
set_property(CACHE DCUDA_BACKEND PROPERTY STRINGS cpu cuda)
if(NOT DCUDA_BACKEND MATCHES "^(cpu|cuda)$")
    message(FATAL_ERROR "DCUDA_BACKEND is '${DCUDA_BACKEND}'; it must be cpu or cuda.")
endif()

option(DCUDA_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(DCUDA_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(DCUDA_BUILD_APPS "Build the case studies (benchmarks/case_studies)" ${PROJECT_IS_TOP_LEVEL})
option(DCUDA_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(DCUDA_HOST_TESTS "Build with everything the test programs that run nothing on a GPU, too" ON)
option(DCUDA_INSTALL "Make the install rules" ${PROJECT_IS_TOP_LEVEL})
option(DCUDA_FMT_HEADER_ONLY "Compile fmt into each file that uses it; off: link its library, which compiles sooner" ON)
option(DCUDA_WERROR "Turn warnings in dCUDA's own sources into errors" OFF)
option(DCUDA_LITMUS "Let tests weaken one memory ordering at run time (CPU backend only)" OFF)
option(DCUDA_CPU_WARPS "Ranks of the CPU backend keep their books by a whole warp, as on a GPU (tests; slow)" OFF)
set(DCUDA_DELAYS 0 CACHE STRING "Tests on GPUs: delay warps at random where their order matters; a seed, or 0")
option(DCUDA_FUZZ "Build what is fuzzed, tests/faults/fuzz (CPU backend, clang; preset cpu-fuzz)" OFF)
option(DCUDA_CHECKER "Build programs so that the protocol checker sees their loads and stores (CPU backend only)" OFF)
set(DCUDA_SANITIZE "" CACHE STRING "thread, address (with undefined behaviour) or empty (CPU backend only)")
set_property(CACHE DCUDA_SANITIZE PROPERTY STRINGS "" thread address)
if(NOT DCUDA_SANITIZE MATCHES "^(|thread|address)$")
    message(FATAL_ERROR "DCUDA_SANITIZE is '${DCUDA_SANITIZE}'; it must be thread, address or empty.")
endif()
set(DCUDA_TRAFFIC_SECONDS 3 CACHE STRING "How long each test of random traffic runs")
if(DCUDA_BACKEND STREQUAL "cuda" AND (DCUDA_SANITIZE OR DCUDA_LITMUS))
    message(FATAL_ERROR "DCUDA_SANITIZE and DCUDA_LITMUS need DCUDA_BACKEND=cpu.")
endif()
if(DCUDA_FUZZ AND NOT (DCUDA_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang"))
    message(FATAL_ERROR "DCUDA_FUZZ needs DCUDA_SANITIZE=address and clang: cmake --preset cpu-fuzz")
endif()
if(DCUDA_CHECKER AND (DCUDA_BACKEND STREQUAL "cuda" OR DCUDA_SANITIZE))
    message(FATAL_ERROR "DCUDA_CHECKER needs DCUDA_BACKEND=cpu, without DCUDA_SANITIZE.")
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# CMake's own error names neither nvcc nor the backend that does without.
if(DCUDA_BACKEND STREQUAL "cuda" AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(DCUDA_NVCC nvcc)
    mark_as_advanced(DCUDA_NVCC)
    if(NOT DCUDA_NVCC)
        message(FATAL_ERROR "The cuda backend needs nvcc, which is not on the PATH. Install the CUDA toolkit and put its bin "
                            "directory on the PATH, or set CUDACXX to nvcc's path. Without it there is the CPU backend: "
                            "cmake --preset cpu")
    endif()
endif()
if(DCUDA_BACKEND STREQUAL "cuda" AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Machine code for A100 and H100/H200, and PTX of the newest for what comes after.
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPU architectures")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Programs lie together in the build directory: dcuda-run and the tests find each other there.
if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
endif()

# dcuda_module_runpath(<variable> <folder of the installed programs>): how these find the folder of transports' modules,
# wherever the installation is moved to.
function(dcuda_module_runpath variable folder)
    file(RELATIVE_PATH way "${CMAKE_INSTALL_PREFIX}/${folder}" "${CMAKE_INSTALL_FULL_LIBDIR}/dcuda")
    set(${variable} "$ORIGIN/${way}" PARENT_SCOPE)
endfunction()
if(PROJECT_IS_TOP_LEVEL)
    list(APPEND CMAKE_BUILD_RPATH "$ORIGIN/../lib/dcuda") # in the build tree
    dcuda_module_runpath(way "${CMAKE_INSTALL_BINDIR}")
    list(APPEND CMAKE_INSTALL_RPATH "${way}")
endif()

find_program(DCUDA_CCACHE ccache)
mark_as_advanced(DCUDA_CCACHE)
if(DCUDA_CCACHE AND PROJECT_IS_TOP_LEVEL)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${DCUDA_CCACHE}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${DCUDA_CCACHE}")
endif()
