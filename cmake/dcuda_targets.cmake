# SPDX-License-Identifier: BSD-3-Clause
# The targets that users link. Their exported names carry the backend, so that both can be installed side by side;
# dcuda::device, dcuda::host and dcuda::dcuda name those of the backend in use.
set(dcuda_backend ${DCUDA_BACKEND})

# dcuda::device: the headers.
add_library(dcuda_device INTERFACE)
target_compile_features(dcuda_device INTERFACE cxx_std_20)
target_include_directories(
    dcuda_device INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                           "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
if(dcuda_backend STREQUAL "cpu")
    # The CPU backend's <cuda_runtime.h>.
    target_include_directories(
        dcuda_device INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/dcuda/cpu>"
                               "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/dcuda/cpu>")
else()
    target_compile_definitions(dcuda_device INTERFACE DCUDA_BACKEND_CUDA=1)
    target_link_libraries(dcuda_device INTERFACE CUDA::cudart_static)
endif()
if(DCUDA_LITMUS)
    target_compile_definitions(dcuda_device INTERFACE DCUDA_LITMUS=1)
endif()
if(DCUDA_CPU_WARPS)
    target_compile_definitions(dcuda_device INTERFACE DCUDA_CPU_WARPS=1)
endif()
if(DCUDA_DELAYS)
    target_compile_definitions(dcuda_device INTERFACE DCUDA_DELAYS=${DCUDA_DELAYS})
endif()
if(DCUDA_SANITIZE)
    string(REPLACE "address" "address,undefined" sanitizers "${DCUDA_SANITIZE}")
    if(DCUDA_FUZZ)
        string(APPEND sanitizers ",fuzzer-no-link")
    endif()
    set(sanitizer_options -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_compile_options(dcuda_device INTERFACE "$<BUILD_INTERFACE:${sanitizer_options}>")
    target_link_options(dcuda_device INTERFACE "$<BUILD_INTERFACE:${sanitizer_options}>")
endif()

# dcuda::host: the library, from src/. The host compiler compiles it for both backends, but for one kernel.
add_library(dcuda_host STATIC)
target_link_libraries(dcuda_host PUBLIC dcuda_device Threads::Threads)
set_target_properties(dcuda_host PROPERTIES OUTPUT_NAME dcuda_${dcuda_backend} POSITION_INDEPENDENT_CODE ON)

# dcuda::dcuda: both.
add_library(dcuda_dcuda INTERFACE)
target_link_libraries(dcuda_dcuda INTERFACE dcuda_device dcuda_host)

# dcuda::checked: for programs whose loads and stores the protocol checker shall see. Compiled for ThreadSanitizer and
# linked without it: the functions that the compiler calls are in this library. Without tail calls, so that the stack shows who
# called an operation.
set(dcuda_parts device host dcuda)
if(dcuda_backend STREQUAL "cpu" AND NOT DCUDA_SANITIZE) # two kinds of instrumentation do not go together
    list(APPEND dcuda_parts checked)
    add_library(dcuda_checked STATIC)
    target_link_libraries(dcuda_checked PUBLIC dcuda_host)
    target_compile_options(
        dcuda_checked
        INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;-fno-builtin-memcpy;-fno-builtin-memmove;-fno-builtin-memset;-fno-optimize-sibling-calls>")
    target_link_options(dcuda_checked INTERFACE "LINKER:--wrap=memcpy,--wrap=memmove,--wrap=memset")
    set_target_properties(dcuda_checked PROPERTIES OUTPUT_NAME dcuda_checked POSITION_INDEPENDENT_CODE ON)
endif()

foreach(part IN LISTS dcuda_parts)
    set_target_properties(dcuda_${part} PROPERTIES EXPORT_NAME ${part}_${dcuda_backend})
    add_library(dcuda::${part}_${dcuda_backend} ALIAS dcuda_${part})
    add_library(dcuda::${part} ALIAS dcuda_${part})
endforeach()

# Warnings, for dCUDA's own sources only.
add_library(dcuda_warnings INTERFACE)
set(host_warnings -Wall -Wextra -Wshadow)
target_compile_options(dcuda_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${host_warnings};-Wpedantic>")
list(JOIN host_warnings "," host_warnings_of_nvcc)
target_compile_options(dcuda_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_warnings_of_nvcc}>")
if(DCUDA_WERROR)
    target_compile_options(
        dcuda_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>"
                                 "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
