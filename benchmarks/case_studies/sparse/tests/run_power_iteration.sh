#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs power_iteration as users do: run_power_iteration.sh POWER_ITERATION DCUDA_RUN DATA
set -euo pipefail
program=$1 launcher=$2 data=$3
. "$(dirname "$0")/../../common/run.sh"

# matrix NAME LINE...: writes a file.
matrix() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$work/$name.mtx"
}

routes=(--matrix "$data/us_airline_routes.mtx" --labels "$data/us_airports.csv")
for processes in $(counts 1 2 4); do
    # Parts that do not divide, and ranks without a row.
    for ranks in 1 3 8; do
        verified $processes --size 50 --density 0.1 --iterations 20 --ranks $ranks
    done
    verified $processes --rows 71 --density 0.2 --iterations 12 --ranks 5 --seed 7 --threads 64 --team 8
    verified $processes --rows 40 --density 0.3 --iterations 1 --ranks 2 --threads 1
    verified $processes --rows 40 --density 0.3 --iterations 2 --ranks 2 --threads 5
    verified $processes --rows 5 --density 1 --iterations 9 --ranks 7
    verified $processes --rows 1 --density 1 --iterations 6 --ranks 2
    verified $processes --rows 2500 --density 0.01 --iterations 7 --ranks 1 --repeat 3
    verified $processes "${routes[@]}" --ranks 5
    verified $processes "${routes[@]}" --ranks 3 --entries shared
done
verified 2 --size 50 --density 0.1 --iterations 20 --ranks 3 --grid 1x2
verified 3 --size 50 --density 0.1 --iterations 20 --ranks 3
verified 3 --size 50 --density 0.1 --iterations 20 --ranks 3 --grid 1x3
verified 6 --rows 77 --density 0.1 --iterations 20 --ranks 3
verified 6 --rows 77 --density 0.1 --iterations 20 --ranks 3 --grid 2x3
verified 7 --rows 77 --density 0.1 --iterations 15 --ranks 2 --grid 1x7
verified 8 --rows 6 --density 1 --iterations 15 --ranks 2
verified 9 --size 30 --density 0.1 --iterations 15 --ranks 2
verified 9 "${routes[@]}" --ranks 3

# The example, against an iteration that has nothing in common with the program.
verified $few "${routes[@]}" --json "$work/out.json"
python3 - "$work/out.json" "$data" <<'PYTHON' || die "the airports"
import csv, json, math, sys
report, data = json.load(open(sys.argv[1])), sys.argv[2]
lines = [line.split() for line in open(data + "/us_airline_routes.mtx") if not line.startswith("%")]
size = int(lines[0][0])
entries = [(int(i) - 1, int(j) - 1, float(a)) for i, j, a in lines[1:]]
vector = [1.0] * size
for _ in range(200):
    product = [0.0] * size
    for i, j, a in entries:
        product[i] += a * vector[j]
    length = math.sqrt(math.fsum(y * y for y in product))
    eigenvalue, vector = length / math.sqrt(math.fsum(x * x for x in vector)), [y / length for y in product]
codes = [row[0] for row in csv.reader(open(data + "/us_airports.csv"))][1:]
top = sorted(range(size), key=lambda i: -vector[i])[:10]
assert report["rows"] == size and report["entries"] == len(entries)
assert abs(report["eigenvalue"] - eigenvalue) < 1e-10 * eigenvalue, (report["eigenvalue"], eigenvalue)
assert [row["label"] for row in report["top"]] == [codes[i] for i in top], report["top"]
assert all(abs(row["element"] - vector[i]) < 1e-10 for row, i in zip(report["top"], top))
assert report["outcome"] == "converged" and report["residual"] <= 1e-12 and report["verification"]["equal"]
PYTHON
job 1 "${routes[@]}" --top 3 >"$work/log" 2>&1 || die "the airports in words"
grep -q '^dominant eigenvalue: 101\.0197754, ' "$work/log" || die "not ten digits"
[ "$(grep -cE '^ +[0-9]+ [A-Z]{3} 0\.' "$work/log")" = 3 ] || die "not three airports"

# Eigenvalues below zero; labels by number; a tolerance; no dominant eigenvalue; nothing but zeros; too large numbers.
matrix negative '%%MatrixMarket matrix coordinate real symmetric' '2 2 3' '1 1 -3' '2 1 1' '2 2 1'
matrix opposite '%%MatrixMarket matrix coordinate real symmetric' '3 3 2' '2 1 1' '3 2 1'
matrix turn '%%MatrixMarket matrix coordinate real general' '2 2 2' '1 2 -1' '2 1 1'
matrix double '%%MatrixMarket matrix coordinate real general' '3 3 3' '1 1 2' '2 2 2' '3 3 1'
matrix laplace '%%MatrixMarket matrix coordinate real symmetric' '2 2 3' '1 1 2' '2 1 -1' '2 2 2'
matrix slow '%%MatrixMarket matrix coordinate real general' '2 2 2' '1 1 1' '2 2 0.95'
matrix nilpotent '%%MatrixMarket matrix coordinate real general' '3 3 2' '1 2 1' '2 3 1'
matrix empty '%%MatrixMarket matrix coordinate real general' '3 3 0'
matrix huge '%%MatrixMarket matrix coordinate real general' '2 2 2' '1 1 1e200' '2 2 1'
matrix oblong '%%MatrixMarket matrix coordinate real general' '2 3 1' '1 1 1'
printf 'name\n"one, two"\nthree\n' >"$work/two.csv"
printf 'name\none\n' >"$work/one.csv"
printf 'name,size\none,1\ntwo\n' >"$work/odd.csv"
for processes in $(counts 1 4); do
    verified $processes --matrix "$work/negative.mtx" --ranks 2 --labels "$work/two.csv"
    grep -q '^dominant eigenvalue: -3\.236067977,' "$work/log" || die "a negative eigenvalue"
    grep -q '^ *1 one, two 0\.973249' "$work/log" || die "a label"
    # Its eigenvector is at right angles to a vector of ones.
    verified $processes --matrix "$work/laplace.mtx" --ranks 2
    grep -q '^dominant eigenvalue: 3\.000000000,' "$work/log" || die "an eigenvector with both signs"
    refused 1 'no dominant eigenvalue: after 1000 iterations the residual is' $processes --matrix "$work/opposite.mtx"
    refused 1 'no dominant eigenvalue: after 100 iterations' $processes --matrix "$work/turn.mtx" --iterations 100
    refused 1 'two starts lead to eigenvectors of 2.0* that are' $processes --matrix "$work/double.mtx"
    refused 1 'not yet an eigenvalue: after 100 iterations .* raise --iterations' $processes \
        --matrix "$work/slow.mtx" --iterations 100
    verified $processes --matrix "$work/slow.mtx" --tolerance 1e-6
    verified $processes --matrix "$work/opposite.mtx" --tolerance 0 --iterations 20
    grep -q '^estimate of the dominant eigenvalue' "$work/log" || die "an estimate"
    refused 1 'after 3 products the vector is zero' $processes --matrix "$work/nilpotent.mtx"
    refused 1 'after 1 product the vector is zero' $processes --matrix "$work/empty.mtx"
    refused 1 'no longer a finite number: scale the matrix' $processes --matrix "$work/huge.mtx"
    refused 1 '2 x 3: only a square matrix' $processes --matrix "$work/oblong.mtx"
    refused 1 'has 1 labels, but the matrix 2 rows' $processes --matrix "$work/slow.mtx" --labels "$work/one.csv"
    refused 1 'odd.csv, line 3: 1 fields, but 2 headings' $processes --matrix "$work/slow.mtx" --labels "$work/odd.csv"
    refused_once 'cannot read' $processes --matrix "$work/slow.mtx" --labels "$work/missing.csv"
    refused_once 'cannot read' $processes --matrix "$work/missing.mtx"
    refused 2 '--matrix' $processes --labels "$work/one.csv"
    refused 2 'is not 0 or a part of the eigenvalue' $processes --tolerance 1.5
    refused 2 '--iterations' $processes --iterations 0
    refused 2 '--unknown' $processes --unknown
done

# Files and progress.
job 1 --size 8 --density 1 --iterations 2 --json - 2>"$work/log" | python3 -c 'import json, sys; json.load(sys.stdin)' ||
    die "JSON on standard output"
job $few --size 40 --density 0.1 --iterations 50 --progress 0.000001 >"$work/log" 2>&1 || die "progress: status $?"
grep -q 'power_iteration: iteration [0-9]* of 50 ([0-9]* %), about [0-9]* s left' "$work/log" || die "no progress"
# The second start is a run, too.
job $few --matrix "$data/us_airline_routes.mtx" --repeat 2 --progress 0.000001 >"$work/log" 2>&1 ||
    die "progress: status $?"
grep -q 'power_iteration: run 3 of 3, iteration [0-9]* of 1000' "$work/log" || die "no progress of the second start"
[ "$(ls "$work" | grep -c tmp)" = 0 ] || die "temporary files left"
echo "$runs runs as expected"
