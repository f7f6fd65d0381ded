#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds dCUDA as a user gets it, and a user's program with it; runs the program where it is for the CPU.
#
#   run.sh find_package <build directory of dCUDA> <its backend> [benchmarks: they are installed with case studies]
#   run.sh add_subdirectory
#   run.sh missing_backend <build directory of dCUDA> <its backend>
#   run.sh missing_nvcc
set -euo pipefail
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The least information and the library's files in one, so that the test is quick.
configure() {
    cmake -S "$here/$1" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG= -DCMAKE_UNITY_BUILD=ON \
        -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 "${@:2}"
}
say_hello() {
    "$work/build/hello_cpu" --dcuda-ranks=3 | tee "$work/output"
    grep -qx 'hello from 3 ranks' "$work/output"
}

# Modules of transports come from the installation that the program was linked with, and from nowhere else.
# check_modules <build directory of dCUDA>
check_modules() {
    if grep -rlF "$1/lib/dcuda" "$work/prefix" "$work/build/hello_cpu"; then
        echo "These files know the folder of the build tree."
        exit 1
    fi
    local module
    module=$(find "$work/prefix" -name libdcuda_ofi.so)
    [ -n "$module" ] || return 0 # libfabric is not here, or not wanted
    over_ofi
    grep -qx 'hello from 6 ranks' "$work/output" || { cat "$work/output"; exit 1; }
    # Where anybody could have put it, it is not taken, unless the user says so.
    chmod o+w "$(dirname "$module")"
    over_ofi
    complains 'not taken from there, because other users may write there'
    over_ofi DCUDA_TRANSPORT_PATH="$(dirname "$module")"
    grep -qx 'hello from 6 ranks' "$work/output" || { cat "$work/output"; exit 1; }
    chmod o-w "$(dirname "$module")"
    # Folders that cannot be looked into are passed over.
    over_ofi DCUDA_TRANSPORT_PATH="/proc/self/fd/0/x:/$(head -c 5000 /dev/zero | tr '\0' x)"
    grep -qx 'hello from 6 ranks' "$work/output" || { cat "$work/output"; exit 1; }
    # The variable is not read by a program that has other rights than who starts it.
    if [ "$(id -u)" = 0 ] && ! findmnt -no OPTIONS -T "$work" | grep -q nosuid; then
        chmod 755 "$work"
        cp "$work/prefix/bin/dcuda-info" "$work/info"
        DCUDA_TRANSPORT_PATH="$(dirname "$module")" "$work/info" | grep 'transports found:.* ofi' >/dev/null
        chown 65534 "$work/info"
        chmod u+s "$work/info"
        DCUDA_TRANSPORT_PATH="$(dirname "$module")" "$work/info" | grep 'transports found: none' >/dev/null
    fi
    rm "$module"
    over_ofi
    complains "there is no transport ofi here (libdcuda_ofi.so in $(dirname "$module"))"
}
over_ofi() {
    env DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=ofi:tcp "$@" "$work/prefix/bin/dcuda-run" -n 2 "$work/build/hello_cpu" \
        --dcuda-ranks=3 >"$work/output" 2>&1 || true
}
complains() {
    grep -qF "$1" "$work/output" && ! grep -q 'hello from\|terminate called' "$work/output" || { cat "$work/output"; exit 1; }
}

# at_most <limit in MiB> <file or folder>: how much it holds
at_most() {
    local bytes
    bytes=$(du -sb "$2" | cut -f 1)
    if [ "$bytes" -gt $(($1 << 20)) ]; then
        echo "$2 has $bytes bytes, more than $1 MiB. Its largest files:"
        find "$2" -type f -printf '%s %p\n' | sort -rn | head
        exit 1
    fi
}
# Without CMake, as docs/guide/getting_started.md says.
use_pkg_config() {
    command -v pkg-config >/dev/null || { echo "Without pkg-config: its file is not tried."; return 0; }
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name dcuda-cpu.pc)")
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046 # several words
    c++ -std=c++20 -x c++ "$here/hello.cu" $(pkg-config --cflags --libs dcuda-cpu) -o "$work/hello"
    "$work/hello" --dcuda-ranks=3 | grep -qx 'hello from 3 ranks'
}

case "$1" in
find_package)
    # As make install does, where a build without debug information has little to strip.
    cmake --install "$2" --prefix "$work/prefix" --strip >/dev/null
    [ "$3" = cuda ] || at_most 60 "$work/prefix"
    configure find_package -DCMAKE_PREFIX_PATH="$work/prefix" -DHELLO_BACKENDS="$3"
    cmake --build "$work/build"
    if [ "$3" = cpu ]; then
        at_most 3 "$work/build/hello_cpu"
        say_hello
        use_pkg_config
        # An example, with the file that is installed beside it.
        cmake -S "$work/prefix/share/doc/dcuda/examples" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
        cmake --build "$work/examples" --target 02_ring
        "$work/examples/02_ring" --dcuda-ranks=3
        [ -e "$work/prefix/share/doc/dcuda/docs/guide/getting_started.md" ]
    fi
    if [ -x "$work/build/hello_checked" ]; then # not in sanitizer builds
        DCUDA_CHECK=1 "$work/build/hello_checked" --dcuda-ranks=3 2>&1 | tee "$work/output"
        grep -q 'dcuda: check: .*: nothing found' "$work/output"
        ! grep -q 'not built for the checker' "$work/output" || exit 1
    fi
    [ -x "$work/prefix/bin/dcuda-run" ] && [ -x "$work/prefix/bin/dcuda-info" ]
    [ "$3" = cuda ] || check_modules "$(realpath "$2")"
    # Headers that are not the library's: a link error that says so.
    cp -r "$work/prefix/include" "$work/others"
    sed -i 's/^struct device_context {/&\n    std::uint64_t another[9];/' "$work/others/dcuda/detail/protocol/protocol.hpp"
    rm -r "$work/build"
    configure find_package -DCMAKE_PREFIX_PATH="$work/prefix" -DHELLO_BACKENDS="$3" -DCMAKE_CXX_FLAGS="-I$work/others" \
        -DCMAKE_CUDA_FLAGS="-I$work/others"
    if cmake --build "$work/build" --target "hello_$3" >"$work/output" 2>&1; then
        echo "A program with other headers than the library was linked."
        exit 1
    fi
    grep -q 'undefined reference to .*this_program_was_compiled_with_headers_of_another_dcuda' "$work/output" ||
        { cat "$work/output"; exit 1; }
    # The benchmarks find the case studies that are installed with them.
    [ "$3" = cuda ] || [ "${4:-}" != benchmarks ] || "$work/prefix/bin/dcuda-bench" apps --apps stencil --devices 1,2 --models dcuda --repeat 1 \
        --options "stencil=--nx 16 --ny 9 --nz 2 --iterations 10 --ranks 3" --verify
    ;;
add_subdirectory)
    configure add_subdirectory -DDCUDA_SOURCE_DIR="$(realpath "$here/../..")"
    cmake --build "$work/build" --target hello_cpu
    say_hello
    ;;
missing_backend)
    # The other backend than the one installed: an error that says what to do.
    cmake --install "$2" --prefix "$work/prefix" >/dev/null
    other=$([ "$3" = cpu ] && echo cuda || echo cpu)
    mkdir "$work/project"
    cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(hello LANGUAGES CXX)
find_package(dcuda REQUIRED)
dcuda_add_executable(hello BACKEND $other SOURCES hello.cu)
END
    if cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/output" 2>&1; then
        echo "CMake accepted a backend that is not installed."
        exit 1
    fi
    tr -s ' \n' ' ' <"$work/output" | tee "$work/line" | grep -q "this dCUDA has no $other backend" || { cat "$work/output"; exit 1; }
    grep -q "cmake --preset $other" "$work/line"
    ;;
missing_nvcc)
    # Where no CUDA is, the cuda backend ends with the reason and the cure.
    folders=$(which -a nvcc 2>/dev/null | xargs -r -n 1 dirname | paste -sd ';') || true
    if env -u CUDACXX cmake -S "$here/../.." -B "$work/build" -DDCUDA_BACKEND=cuda -DCMAKE_IGNORE_PATH="$folders" \
        >"$work/output" 2>&1; then
        echo "CMake found a way without nvcc."
        exit 1
    fi
    tr -s ' \n' ' ' <"$work/output" >"$work/line"
    grep -q 'needs nvcc, which is not on the PATH.*cmake --preset cpu' "$work/line" || { cat "$work/output"; exit 1; }
    ;;
esac
