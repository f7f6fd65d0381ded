#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the models to compare with that need no library of others, as users do:
# models.sh SPMV POWER_ITERATION DCUDA_RUN DATA
set -euo pipefail
spmv=$1 power_iteration=$2 launcher=$3 data=$4
. "$(dirname "$0")/../../common/run.sh"

# matrix NAME LINE...: writes a file.
matrix() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$work/$name.mtx"
}
routes=(--matrix "$data/us_airline_routes.mtx")

program=$spmv
verified 1 --model plain --rows 41 --columns 167 --density 0.2 --repetitions 5 --repeat 2
for disable in 0 1; do
    export DCUDA_DISABLE_PEER=$disable
    for processes in $(counts 1 2 4); do
        verified $processes --model host --rows 141 --columns 67 --density 0.2 --repetitions 20 --repeat 3
    done
    verified 4 --model host --rows 3 --columns 2 --density 0.7 --repetitions 4 # devices without a row, or a column
    verified 4 --model host --size 20 --density 0.2 --repetitions 5 --grid 1x4
    verified 4 --model host "${routes[@]}" --repetitions 3 --grid 4x1
    verified 6 --model host --rows 77 --columns 131 --density 0.1 --repetitions 5 --grid 2x3
done
unset DCUDA_DISABLE_PEER
DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=shm verified 2 --model host --size 20 --density 0.2 --json "$work/model.json"
python3 - "$work/model.json" <<'PYTHON' || die "JSON of a model"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["model"] == "host" and "shm" in report["carrier"] and "puts" not in report
assert report["exchanges_alone_per_repetition_us"] > 0
PYTHON
refused 1 'is for one device' 2 --model plain --size 8
refused 2 'no-barrier is for mpi and nccl only' 1 --model host --no-barrier
refused 2 '--model' 1 --model nvshmem

program=$power_iteration
verified 1 --model plain --rows 700 --density 0.02 --iterations 12 --repeat 2
verified 1 --model plain "${routes[@]}" --ranks 5
for disable in 0 1; do
    export DCUDA_DISABLE_PEER=$disable
    for processes in $(counts 1 2 4); do
        verified $processes --model host --rows 600 --density 0.02 --iterations 20 --repeat 2
        verified $processes --model host "${routes[@]}" --ranks 3
    done
    verified 4 --model host --rows 1 --density 1 --iterations 6 --repeat 2
    verified 4 --model host --rows 40 --density 0.3 --iterations 1
    verified 4 --model host --rows 40 --density 0.3 --iterations 2 --grid 1x4
    verified 4 --model host --rows 40 --density 0.3 --iterations 9 --grid 4x1
    verified 6 --model host --rows 77 --density 0.1 --iterations 20 --grid 2x3
done
unset DCUDA_DISABLE_PEER
verified 2 --model host --size 20 --density 0.2 --iterations 7 --json "$work/model.json"
python3 - "$work/model.json" <<'PYTHON' || die "JSON of a model"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["model"] == "host" and report["carrier"] and report["iterations"] == 7
assert report["exchanges_alone_per_iteration_us"] > 0
PYTHON
# It ends in the iteration in which the ranks end, and for the same reasons.
matrix nilpotent '%%MatrixMarket matrix coordinate real general' '3 3 2' '1 2 1' '2 3 1'
matrix huge '%%MatrixMarket matrix coordinate real general' '2 2 2' '1 1 1e200' '2 2 1'
matrix turn '%%MatrixMarket matrix coordinate real general' '2 2 2' '1 2 -1' '2 1 1'
for processes in $(counts 1 4); do
    refused 1 'after 3 products the vector is zero' $processes --model host --matrix "$work/nilpotent.mtx"
    refused 1 'no longer a finite number: scale the matrix' $processes --model host --matrix "$work/huge.mtx"
    refused 1 'no dominant eigenvalue: after 100 iterations' $processes --model host --matrix "$work/turn.mtx" \
        --iterations 100
done
refused 1 'is for one device' 2 --model plain --size 8
refused 2 '--model' 1 --model plain-graph
if [ "$(job 1 --size 8 --density 1 --json - 2>/dev/null | grep -c '"backend": "cpu"')" = 1 ]; then
    refused 1 'GPUs only' 1 --model nvshmem --size 8
    refused 1 'GPUs only' 1 --model nccl --size 8
    program=$spmv
    refused 1 'GPUs only' 1 --model plain-graph --size 8
fi
echo "$runs runs as expected"
