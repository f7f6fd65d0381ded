#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the models to compare with that need no library of others, as users do: models.sh STENCIL DCUDA_RUN MAP.pgm
set -euo pipefail
program=$1 launcher=$2 map=$3
. "$(dirname "$0")/../../common/run.sh"

# The models to compare with that need no library: dCUDA's transports from the host, with and without peer access, and
# its puts in stream order.
for fused in "" --fused; do
    verified 1 --model plain --nx 20 --ny 13 --nz 3 --iterations 25 --repeat 2 $fused
    verified 1 --model host --nx 9 --ny 7 --iterations 7 $fused
    for disable in 0 1; do
        export DCUDA_DISABLE_PEER=$disable
        verified 2 --model host --nx 20 --ny 13 --nz 3 --iterations 25 --repeat 3 $fused
        verified 4 --model host --nx 9 --ny 2 --nz 2 --iterations 8 --repeat 2 $fused --rows-per-thread 2
    done
    unset DCUDA_DISABLE_PEER
    for model in host stream; do verified 3 --model $model --input "$map" --iterations 5 $fused; done
    for processes in 1 2 4; do
        verified $processes --model stream --nx 20 --ny 13 --nz 3 --iterations 25 --repeat 3 $fused
    done
done
DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=shm verified 2 --model host --iterations 3 --json "$work/model.json"
python3 - "$work/model.json" <<'PYTHON' || die "JSON of a model"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["model"] == "host" and "shm" in report["carrier"] and report["exchanges_alone_per_iteration_us"] > 0
PYTHON
printf 'P5 6 3 255\nabcdefghijklmnopqr' >"$work/small.pgm"
# Rows for three of four devices; one row each.
for model in host stream; do
    verified 4 --model $model --input "$work/small.pgm" --iterations 5
    verified 2 --model $model --nx 9 --ny 1 --nz 1 --iterations 5
done
DCUDA_DISABLE_PEER=1 verified 2 --model stream --nx 9 --ny 7
refused 1 'is for one device' 2 --model plain --nx 8 --ny 8
refused 1 'two rows' 4 --model host --fused --input "$work/small.pgm"
if [ "$(job 1 --nx 8 --ny 8 --json - 2>/dev/null | grep -c '"backend": "cpu"')" = 1 ]; then
    refused 1 'GPUs only' 1 --model nccl
    refused 1 'GPUs only' 1 --model plain-graph
fi
echo "$runs runs as expected"
