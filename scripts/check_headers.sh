#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compiles every header of include/ alone for the CPU backend. With nvcc for the CUDA backend: those that users include, and those
# that only this backend has; that the others include what they need, the CPU backend shows.
#
#   scripts/check_headers.sh [cpu|cuda]     (default: both)
set -euo pipefail
cd "$(dirname "$0")/.."

cxx=${CXX:-c++}
nvcc=${NVCC:-nvcc}
backends=${1:-cpu cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

warnings="-Wall -Wextra -Wshadow -Werror"
compile_cpu() {
    echo "#include \"$1\"" >"$2.cpp"
    "$cxx" -std=c++20 -fsyntax-only $warnings -Wpedantic -Iinclude -Iinclude/dcuda/cpu "$2.cpp"
}
compile_cuda() {
    echo "#include \"$1\"" >"$2.cu"
    "$nvcc" -std=c++20 -arch=sm_90 -Werror=all-warnings -Xcompiler="${warnings// /,}" -Iinclude -ptx "$2.cu" -o "$2.ptx"
}
check_header() {
    local backend=$1 header=$2 log="$3"
    "compile_$backend" "$header" "$log" >"$log" 2>&1 || { echo "$header, alone, does not compile for $backend:"; cat "$log"; return 1; }
}

command -v "$nvcc" >/dev/null || case " $backends " in *" cuda "*)
    echo "check_headers.sh: nvcc was not found, so the CUDA backend cannot be checked. Put it on the PATH." >&2
    exit 1 ;;
esac

export cxx nvcc warnings
export -f compile_cpu compile_cuda check_header
count=0
for backend in $backends; do
    for header in $(cd include && find . -name '*.hpp' -o -name '*.h' -o -name '*.cuh' | sed 's|^\./||' | sort); do
        case "$backend:$header" in
        cpu:*.cuh | cpu:*_cuda.hpp | cuda:dcuda/cpu/* | cuda:*_cpu.hpp) continue ;; # of the other backend
        cuda:*.cuh | cuda:*_cuda.hpp) ;;
        cuda:dcuda/detail/*) continue ;;
        esac
        count=$((count + 1))
        printf '%s\0%s\0%s\0' "$backend" "$header" "$work/$count"
    done
done >"$work/jobs"
xargs -0 -n 3 -P "$(nproc)" bash -c 'check_header "$@" || exit 255' check_header <"$work/jobs"
echo "headers: $(tr -cd '\0' <"$work/jobs" | wc -c | awk '{print $1 / 3}') compile alone ($backends)"
