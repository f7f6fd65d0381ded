#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the benchmarks of a build directory: the rivals that were built, then dcuda-bench with one process and with as
# many as there are GPUs, at most four. Tables on standard output; a record (JSON) of each run in the output directory.
#
#   benchmarks/run.sh <build directory> [<output directory>; default: <build directory>/benchmarks/results]
set -uo pipefail
if [ $# -lt 1 ] || [ ! -x "$1/bin/dcuda-bench" ]; then
    echo "Use: $0 <build directory> [<output directory>]; the benchmarks must be built there: make bench" >&2
    exit 2
fi
build=$(realpath "$1")
bin=$build/bin
mkdir -p "${2:-$build/benchmarks/results}" || exit
out=$(realpath "${2:-$build/benchmarks/results}")
cd "$(dirname "$0")/.." || exit
DCUDA_COMMIT=${DCUDA_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || true)}
export DCUDA_COMMIT
export NVSHMEM_DISABLE_NVLS=1 NCCL_NVLS_ENABLE=0
status=0
rm -f "$out"/{alone,together,unchecked_alone,unchecked_together,nvshmem,nccl}.{json,txt}

# What runs when this script is stopped goes with it: timeout passes the signal on to all that it started.
child=
trap '[ -z "$child" ] || kill "$child" 2>/dev/null; wait; exit 143' TERM INT HUP

# run NAME SECONDS COMMAND...: the record is NAME.json, what it prints NAME.txt.
run() {
    local name=$1 limit=$2 code=0 start=$SECONDS
    shift 2
    timeout --kill-after=10 "$limit" "$@" --json "$out/$name.json" >"$out/$name.txt" 2>&1 &
    child=$!
    wait "$child" || code=$?
    echo
    echo "--- $name: ${*#"$bin/"} ($((SECONDS - start)) s) ---"
    cat "$out/$name.txt"
    [ $code -ne 124 ] || echo "FAILED: not done after $limit s: $*"
    return $code
}

# The CPU backend has as many devices as there are processes.
processes=2
if grep -qE '^DCUDA_BACKEND:[A-Z]+=cuda$' "$build/CMakeCache.txt"; then
    processes=$(scripts/gpus.sh | wc -l)
    [ "$processes" -le 4 ] || processes=4
fi

rivals=()
if [ "$processes" -ge 2 ]; then
    for rival in nvshmem nccl; do
        if [ ! -x "$bin/bench_$rival" ]; then
            echo "$rival: not built, so no comparison with it"
        # What goes wrong there is not an error of ours.
        elif run $rival 90 "$bin/dcuda-run" -n "$processes" "$bin/bench_$rival"; then
            rivals+=(--rival "$out/$rival.json")
        else
            echo "$rival did not run (exit status $?): no comparison with it"
        fi
    done
fi

# bench NAME LAUNCHER...: the latencies without checks, for what the checks cost; then everything.
bench() {
    local name=$1 compare=()
    shift
    if [ -x "$bin/dcuda-bench-unchecked" ]; then
        if run "unchecked_$name" 30 "$@" "$bin/dcuda-bench-unchecked" latency; then
            compare=(--compare "$out/unchecked_$name.json")
        else
            status=1
        fi
    else
        echo "dcuda-bench-unchecked: not built, so the cost of the checks is not shown"
    fi
    run "$name" 180 "$@" "$bin/dcuda-bench" all "${compare[@]}" "${rivals[@]}" || status=1
}

bench alone
if [ "$processes" -ge 2 ]; then
    bench together "$bin/dcuda-run" -n "$processes"
else
    echo "--- two processes: skipped, they take 2 GPUs and here are $processes ---"
fi
exit $status
