#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the particles program as users do: run.sh PARTICLES DCUDA_RUN
set -euo pipefail
program=$1 launcher=$2
. "$(dirname "$0")/../../common/run.sh"

small=(--width 8 --height 7 --particles 150)
# Threads that sort the particles of a rank: on a GPU each has few.
wide=32
[ "${DCUDA_TEST_BACKEND:-}" != cuda ] || wide=256

for processes in $(counts 1 2 4); do
    # Segments that do not divide, and one for each rank.
    for ranks in 1 3 7; do
        verified $processes "${small[@]}" --steps 60 --ranks $ranks
    done
    verified $processes "${small[@]}" --steps 40 --ranks 2 --threads 64 --seed 7 --time-step 0.05
    # In shared memory: with cells inside a rank and without, as few as a neighbour may have, and nobody else.
    for ranks in 1 2 3 6; do
        verified $processes "${small[@]}" --steps 60 --ranks $ranks --threads $wide --memory shared
    done
    verified $processes "${small[@]}" --steps 40 --ranks 4 --time-step 0.1 --memory shared --repeat 3
    verified $processes "${small[@]}" --steps 40 --ranks 4 --time-step 0.1 --memory device --repeat 3
    verified $processes --width 8 --height 70 --particles 1500 --steps 30 --ranks 6 --threads $((2 * wide)) --memory shared
    verified $processes "${small[@]}" --steps 20 --ranks 2 --threads 1 --repeat 3
    # Messages too large for a letter, cells with many particles, segments without any, hardly any domain, no step.
    verified $processes --width 40 --height 4 --particles 1800 --steps 8 --ranks 2
    verified $processes --width 40 --height 4 --particles 1800 --steps 8 --ranks 2 --capacity 7000 # sorts in device memory
    verified $processes --width 2 --height 3 --particles 120 --steps 30 --ranks 3
    verified $processes --width 5 --height 4 --particles 2 --steps 200 --ranks 2 --time-step 0.1
    verified $processes --width 1 --height 1 --particles 3 --steps 50
    for steps in 0 1 2; do verified $processes "${small[@]}" --steps $steps --ranks 2; done

    # Errors that one rank finds on the way, and those that all know before.
    for where in shared device; do
        refused 1 'step 1: particle .* use a smaller --time-step' $processes "${small[@]}" --time-step 0.95 --ranks 3 --memory $where
        refused 1 'step 1: particle .* use a smaller --time-step' $processes "${small[@]}" --time-step 0.95 --ranks 1 --memory $where --threads $wide
    done
    refused 1 'segment .* its capacity of 23: raise --capacity' $processes "${small[@]}" --capacity 23 --steps 500 --ranks 3 --memory device
    refused 1 'segment .* its capacity of 24: raise --capacity' $processes "${small[@]}" --capacity 24 --steps 500 --ranks 1 --memory device
    refused 1 'rank .* gets .* raise --capacity' $processes "${small[@]}" --capacity 23 --steps 500 --ranks 3 --memory shared
    refused 1 'step 0: rank .* gets .* raise --capacity' $processes "${small[@]}" --capacity 22 --steps 500 --ranks 6 --memory shared
    refused 1 '--memory shared: the particles do not fit' $processes "${small[@]}" --ranks 7 --memory shared
    refused 2 '--memory is for dcuda only' $processes "${small[@]}" --model plain --memory shared
    refused 1 'at the start, more than its capacity of 5: raise --capacity' $processes "${small[@]}" --capacity 5
    refused 1 '8 ranks per device, but only 7 segments' $processes "${small[@]}" --ranks 8
    refused 1 '8 ranks per device, but only 7 segments' $processes "${small[@]}" --dcuda-ranks=8
    refused 2 'not above 0 and below 1' $processes --time-step 1.5
    refused 2 '--particles' $processes --particles 0
    refused 2 '--unknown' $processes --unknown
    refused_once 'cannot write' $processes "${small[@]}" --json "$work/missing/out.json"
done

# Files and progress.
verified 2 "${small[@]}" --steps 30 --repeat 7 --json "$work/out.json"
python3 - "$work/out.json" <<'PYTHON' || die "JSON"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["verification"]["equal"] and report["particles"] == 300 and report["devices"] == 2
assert report["time_per_step_us"]["median"] > 0 and report["time_per_step_us"]["interval"] == "95 % confidence"
assert report["pairs"] > 0 and report["momentum_error"] <= report["momentum_tolerance"]
PYTHON
job 1 "${small[@]}" --steps 2 --json - 2>"$work/log" | python3 -c 'import json, sys; json.load(sys.stdin)' ||
    die "JSON on standard output"
job 2 "${small[@]}" --steps 50 --progress 0.000001 >"$work/log" 2>&1 || die "progress: status $?"
grep -q 'particles: step [0-9]* of 50 ([0-9]* %), about [0-9]* s left' "$work/log" || die "no progress"
for memory in device shared; do
    job $few "${small[@]}" --steps 50 --memory $memory --ranks 4 --repeat 2 --progress 0.000001 >"$work/log" 2>&1 ||
        die "progress: status $?"
    grep -q 'particles: run 2 of 2, step [0-9]* of 50' "$work/log" || die "no progress of run 2"
done
[ "$(ls "$work" | grep -c tmp)" = 0 ] || die "temporary files left"
echo "$runs runs as expected"
