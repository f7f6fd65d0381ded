#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs HPGMG as users do: run.sh HPGMG DCUDA_RUN
set -euo pipefail
program=$1 launcher=$2
. "$(dirname "$0")/../../common/run.sh"

# known PROCESSES RESULT OPTION...: verified, and the last line is the published residual, to eight digits.
known() {
    local processes=$1 result=$2
    shift 2
    [ "$processes" -le $most ] || return 0
    verified "$processes" "$@"
    tail -n 1 "$work/log" | grep -q "^residual after .*: $result" || die "not '$result': $*"
}

for processes in $(counts 1 2 4); do
    # Eight boxes of 16^3 on all devices: 32^3 cells, the same result on any number of them.
    boxes=$(((8 + processes - 1) / processes))
    known $processes '9.6159515' --log2-box 4 --boxes $boxes
    known $processes '4.982358[45]' --log2-box 4 --boxes $boxes --v-cycles 1 --ranks 5 --threads $fewest_threads
    known $processes '3.1498579' --log2-box 4 --boxes $boxes --smoother chebyshev --ranks 1
    verified $processes --log2-box 4 --boxes $boxes --one-rank-side 4 --v-cycles 1 --ranks 16 --threads $fewest_threads
    verified $processes --log2-box 4 --boxes $boxes --one-rank-side 16 --solves 2
    # Bricks of 4^3 cells on four processes; several solves and runs.
    verified $processes --log2-box 4 --boxes 1 --ranks 16 --threads $fewest_threads
    verified $processes --log2-box 4 --boxes 1 --solves 3 --repeat 2 --v-cycles 2 --ranks 8
    refused_once "the grid's [0-9]*^3 boxes, [0-9]*^3 cells, take .*: at most --boxes [0-9]* fit" $processes --log2-box 8 --boxes 4096
    refused_once 'take .* GB of a device.s memory.*: use smaller boxes' $processes --log2-box 12 --boxes 1
    refused_once 'more than a grid of 16384 cells a side has.* at most --boxes [0-9]*$' $processes --log2-box 8 --boxes 274625
    refused_once 'are too few for 65 ranks: each takes 4^3; use fewer --ranks (at most [0-9]*)' $processes --log2-box 4 --boxes 1 --ranks 65
done
verified 1 --log2-box 4 --boxes 1 --ranks 64 --threads $fewest_threads
# Parts that are not alike, and a bottom of 3^3 cells.
known 3 '2.1034180' --log2-box 4 --boxes 9
known 1 '7.1713903' --log2-box 5 --boxes 8
# Bricks of many cells, of one device and of several; threads that are no power of two.
verified 1 --log2-box 5 --boxes 1 --ranks 3 --threads 96 --v-cycles 1
verified 2 --log2-box 4 --boxes 12 --ranks 2 --threads $fewest_threads
# Two levels divided over devices in two dimensions.
verified 4 --log2-box 5 --boxes 2 --ranks 4 --v-cycles 1
# The largest and the smallest amplitude: numbers on all levels. The unit test has one beyond, whose residual is none.
for amplitude in 1e100 -1e-100; do
    known $few '4.982358[45]' --log2-box 4 --boxes $(((8 + few - 1) / few)) --v-cycles 1 --ranks 4 --amplitude $amplitude
done
# Over a network.
for processes in $(counts 2 4); do
    DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=shm known $processes '9.6159515' --log2-box 4 --boxes $(((8 + processes - 1) / processes)) --ranks 4
done
# Kernels that the host launches, with coarse levels by its processor and without, and with sweeps beside exchanges.
for model in host stream fused; do
    [ $model != host ] || known $few '9.6159515' --log2-box 4 --boxes $(((8 + few - 1) / few)) --model $model
    for processes in $(counts 1 2 4); do
        verified $processes --log2-box 4 --boxes 2 --solves 3 --repeat 2 --v-cycles 2 --model $model --cpu-below 0
        overlap=(--overlap-from 300)
        [ $model != fused ] || overlap=()
        verified $processes --log2-box 4 --boxes 4 --model $model "${overlap[@]}" --smoother chebyshev
    done
    # Through the hosts.
    DCUDA_DISABLE_PEER=1 verified $few --log2-box 4 --boxes 4 --solves 2 --model $model
done
verified 1 --log2-box 4 --boxes 4 --solves 2 --model plain
verified 3 --log2-box 4 --boxes 9 --model host --cpu-below 2000
verified 3 --log2-box 4 --boxes 9 --model fused
refused 1 'is for one device' 2 --log2-box 4 --boxes 1 --model plain
refused 2 '--cpu-below is for host, mpi and nccl only, not for the model stream' 1 --model stream --cpu-below 1
refused 2 '--parts is for dcuda only' 1 --model host --parts
refused 2 '--ranks is for dcuda only' 1 --model host --ranks 4
refused 2 '--one-rank-side is for dcuda only' 1 --model plain --one-rank-side 8
refused 2 '--overlap-from is for models whose kernels do not communicate' 1 --overlap-from 4
refused 2 '--overlap-from is for .*, not for the model fused' 1 --model fused --overlap-from 4
refused_once 'cells are too few for 5 devices' 5 --log2-box 4 --boxes 1
refused 2 '--log2-box' 1 --log2-box 3
refused 2 '--smoother' 1 --smoother jacobi
refused 2 '--threads: 544 is not a number of threads up to 512' 1 --threads 544
for amplitude in 0 nan inf 1e-150 -1e200; do
    refused 2 "--amplitude: $amplitude is not within 1e-100 to 1e100" 1 --log2-box 4 --boxes 1 --amplitude=$amplitude
done

verified $few --log2-box 4 --boxes 1 --solves 2 --repeat 2 --parts --json "$work/out.json"
python3 - "$work/out.json" <<'PYTHON' || die "JSON"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["side"] == 16 and report["levels"] == [16, 8, 4, 2] and len(report["residuals"]) == 1
assert report["unknowns_per_second"] > 0 and report["verification"]["equal"]
assert len(report["time_per_solve_us"]["samples"]) == report["repeat"] == 2
parts = report["parts_us"]
assert [level["side"] for level in parts] == report["levels"]
times = {name: [level[name] for level in parts] for name in parts[0] if name not in ("side", "ranks")}
assert [level["ranks"] for level in parts][3] == 1 and parts[0]["ranks"] >= parts[1]["ranks"]
assert times["smoothing"][0] > 0 and times["waiting"][0] > 0 and times["bottom"][:3] == [0, 0, 0] and times["bottom"][3] > 0
assert times["restriction"][3] == 0 and all(each > 0 for each in times["interpolation"][:3] + times["sending"][:3])
PYTHON
verified $few --log2-box 4 --boxes 4 --model host --json "$work/model.json"
python3 - "$work/model.json" $few <<'PYTHON' || die "JSON of a model"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["model"] == "host" and "host side" in report["carrier"] and "ranks_per_device" not in report
assert report["cpu_below"] == 10000 and report["verification"]["equal"]
assert (sys.argv[2] == "1") == ("exchanges_alone_per_solve_us" not in report)
PYTHON
refused_once 'cannot write' $few --log2-box 4 --boxes 1 --json "$work/missing/out.json"
job 1 --log2-box 4 --boxes 1 --solves 200 --progress 0.000001 >"$work/log" 2>&1 || die "progress: status $?"
grep -q 'hpgmg: solve [0-9]* of 200 ([0-9]* %), about [0-9]* s left' "$work/log" || die "no progress"
echo "$runs runs as expected"
