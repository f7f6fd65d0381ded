#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fuzzes what reads the words of others (tests/faults/fuzz): files, the control plane, what arrives over a network, the
# environment.
#
#   scripts/fuzz.sh [--build-only] [SECONDS] [TARGET...]
#
# Each target runs for so many seconds (default 10), several at a time, from the inputs in tests/faults/fuzz/corpus and those that earlier
# runs have found (build/cpu-fuzz/corpus). What ends a target badly stays in build/cpu-fuzz/found, with a line that runs it again.
# DCUDA_FUZZ_SEED=N tries the same inputs each time; without it other ones. Closes with "N passed, N failed, 0 skipped". Needs
# clang with its sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/cpu-fuzz
program=$build/bin/dcuda-fuzz

build_only=
if [ "${1:-}" = --build-only ]; then
    build_only=yes
    shift
fi
seconds=${1:-10}
shift || true
case "$seconds" in *[!0-9]* | 0 | '') echo "Use: $0 [--build-only] [SECONDS] [TARGET...]" >&2; exit 2 ;; esac

[ -e "$build/CMakeCache.txt" ] || cmake --preset cpu-fuzz -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -gline-tables-only" \
    -DCMAKE_UNITY_BUILD=ON -DDCUDA_FMT_HEADER_ONLY=OFF >/dev/null
cmake --build "$build" --parallel "$(scripts/build_jobs.sh)" --target dcuda-fuzz
[ -z "$build_only" ] || exit 0

known=$("$program" || true) # without a target it lists them
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets <<<"$known"
for target in "${targets[@]}"; do
    grep -qx "$target" <<<"$known" || { echo "There is no target $target; there are" $known >&2; exit 2; }
done

fuzz() {
    local target=$1 log
    local inputs=$build/corpus/$target found=$build/found
    mkdir -p "$inputs" "$found"
    log=$found/$target.log
    # The control server is a thread, which must not wait for the others' turns. A run of 25 s hangs: the slowest take milliseconds.
    local turn=10
    [ "$target" != server_clients ] || turn=0
    if DCUDA_FUZZ_TARGET=$target nice -n "$turn" "$program" "$inputs" "tests/faults/fuzz/corpus/$target" -max_total_time="$seconds" \
        -seed="${DCUDA_FUZZ_SEED:-0}" -timeout=25 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$found/$target-" >"$log" 2>&1; then
        echo "passed: $target, $(sed -n 's/^stat::number_of_executed_units: //p' "$log") inputs"
        rm "$log"
    else
        tail -n 40 "$log"
        echo "failed: $target; again: DCUDA_FUZZ_TARGET=$target $program $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
    fi
}
export -f fuzz
export build program seconds
# More at a time than there are cores: seconds are of the clock, and each shall have as many.
printf '%s\n' "${targets[@]}" | xargs -P $((4 * $(nproc))) -I{} bash -c 'fuzz {}' | tee "$build/fuzz.log"
passed=$(grep -c '^passed: ' "$build/fuzz.log" || true)
echo "$passed passed, $((${#targets[@]} - passed)) failed, 0 skipped"
[ "$passed" = ${#targets[@]} ]
