#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs what dCUDA needs to build, on Debian 12 and Ubuntu 24.04 or later.
#
#   scripts/install_dependencies.sh [cpu|cuda] [--ci]
#
# Looks at what is there (in the system and in .deps/, see fetch_dependencies.sh) and installs what is missing: as root,
# or with sudo where it asks for no password. Else it prints the one line to run and ends with 1. --ci adds the tools
# of the checks and the libraries of the transports, which are optional otherwise. CUDA itself is never installed.
#
# DEPENDENCIES in the environment: ask (the default at a terminal), yes (the default elsewhere), or no: only say what is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."

backend=cpu
ci=
for argument in "$@"; do
    case "$argument" in
    cpu | cuda) backend=$argument ;;
    --ci) ci=yes ;;
    *) echo "Use: $0 [cpu|cuda] [--ci]" >&2; exit 2 ;;
    esac
done

cxx=${CXX:-c++}
missing=()

# need_command <package> <command> [<minimal version>]
need_command() {
    if ! command -v "$2" >/dev/null; then
        missing+=("$1")
    elif [ -n "${3:-}" ]; then
        local found
        found=$("$2" --version | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)
        if [ "$(printf '%s\n' "$3" "$found" | sort -V | head -n 1)" != "$3" ]; then
            echo "$2 is version $found; dCUDA needs $3 or later." >&2
            missing+=("$1")
        fi
    fi
}

# need_library <package> <header> [<linker option>...]
need_library() {
    local package=$1 header=$2
    shift 2
    [ -e ".deps/usr/include/$header" ] && return
    if ! echo "#include <$header>
int main() {}" | "$cxx" -std=c++20 -x c++ - -o /dev/null "$@" 2>/dev/null; then
        missing+=("$package")
    fi
}

if command -v "$cxx" >/dev/null; then
    need_library libfmt-dev fmt/format.h
    need_library libcli11-dev CLI/CLI.hpp
    need_library nlohmann-json3-dev nlohmann/json.hpp
    need_library libpng-dev png.h -lpng
    need_library libsodium-dev sodium.h -lsodium
    # Only headers, which Debian keeps in a directory of their own.
    compgen -G '/usr/lib/*/pmix*/include/pmix.h' >/dev/null || need_library libpmix-dev pmix.h
    need_library libgtest-dev gtest/gtest.h
    [ "$backend" = cpu ] && need_library libboost-context-dev boost/context/fiber.hpp -lboost_context
else
    missing+=(g++ libfmt-dev libcli11-dev nlohmann-json3-dev libpng-dev libsodium-dev libpmix-dev libgtest-dev)
    [ "$backend" = cpu ] && missing+=(libboost-context-dev)
fi
# The transports' libraries are optional, and what the checks want.
if [ -n "$ci" ]; then
    need_library libfabric-dev rdma/fabric.h -lfabric
    command -v mpicxx >/dev/null || missing+=(libopenmpi-dev)
    need_command openmpi-bin mpirun
    need_library libibverbs-dev infiniband/verbs.h -libverbs
    # For scripts/verbs_vm.sh.
    need_command qemu-system-x86 qemu-system-x86_64
    need_command busybox-static busybox
    need_command cpio cpio
    need_command kmod modprobe
    need_command iproute2 rdma
    need_command xz-utils xz
    # For scripts/fuzz.sh.
    if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
        clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null; then
        missing+=(clang libclang-rt-dev)
    fi
fi
need_command make make
need_command cmake cmake 3.25
need_command python3 python3
if [ -n "$ci" ]; then
    need_command git git
    need_command ninja-build ninja
    need_command clang-format clang-format
    need_command spin spin
    need_command pkg-config pkg-config
    # For scripts/bare_root.sh.
    need_command debootstrap debootstrap
    # For scripts/build_docs.sh.
    need_command doxygen doxygen
    python3 -c "import ensurepip, venv" 2>/dev/null || missing+=(python3-venv)
    # dcuda-bench --plot draws with it.
    python3 -c "import matplotlib" 2>/dev/null || missing+=(python3-matplotlib)
fi

[ ${#missing[@]} -eq 0 ] && exit 0

install="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "Missing; these are Debian's package names: ${missing[*]}" >&2
    echo "Install what your system calls them, then run this again." >&2
    exit 1
elif [ "$(id -u)" -eq 0 ]; then
    run=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    run=(sudo)
else
    echo "Missing: ${missing[*]}" >&2
    echo "Run this, then the same command again:" >&2
    echo "  sudo $install" >&2
    exit 1
fi
consent=${DEPENDENCIES:-$([ -t 0 ] && [ -t 1 ] && echo ask || echo yes)}
echo "dCUDA's build needs these packages, which are not here: ${missing[*]}"
case $consent in
yes) ;;
ask)
    read -r -p "Install them now with apt-get? [Y/n] " answer || answer=no
    [[ ${answer:-yes} =~ ^[Yy] ]] || consent=no
    ;;
no) ;;
*) echo "DEPENDENCIES=$consent: expected ask, yes or no" >&2; exit 2 ;;
esac
if [ "$consent" = no ]; then
    echo "Not installed. By hand: ${run[*]} $install" >&2
    exit 1
fi
"${run[@]}" apt-get update -qq
"${run[@]}" DEBIAN_FRONTEND=noninteractive $install </dev/null
