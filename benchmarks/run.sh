#!/usr/bin/env bash
# Runs all benchmarks of a build directory: tables on standard output, records (JSON) in the output directory. On two or
# more GPUs the rivals that were built run first, and their results stand beside ours.
#
#   benchmarks/run.sh <build directory> [<output directory>; default: <build directory>/benchmarks/results]
set -uo pipefail
if [ $# -lt 1 ] || [ ! -x "$1/bin/notify_latency" ]; then
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
export NVSHMEM_DISABLE_NVLS=1
status=0

# What runs when this script is stopped goes with it: timeout passes the signal on to all that it started.
child=
trap '[ -z "$child" ] || kill "$child" 2>/dev/null; wait; exit 143' TERM INT HUP

# run SECONDS COMMAND...
run() {
    local limit=$1 code=0
    shift
    timeout --kill-after=10 "$limit" "$@" &
    child=$!
    wait "$child" || code=$?
    [ $code -ne 124 ] || echo "FAILED: not done after $limit s: $*"
    return $code
}

# The CPU backend has as many devices as there are processes.
devices=2
if grep -qE '^DCUDA_BACKEND:[A-Z]+=cuda$' "$build/CMakeCache.txt"; then
    devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
fi

echo "--- notify_latency, one process ---"
run 120 "$bin/notify_latency" --json "$out/notify_latency_alone.json" || status=1

if [ "$devices" -lt 2 ]; then
    echo "--- notify_latency, two processes: skipped, it takes 2 GPUs and here are $devices ---"
else
    rival=()
    if [ -x "$bin/nvshmem_latency" ]; then
        record=$(mktemp)
        echo "--- NVSHMEM, two processes ---"
        # What goes wrong there is not an error of ours.
        if run 120 "$bin/dcuda-run" -n 2 "$bin/nvshmem_latency" --json "$record"; then
            rival=(--rival "$record")
        else
            echo "NVSHMEM did not run (exit status $?): no comparison"
        fi
    fi
    echo "--- notify_latency, two processes ---"
    run 120 "$bin/dcuda-run" -n 2 "$bin/notify_latency" "${rival[@]}" --json "$out/notify_latency.json" || status=1
    rm -f "${record:-}"
fi
exit $status
