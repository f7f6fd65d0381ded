#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs spmv as users do: run_spmv.sh SPMV DCUDA_RUN MATRIX.mtx
set -euo pipefail
program=$1 launcher=$2 routes=$3
. "$(dirname "$0")/../../common/run.sh"

# matrix NAME LINE...: writes a file.
matrix() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$work/$name.mtx"
}

for processes in $(counts 1 2 4); do
    # Parts that do not divide, and ranks without a row.
    for ranks in 1 3 8; do
        verified $processes --size 60 --density 0.05 --repetitions 5 --ranks $ranks
    done
    verified $processes --rows 41 --columns 167 --density 0.2 --repetitions 3 --ranks 5 --seed 7
    verified $processes --rows 167 --columns 3 --density 1 --repetitions 3 --ranks 4
    # Threads that share a row, odd numbers of threads, more ranks than rows, messages too large for a letter.
    verified $processes --rows 100 --density 0.3 --repetitions 3 --ranks 2 --threads 64 --team 8
    verified $processes --rows 100 --density 0.3 --repetitions 3 --ranks 2 --threads 8 --team 8
    verified $processes --rows 90 --density 0.1 --repetitions 3 --ranks 3 --threads 5
    verified $processes --rows 3 --columns 2 --density 0.7 --repetitions 4 --ranks 5 --threads 1
    verified $processes --rows 1 --columns 1 --density 1 --repetitions 2 --ranks 2
    verified $processes --rows 2500 --density 0.01 --repetitions 3 --ranks 1
    verified $processes --matrix "$routes" --repetitions 3 --repeat 3 --ranks 5
    # In shared memory: all rows, those of some ranks, and of teams.
    verified $processes --size 60 --density 0.05 --repetitions 5 --ranks 7 --entries shared
    verified $processes --matrix "$routes" --repetitions 3 --ranks 5 --entries shared
    verified $processes --rows 100 --density 0.3 --repetitions 3 --ranks 2 --threads 64 --team 8 --entries shared
done
verified 2 --size 50 --density 0.1 --repetitions 5 --ranks 3 --grid 1x2
verified 3 --size 50 --density 0.1 --repetitions 5 --ranks 3
verified 4 --size 50 --density 0.1 --repetitions 5 --ranks 3 --grid 1x4
verified 6 --rows 77 --columns 131 --density 0.1 --repetitions 5 --ranks 3 --grid 2x3
verified 7 --rows 77 --columns 131 --density 0.1 --repetitions 5 --ranks 2 --grid 1x7
verified 8 --size 30 --density 0.1 --repetitions 5 --ranks 2
verified 9 --size 30 --density 0.1 --repetitions 5 --ranks 2

# Any Matrix Market file.
matrix pattern '%%MatrixMarket matrix coordinate pattern symmetric' '% comment' '' '3 3 3' '1 1' '3 1' '3 2'
matrix skew '%%matrixmarket MATRIX Coordinate INTEGER Skew-Symmetric' '4 4 2' '2 1 -3' '4 3 7'
matrix array '%%MatrixMarket matrix array real general' '2 3' 1 0 -2.5 1e3 +4 .5
for name in pattern skew array; do
    for processes in $(counts 1 4); do
        verified $processes --matrix "$work/$name.mtx" --repetitions 2 --ranks 2
    done
done

# Files and progress.
verified $few --size 40 --density 0.1 --repetitions 4 --repeat 7 --json "$work/out.json"
python3 - "$work/out.json" $few <<'PYTHON' || die "JSON"
import json, sys
report, devices = json.load(open(sys.argv[1])), int(sys.argv[2])
assert report["verification"]["equal"] and report["rows"] == {1: 40, 2: 57}[devices] and report["devices"] == devices
assert report["entries_in"] == {"cpu": "device", "cuda": "shared"}[report["backend"]] and report["grid_rows"] == devices and report["grid_columns"] == 1 and report["entries"] > 100
assert report["time_per_repetition_us"]["median"] > 0
assert report["time_per_repetition_us"]["interval"] == "95 % confidence"
PYTHON
job 1 --size 8 --density 1 --repetitions 2 --json - 2>"$work/log" | python3 -c 'import json, sys; json.load(sys.stdin)' ||
    die "JSON on standard output"
job $few --size 40 --repetitions 50 --repeat 2 --progress 0.000001 >"$work/log" 2>&1 || die "progress: status $?"
grep -q 'spmv: run 2 of 2, repetition [0-9]* of 50 ([0-9]* %), about [0-9]* s left' "$work/log" || die "no progress"
[ "$(ls "$work" | grep -c tmp)" = 0 ] || die "temporary files left"

# Errors: on process 0 alone, and on all.
matrix short '%%MatrixMarket matrix coordinate real general' '3 3 3' '1 1 2.5' '2 2 1'
matrix outside '%%MatrixMarket matrix coordinate real general' '3 3 2' '1 1 2.5' '4 2 1'
matrix words '%%MatrixMarket matrix coordinate real general' '3 3 2' '% here' '1 1 one' '2 2 1'
matrix complex '%%MatrixMarket matrix coordinate complex general' '1 1 1' '1 1 1 0'
printf 'P5 6 3 255\n' >"$work/no.mtx"
for processes in $(counts 1 4); do
    refused 1 'short.mtx, line 4: the file ends after 2 of 3 entries' $processes --matrix "$work/short.mtx"
    refused 1 'outside.mtx, line 4: row 4 is not within 1 to 3' $processes --matrix "$work/outside.mtx"
    refused 1 "words.mtx, line 4: the value 'one' is not a number" $processes --matrix "$work/words.mtx"
    refused 1 "complex.mtx, line 1: the field 'complex' is not read here" $processes --matrix "$work/complex.mtx"
    refused 1 'no.mtx, line 1: does not begin with %%MatrixMarket' $processes --matrix "$work/no.mtx"
    refused_once 'cannot read' $processes --matrix "$work/missing.mtx"
    refused_once 'cannot write' $processes --size 8 --json "$work/missing/out.json"
    refused 1 '--grid 3x2 takes 6 processes' $processes --size 8 --grid 3x2
    refused 1 '--team 8 does not divide the 12 threads' $processes --size 8 --threads 12 --team 8
    refused 2 'is not ROWSxCOLUMNS' $processes --grid 4
    refused 2 'not within 0.000001 to 1' $processes --density 0
    refused 2 '--size' $processes --size 0
    refused 2 '--matrix' $processes --matrix "$routes" --rows 5
    refused 2 '--unknown' $processes --unknown
done
echo "$runs runs as expected"
