# SPDX-License-Identifier: BSD-3-Clause
# Builds the examples with an installed dCUDA: cmake -S . -B build -DCMAKE_PREFIX_PATH=<prefix>, cmake --build build.
# -DDCUDA_BACKEND=cpu or cuda chooses where both are installed.
cmake_minimum_required(VERSION 3.25)
project(dcuda_examples LANGUAGES CXX)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

find_package(dcuda REQUIRED)
if(NOT DCUDA_BACKEND)
    set(DCUDA_BACKEND cpu)
    if(dcuda_cuda_FOUND)
        set(DCUDA_BACKEND cuda)
    endif()
endif()
if(DCUDA_BACKEND STREQUAL "cuda")
    enable_language(CUDA)
endif()

file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cu")
foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    dcuda_add_executable(${name} SOURCES "${source}")
endforeach()
