#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the stencil program as users do: run.sh STENCIL DCUDA_RUN MAP.pgm
set -euo pipefail
program=$1 launcher=$2 map=$3
. "$(dirname "$0")/../../common/run.sh"

for processes in $(counts 1 2 4); do
    for ranks in 1 3 8; do
        verified $processes --nx 20 --ny 13 --nz 3 --iterations 25 --ranks $ranks
    done
    # More ranks than rows, one row each, one level, planes, odd lines, several warps, a grid without inner points.
    verified $processes --nx 9 --ny 3 --nz 2 --iterations 20 --ranks 7
    verified $processes --nx 7 --ny 5 --nz 1 --iterations 30 --ranks 5 --threads 1
    verified $processes --nx 21 --ny 9 --nz 4 --iterations 20 --ranks 4 --message plane
    verified $processes --nx 33 --ny 8 --nz 2 --iterations 10 --ranks 2 --threads 64
    verified $processes --nx 4 --ny 1 --nz 1 --iterations 5 --ranks 2
    verified $processes --nx 6 --ny 6 --iterations 0 --ranks 2
    verified $processes --nx 16 --ny 8 --nz 2 --iterations 15 --repeat 5
    verified $processes --input "$map" --iterations 10 --ranks 5
    # In bands of rows: of one, of several with a rest, of more than there are.
    verified $processes --nx 20 --ny 13 --nz 3 --iterations 25 --ranks 3 --band-rows 1
    verified $processes --nx 33 --ny 17 --nz 2 --iterations 10 --ranks 2 --threads 64 --band-rows 3 --message plane
    verified $processes --nx 9 --ny 3 --nz 2 --iterations 20 --ranks 7 --band-rows 1
    verified $processes --nx 9 --ny 7 --nz 4 --iterations 20 --ranks 4 --level-parts 2 --band-rows 9
    # Fields in shared memory: one row each, one thread, several levels and parts of them, several warps.
    verified $processes --nx 20 --ny 13 --nz 3 --iterations 25 --ranks 3 --fields shared
    verified $processes --nx 9 --ny 3 --nz 2 --iterations 20 --ranks 7 --fields shared
    verified $processes --nx 7 --ny 5 --nz 1 --iterations 30 --ranks 5 --threads $fewest_threads --fields shared --message plane
    verified $processes --nx 35 --ny 11 --nz 5 --iterations 12 --ranks 6 --level-parts 2 --threads 64 --fields shared
    # All three stencils at once, with ranks of two rows and more.
    verified $processes --fused --nx 20 --ny 13 --nz 3 --iterations 25 --ranks 6 --repeat 2
    verified $processes --fused --nx 21 --ny 8 --nz 2 --iterations 10 --ranks 4 --message plane
    verified $processes --fused --input "$map" --iterations 5
    verified $processes --fused --nx 20 --ny 13 --nz 3 --iterations 25 --ranks 6 --fields shared
    verified $processes --fused --nx 35 --ny 11 --nz 5 --iterations 7 --ranks 6 --level-parts 2 --threads 64 --fields shared
    refused 1 'exchanges two rows' $processes --fused --nx 20 --ny 13 --nz 3 --ranks 7
done
verified 2 --input "$map" --nz 3 --iterations 5 --message plane
refused 1 'do not fit' 1 --input "$map" --ranks 5 --fields shared
refused 2 'in device memory' 1 --nx 9 --ny 7 --ranks 2 --fields shared --band-rows 2
refused 2 'excludes' 1 --nx 9 --ny 7 --ranks 2 --fused --band-rows 2
# Fewer rows than devices.
printf 'P5 6 3 255\nabcdefghijklmnopqr' >"$work/small.pgm"
verified 4 --input "$work/small.pgm" --iterations 5 --ranks 2

# Files.
verified 2 --input "$map" --iterations 5 --output "$work/out.pgm" --png "$work/out.png" --json "$work/out.json"
head -c 2 "$work/out.pgm" | grep -q P5 || die "no map"
head -c 4 "$work/out.png" | grep -q PNG || die "no picture"
python3 - "$work/out.json" <<'PYTHON' || die "JSON"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["verification"]["equal"] and report["nx"] == 403 and report["devices"] == 2
assert report["time_per_iteration_us"]["median"] > 0
PYTHON
job 1 --nx 8 --ny 8 --iterations 2 --json - 2>"$work/log" | python3 -c 'import json, sys; json.load(sys.stdin)' ||
    die "JSON on standard output"
# Progress, of one run and of several.
small=(--nx 20 --ny 13 --nz 3 --ranks 2 --iterations 50 --progress 0.000001)
job 1 "${small[@]}" >"$work/log" 2>&1 || die "progress: status $?"
grep -q 'stencil: iteration [0-9]* of 50 ([0-9]* %), about [0-9]* s left' "$work/log" || die "no progress"
for options in "" --fused "--fields shared" "--fused --fields shared"; do
    # shellcheck disable=SC2086 # words
    job 1 "${small[@]}" $options --threads $fewest_threads --repeat 3 >"$work/log" 2>&1 || die "progress: status $?"
    for run in 1 2 3; do
        grep -q "stencil: run $run of 3, iteration [0-9]* of 50 ([0-9]* %), about [0-9]* s left" "$work/log" ||
            die "no progress of run $run"
    done
    ! grep -q 'run 3 of 3, iteration 50 of 50' "$work/log" || die "progress where nothing is left"
done
# Without iterations the written map is the one that was read.
verified 2 --input "$map" --iterations 0 --output "$work/same.pgm"
cmp <(tail -c 277264 "$map") <(tail -c 277264 "$work/same.pgm") || die "the map changed"
[ "$(ls "$work" | grep -c tmp)" = 0 ] || die "temporary files left"

# Errors: on process 0 alone, and on all.
printf 'P6 1 1 255\nabc' >"$work/color.pgm"
head -c 1000 "$map" >"$work/cut.pgm"
for processes in $(counts 1 4); do
    refused_once 'does not begin with P5' $processes --input "$work/color.pgm"
    refused_once 'only' $processes --input "$work/cut.pgm"
    refused_once 'cannot read' $processes --input "$work/missing.pgm"
    refused_once 'cannot write' $processes --nx 8 --ny 8 --output "$work/missing/out.pgm"
    refused 2 'not within 0 to 1/32' $processes --coefficient 0.04
done
# Sanitizers end a program that asks for so much.
[ -n "${DCUDA_TEST_SANITIZER:-}" ] || refused 1 'memory' 1 --nx 100000 --ny 100000 --nz 90
echo "$runs runs as expected"
