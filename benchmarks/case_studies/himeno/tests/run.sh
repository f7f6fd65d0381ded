#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the Himeno benchmark as users do: run.sh HIMENO DCUDA_RUN
set -euo pipefail
program=$1 launcher=$2
. "$(dirname "$0")/../../common/run.sh"

# known PROCESSES RESULT OPTION...: verified, and the last line is what an independent serial program gives.
known() {
    local processes=$1 result=$2
    shift 2
    [ "$processes" -le $most ] || return 0
    verified "$processes" "$@" --no-fma
    [ "$(tail -n 1 "$work/log")" = "$result" ] || die "not '$result': $*"
}

for processes in $(counts 1 2 3 4); do
    known $processes 'gosa 8.829806972e-02 sum 1.801750054624e+03 crc 1d49d9ee' --size 9,17,33 --steps 1
    known $processes 'gosa 4.168863978e-02 sum 1.896001858229e+03 crc 52d4233f' --size 9,17,33 --steps 10 --ranks 5
    known $processes 'gosa 6.229796349e-03 sum 2.224315522317e+04 crc 794c7c80' --size XS --steps 3 --gosa last --threads 32
    # One rank, a rank for each row, ranks without a row; few planes; planes of boundary alone.
    verified $processes --size 12,9,10 --steps 7 --no-fma --ranks 1
    verified $processes --size 12,9,10 --steps 7 --no-fma --ranks 7
    verified $processes --size 12,9,10 --steps 8 --no-fma --ranks 12 --threads $fewest_threads
    verified $processes --size 4,5,6 --steps 5 --no-fma --ranks 2 --repeat 3
    verified $processes --size 12,9,10 --steps 0 --no-fma
done
# Planes and rows are cut: with ranks of several rows, of one, and without; one row on each device; planes of boundary alone.
for grid in 1x1 3x1 1x2 1x3 4x1 2x2 1x4 3x2; do
    processes=$((${grid/x/*}))
    known $processes 'gosa 4.168863978e-02 sum 1.896001858229e+03 crc 52d4233f' --size 9,17,33 --steps 10 --grid $grid
    verified $processes --size 12,9,10 --steps 7 --no-fma --ranks 1 --grid $grid
    verified $processes --size 12,9,10 --steps 8 --no-fma --ranks 7 --grid $grid
    verified $processes --size 4,6,5 --steps 6 --no-fma --ranks 2 --repeat 2 --grid $grid
done
# What is set for programs of ranks does not disturb short kernels.
DCUDA_RANKS_PER_DEVICE=2 verified 1 --size 9,17,33 --steps 5 --no-fma --control kernel
# By short kernels, in every way of control that needs no graphs; with graphs where there are GPUs.
controls="stream kernel host"
[ "${DCUDA_TEST_BACKEND:-}" != cuda ] || controls+=" stream-graph device-graph while-graph device-tail"
for control in $controls; do
    for processes in $(counts 1 2 3 4); do
        known $processes 'gosa 4.168863978e-02 sum 1.896001858229e+03 crc 52d4233f' --size 9,17,33 --steps 10 --control $control
        # Planes that make no two halves; planes of boundary alone; no step, one, and two.
        verified $processes --size 6,5,6 --steps 5 --no-fma --control $control --repeat 2
        verified $processes --size 4,5,6 --steps 2 --no-fma --control $control
        verified $processes --size 12,9,10 --steps 1 --no-fma --control $control
        verified $processes --size 12,9,10 --steps 0 --no-fma --control $control
    done
done
known 1 'gosa 4.168863978e-02 sum 1.896001858229e+03 crc 52d4233f' --size 9,17,33 --steps 10 --control host --carrier plain
DCUDA_DISABLE_PEER=1 known 2 'gosa 4.168863978e-02 sum 1.896001858229e+03 crc 52d4233f' --size 9,17,33 --steps 10 --control host
known 2 'gosa 3.042699344e-03 sum 2.293382602158e+04 crc a4fa2cf1' --size XS --steps 64
known 1 'gosa 8.341751582e-06 sum 2.539047289769e+04 crc 151f521c' --size XS --steps 1000
# Over a network.
for grid in 2x1 1x2 2x2; do
    DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=shm known $((${grid/x/*})) 'gosa 6.229796349e-03 sum 2.224315522317e+04 crc 794c7c80' \
        --size XS --steps 3 --grid $grid
done
# Counters of the processors that are ours and stand still; on GPUs the device has its own.
mkdir -p "$work/counters/intel-rapl:0"
for file in "name package-0" "max_energy_range_uj 1000" "energy_uj 7"; do
    echo "${file#* }" >"$work/counters/intel-rapl:0/${file% *}"
done
for control in rank stream; do
    DCUDA_POWERCAP=$work/counters job $few --size 9,8,7 --steps 3 --control $control --json "$work/out.json" >"$work/log" 2>&1 ||
        die "JSON: status $?"
    python3 - "$work/out.json" <<'PYTHON' || die "JSON"
import json, os, sys
report = json.load(open(sys.argv[1]))
assert report["size"] == [9, 8, 7] and report["grid"] == [report["devices"], 1]
assert report["mflops"] > 0 and len(report["crc"]) == 8
joules = report["joules"]
assert joules["cpus"] == 0
if os.environ.get("DCUDA_TEST_BACKEND") != "cuda":
    assert joules["devices"] is None and joules["devices_problem"] and "mflop_per_joule" not in report
PYTHON
done
refused 2 'is none of XS' 1 --size 2,9,9
refused 2 'is none of XS' 1 --size huge
refused 2 'for --control rank only' 1 --size XS --control stream --ranks 2
refused 2 'for --control rank only' 1 --size XS --control stream --gosa last
refused 2 'for --control rank only' 1 --size XS --control stream --grid 1x1
refused 2 'is not PLANESxROWS' 1 --size XS --grid 2
refused 2 'for --control host and host-graph only' 1 --size XS --control stream --carrier host
refused 2 'no graph can hold it' 1 --size XS --control host-graph --carrier host
[ "${DCUDA_TEST_BACKEND:-}" = cuda ] || refused 1 'takes CUDA graphs' 1 --size XS --control stream-graph
[ "${DCUDA_TEST_BACKEND:-}" = cuda ] || refused 1 'takes kernels that launch kernels' 1 --size XS --control device-tail
refused_once 'planes are too few for' 4 --size 3,9,9
refused_once 'rows that are computed are too few for' 4 --size 9,5,9 --grid 1x4
refused_once 'takes 4 processes, but 3 were started' 3 --size XS --grid 2x2
[ "${DCUDA_TEST_BACKEND:-}" != cuda ] || refused 2 'takes --no-fma' 1 --size XS --verify
echo "$runs runs as expected"
