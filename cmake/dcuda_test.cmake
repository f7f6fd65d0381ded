# SPDX-License-Identifier: BSD-3-Clause
# dcuda_add_test(<name> SOURCES <file>... [PROCESSES <n>...] [RANKS <n>...] [LABELS <label>...] [TIMEOUT <seconds>]
#                [LIBRARIES <target>...] [ARGUMENTS <argument>...] [HOST_ONLY])
#
# One GoogleTest program, run once for each number of processes (under dcuda-run; default: alone, without it) and each
# number of ranks per device (default: the program's own). Names: <name>, <name>.p4, <name>.p4.r8. A program that ends
# with 77 counts as skipped. RANKS arrives as DCUDA_RANKS_PER_DEVICE. HOST_ONLY: it runs nothing on a GPU, and has
# the label host_only; without DCUDA_HOST_TESTS it is not built with everything.
function(dcuda_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "HOST_ONLY" "TIMEOUT" "SOURCES;PROCESSES;RANKS;LABELS;LIBRARIES;ARGUMENTS")
    if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
        message(FATAL_ERROR "dcuda_add_test(${name}): no SOURCES, or unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
    endif()
    dcuda_add_test_program(${name} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES})
    set(host_only "")
    if(arg_HOST_ONLY)
        set(host_only HOST_ONLY)
        if(NOT DCUDA_HOST_TESTS)
            set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
        endif()
    endif()
    dcuda_register_test(
        ${name} ${host_only} COMMAND $<TARGET_FILE:test_${name}> ${arg_ARGUMENTS} PROCESSES ${arg_PROCESSES} RANKS ${arg_RANKS}
        LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()

# dcuda_add_test_program(<name> SOURCES <file>... [LIBRARIES <target>...]): the program test_<name> alone.
function(dcuda_add_test_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
    dcuda_add_executable(test_${name} SOURCES ${arg_SOURCES})
    target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
    target_link_libraries(test_${name} PRIVATE dcuda_test_main GTest::gtest dcuda_fmt dcuda_warnings
                                               ${arg_LIBRARIES})
    if(DCUDA_BACKEND STREQUAL "cpu" AND TARGET dcuda_test_main)
        target_precompile_headers(test_${name} REUSE_FROM dcuda_test_main)
    endif()
endfunction()

# dcuda_register_test(<name> COMMAND <word>... [PROCESSES <n>...] [RANKS <n>...] [LABELS <label>...]
#                     [TIMEOUT <seconds>] [LAUNCHER <word>...] [ENVIRONMENT <NAME=value>...] [HOST_ONLY] [ALONE_ON_GPU]
#                     [GPUS <needed> [<most>]])
#
# The same for any command, such as an example. LAUNCHER: what starts several processes when ` -n <n>` follows it,
# instead of dcuda-run. ALONE_ON_GPU: no other test runs beside it where there are GPUs. GPUS: how many it needs there, and how
# many it takes at most; one for each process if not said.
function(dcuda_register_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "HOST_ONLY;ALONE_ON_GPU" "TIMEOUT" "COMMAND;PROCESSES;RANKS;LABELS;LAUNCHER;ENVIRONMENT;GPUS")
    if(NOT arg_LAUNCHER)
        set(arg_LAUNCHER $<TARGET_FILE:dcuda-run>)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 60)
    endif()
    if(DCUDA_SANITIZE)
        math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
    elseif(DCUDA_BACKEND STREQUAL "cuda" AND NOT arg_HOST_ONLY)
        # A process takes seconds until it may use its GPU, and some of these tests start a hundred.
        math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 3")
    endif()
    if(arg_HOST_ONLY)
        list(APPEND arg_LABELS host_only)
    endif()
    if(NOT arg_PROCESSES)
        set(arg_PROCESSES alone)
    endif()
    if(NOT arg_RANKS)
        set(arg_RANKS default)
    endif()
    foreach(processes IN LISTS arg_PROCESSES)
        foreach(ranks IN LISTS arg_RANKS)
            set(test ${name})
            set(launcher "")
            # What may take longest begins first, so that nothing long runs alone at the end.
            set(properties TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} SKIP_RETURN_CODE 77)
            if(NOT processes STREQUAL "alone")
                string(APPEND test ".p${processes}")
                set(launcher ${arg_LAUNCHER} -n ${processes})
                # Two cores, so that a small machine does not run several such tests at a time.
                list(APPEND properties PROCESSORS 2)
            endif()
            if(DCUDA_BACKEND STREQUAL "cuda" AND NOT arg_HOST_ONLY)
                # Kernels of processes that share a GPU take turns, which is no test of anything but patience.
                string(REPLACE alone 1 gpus ${processes})
                if(arg_GPUS)
                    set(gpus ${arg_GPUS})
                endif()
                list(GET gpus 0 needed_gpus)
                list(GET gpus -1 most_gpus)
                list(PREPEND launcher "${PROJECT_SOURCE_DIR}/scripts/needs_gpus.sh" ${needed_gpus})
                # Shares of GPUs, of which each has eight: so many there are on any machine.
                if(most_gpus GREATER 8)
                    set(most_gpus 8)
                endif()
                list(APPEND properties RESOURCE_GROUPS "${most_gpus},gpus:1")
                if(arg_ALONE_ON_GPU)
                    list(APPEND properties RUN_SERIAL TRUE)
                endif()
            endif()
            set(environment ${arg_ENVIRONMENT} "DCUDA_TEST_BACKEND=${DCUDA_BACKEND}")
            if(NOT ranks STREQUAL "default")
                string(APPEND test ".r${ranks}")
                list(APPEND environment "DCUDA_RANKS_PER_DEVICE=${ranks}")
            endif()
            if(DCUDA_SANITIZE)
                list(APPEND environment "DCUDA_TEST_SANITIZER=${DCUDA_SANITIZE}")
            endif()
            if(DCUDA_SANITIZE STREQUAL "thread")
                # Without the size there would be no small puts as messages: settings.cpp, default_small_put_bytes.
                list(APPEND environment "TSAN_OPTIONS=halt_on_error=1 second_deadlock_stack=1"
                     "DCUDA_SMALL_PUT_BYTES=4096")
            endif()
            add_test(NAME ${test} COMMAND ${launcher} ${arg_COMMAND})
            set_tests_properties(${test} PROPERTIES ${properties} LABELS "${arg_LABELS}" ENVIRONMENT "${environment}")
        endforeach()
    endforeach()
endfunction()
