# SPDX-License-Identifier: BSD-3-Clause
# Third-party libraries. Each is looked for in .deps/ of the source tree first (scripts/fetch_dependencies.sh fills it
# where there is no root or, later, no network), then in the system.
set(dcuda_deps_dir "${CMAKE_CURRENT_SOURCE_DIR}/.deps/usr")
set(dcuda_cure "Run scripts/install_dependencies.sh, or scripts/fetch_dependencies.sh where you are not root.")

# dcuda_find_header_only(<target> <header>): an imported target for a library of headers.
function(dcuda_find_header_only target header)
    if(TARGET ${target})
        return()
    endif()
    string(MAKE_C_IDENTIFIER "DCUDA_INCLUDE_${target}" variable)
    find_path(${variable} ${header} HINTS "${dcuda_deps_dir}/include")
    mark_as_advanced(${variable})
    if(NOT ${variable})
        message(FATAL_ERROR "dCUDA needs ${header}, which was not found. ${dcuda_cure}")
    endif()
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    # As a system directory: no warnings from there. The compiler's own directories must not be named again.
    if(NOT ${variable} IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
        target_include_directories(${target} SYSTEM INTERFACE "${${variable}}")
    endif()
endfunction()

find_package(Threads REQUIRED)
dcuda_find_header_only(fmt::fmt-header-only fmt/format.h)
set_property(TARGET fmt::fmt-header-only APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
# What the project's own targets link. Without DCUDA_FMT_HEADER_ONLY they need fmt's library at run time, too.
if(DCUDA_FMT_HEADER_ONLY)
    add_library(dcuda_fmt INTERFACE IMPORTED GLOBAL)
    target_link_libraries(dcuda_fmt INTERFACE fmt::fmt-header-only)
else()
    dcuda_find_header_only(dcuda_fmt fmt/format.h)
    find_library(DCUDA_FMT_LIBRARY fmt REQUIRED)
    mark_as_advanced(DCUDA_FMT_LIBRARY)
    target_link_libraries(dcuda_fmt INTERFACE "${DCUDA_FMT_LIBRARY}")
endif()
dcuda_find_header_only(CLI11::CLI11 CLI/CLI.hpp)
dcuda_find_header_only(nlohmann_json::nlohmann_json nlohmann/json.hpp)

# libsodium, by which processes on several hosts know each other. The archive, so that programs need nothing at run
# time; an installed dCUDA has a copy of it (dcuda_install.cmake).
find_path(DCUDA_SODIUM_INCLUDE sodium.h HINTS "${dcuda_deps_dir}/include")
find_library(DCUDA_SODIUM_LIBRARY NAMES libsodium.a sodium HINTS "${dcuda_deps_dir}/lib"
             PATH_SUFFIXES "${CMAKE_LIBRARY_ARCHITECTURE}")
mark_as_advanced(DCUDA_SODIUM_INCLUDE DCUDA_SODIUM_LIBRARY)
if(NOT DCUDA_SODIUM_INCLUDE OR NOT DCUDA_SODIUM_LIBRARY)
    message(FATAL_ERROR "dCUDA needs libsodium, which was not found. ${dcuda_cure}")
endif()

# PMIx, of which only the headers are needed. Without them, jobs over several hosts under Open MPI's mpirun or
# srun --mpi=pmix must be told where to meet.
find_path(DCUDA_PMIX_INCLUDE pmix.h HINTS "${dcuda_deps_dir}/lib" "${dcuda_deps_dir}/include"
          PATH_SUFFIXES "${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/include" "${CMAKE_LIBRARY_ARCHITECTURE}/pmix/include"
          PATHS "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/include" "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix/include"
                /opt/pmix/include)
mark_as_advanced(DCUDA_PMIX_INCLUDE)

if(DCUDA_BACKEND STREQUAL "cpu")
    find_package(Boost QUIET COMPONENTS context)
    if(NOT TARGET Boost::context)
        message(FATAL_ERROR "dCUDA's CPU backend needs Boost.Context, which was not found. ${dcuda_cure}")
    endif()
endif()

if(DCUDA_BUILD_APPS AND NOT TARGET PNG::PNG)
    if(EXISTS "${dcuda_deps_dir}/include/png.h")
        file(GLOB_RECURSE dcuda_png_archives "${dcuda_deps_dir}/lib/libpng16.a")
        file(GLOB_RECURSE dcuda_zlib_archives "${dcuda_deps_dir}/lib/libz.a")
        add_library(PNG::PNG INTERFACE IMPORTED)
        target_include_directories(PNG::PNG SYSTEM INTERFACE "${dcuda_deps_dir}/include/libpng16")
        target_link_libraries(PNG::PNG INTERFACE "${dcuda_png_archives}" "${dcuda_zlib_archives}" m)
    else()
        find_package(PNG)
    endif()
    if(NOT TARGET PNG::PNG)
        message(FATAL_ERROR "dCUDA's applications need libpng, which was not found. ${dcuda_cure} "
                            "Or leave them out: -DDCUDA_BUILD_APPS=OFF")
    endif()
endif()

if(DCUDA_BUILD_TESTS AND NOT TARGET GTest::gtest)
    if(EXISTS "${dcuda_deps_dir}/src/googletest/CMakeLists.txt")
        set(INSTALL_GTEST OFF)
        set(BUILD_GMOCK ON)
        add_subdirectory("${dcuda_deps_dir}/src/googletest" "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
    else()
        find_package(GTest)
    endif()
    if(NOT TARGET GTest::gtest)
        message(FATAL_ERROR "dCUDA's tests need GoogleTest, which was not found. ${dcuda_cure} "
                            "Or leave them out: -DDCUDA_BUILD_TESTS=OFF")
    endif()
endif()

# dcuda_find_network(<name> <header> <library>): the target dcuda::library_<name> and DCUDA_<NAME>_FOUND for the library
# of a transport. DCUDA_WITH_<NAME> leaves the transport out.
function(dcuda_find_network name header library)
    string(TOUPPER ${name} upper)
    option(DCUDA_WITH_${upper} "Build the transport ${name} if its library is here" ON)
    find_path(DCUDA_INCLUDE_${upper} ${header} HINTS "${dcuda_deps_dir}/include")
    find_library(DCUDA_LIBRARY_${upper} ${library} HINTS "${dcuda_deps_dir}/lib")
    mark_as_advanced(DCUDA_INCLUDE_${upper} DCUDA_LIBRARY_${upper})
    set(found OFF)
    if(DCUDA_INCLUDE_${upper} AND DCUDA_LIBRARY_${upper})
        set(found ON)
        add_library(dcuda::library_${name} INTERFACE IMPORTED GLOBAL)
        if(NOT DCUDA_INCLUDE_${upper} IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
            target_include_directories(dcuda::library_${name} SYSTEM INTERFACE "${DCUDA_INCLUDE_${upper}}")
        endif()
        target_link_libraries(dcuda::library_${name} INTERFACE "${DCUDA_LIBRARY_${upper}}")
    endif()
    set(DCUDA_${upper}_FOUND ${found} PARENT_SCOPE)
    message(STATUS "dCUDA: transport ${name}: ${found}")
endfunction()
dcuda_find_network(ofi rdma/fabric.h fabric)
dcuda_find_network(verbs infiniband/verbs.h ibverbs)
# Off, since nobody has run it: no device of the developers has it.
option(DCUDA_WITH_VERBS_DC "Build the dynamic connections of mlx5 devices into the transport verbs" OFF)
if(DCUDA_WITH_VERBS_DC)
    find_library(DCUDA_LIBRARY_MLX5 mlx5 HINTS "${dcuda_deps_dir}/lib")
    mark_as_advanced(DCUDA_LIBRARY_MLX5)
    if(NOT (DCUDA_WITH_VERBS AND DCUDA_VERBS_FOUND AND DCUDA_LIBRARY_MLX5
            AND EXISTS "${DCUDA_INCLUDE_VERBS}/infiniband/mlx5dv.h"))
        message(FATAL_ERROR "DCUDA_WITH_VERBS_DC needs the transport verbs (DCUDA_WITH_VERBS), infiniband/mlx5dv.h and "
                            "libmlx5, which were not all found. Install them (Debian: libibverbs-dev), or leave it OFF.")
    endif()
endif()

# MPI has its own way: the compiler wrapper is asked, -DMPI_CXX_COMPILER=mpicxx.mpich chooses another.
option(DCUDA_WITH_MPI "Build the transport mpi if an MPI library is here" ON)
set(DCUDA_MPI_FOUND OFF)
if(DCUDA_WITH_MPI)
    set(MPI_CXX_SKIP_MPICXX ON) # the C interface only
    find_package(MPI 3.0 QUIET COMPONENTS CXX)
    if(MPI_CXX_FOUND) # the target is there in any case
        set(DCUDA_MPI_FOUND ON)
        add_library(dcuda::library_mpi INTERFACE IMPORTED GLOBAL)
        target_link_libraries(dcuda::library_mpi INTERFACE MPI::MPI_CXX)
        target_link_options(dcuda::library_mpi INTERFACE -Wl,--as-needed) # not the C++ interface's library
    endif()
endif()
message(STATUS "dCUDA: transport mpi: ${DCUDA_MPI_FOUND}")
