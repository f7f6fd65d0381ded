# SPDX-License-Identifier: BSD-3-Clause
# Libraries to compare with, where the backend is cuda and pip or the user has put them: the targets dcuda::rival_nccl and
# dcuda::rival_nvshmem, and dcuda_link_rival(<target> <nccl|nvshmem>).
include_guard(GLOBAL)
if(NOT DCUDA_BACKEND STREQUAL "cuda")
    return()
endif()

# dcuda_find_rival(<name> <header> <library>...): all of them must be there.
function(dcuda_find_rival name header)
    string(TOUPPER ${name} upper)
    set(folder DCUDA_${upper}_DIR)
    if(NOT ${folder})
        find_program(DCUDA_PYTHON NAMES python3)
        mark_as_advanced(DCUDA_PYTHON)
        set(hint "")
        if(DCUDA_PYTHON)
            execute_process(
                COMMAND "${DCUDA_PYTHON}" -c "import nvidia.${name} as m; print(list(m.__path__)[0])"
                OUTPUT_VARIABLE hint
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        endif()
        set(${folder} "${hint}" CACHE PATH "${upper}, with include/ and lib/, for comparison" FORCE)
    endif()
    find_path(DCUDA_${upper}_INCLUDE ${header} PATHS "${${folder}}/include" NO_DEFAULT_PATH)
    mark_as_advanced(DCUDA_${upper}_INCLUDE)
    set(found ${DCUDA_${upper}_INCLUDE})
    set(files "")
    foreach(library IN LISTS ARGN)
        string(MAKE_C_IDENTIFIER "DCUDA_RIVAL_${library}" variable)
        # pip leaves out the name without a version.
        find_library(${variable} NAMES ${library} ${library}.2 ${library}.3 PATHS "${${folder}}/lib" NO_DEFAULT_PATH)
        mark_as_advanced(${variable})
        list(APPEND files "${${variable}}")
        if(NOT ${variable})
            set(found "")
        endif()
    endforeach()
    if(NOT found)
        message(STATUS "No ${upper}, so no comparison with it: pip install nvidia-${name}-cu${CUDAToolkit_VERSION_MAJOR} "
                       "or set ${folder}")
        return()
    endif()
    message(STATUS "${upper} for comparison: ${${folder}}")
    add_library(dcuda::rival_${name} INTERFACE IMPORTED GLOBAL)
    target_include_directories(dcuda::rival_${name} SYSTEM INTERFACE "${DCUDA_${upper}_INCLUDE}")
    target_link_libraries(dcuda::rival_${name} INTERFACE ${files} CUDA::cudart_static)
endfunction()
dcuda_find_rival(nccl nccl.h libnccl.so)
dcuda_find_rival(nvshmem nvshmem.h libnvshmem_device.a libnvshmem_host.so)

function(dcuda_link_rival target name)
    string(TOUPPER ${name} upper)
    target_link_libraries(${target} PRIVATE dcuda::rival_${name})
    set_target_properties(${target} PROPERTIES BUILD_RPATH "${DCUDA_${upper}_DIR}/lib")
    if(name STREQUAL "nvshmem")
        # Its device code is a library that is linked on the device; that calls the driver.
        set_target_properties(${target} PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
        target_link_libraries(${target} PRIVATE CUDA::cuda_driver)
    endif()
endfunction()
