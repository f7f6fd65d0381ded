#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the models to compare with that need no library of others, as users do: models.sh PARTICLES DCUDA_RUN
set -euo pipefail
program=$1 launcher=$2
. "$(dirname "$0")/../../common/run.sh"

small=(--width 8 --height 7 --particles 150)
verified 1 --model plain "${small[@]}" --steps 60 --repeat 3
verified 1 --model plain --width 1 --height 1 --particles 3 --steps 51
verified 1 --model plain "${small[@]}" --steps 0
for processes in $(counts 1 2 4); do
    # With and without peer access; an odd number of steps, too, as arrays take turns.
    for disable in 0 1; do
        export DCUDA_DISABLE_PEER=$disable
        verified $processes --model host "${small[@]}" --steps 60 --repeat 3
        verified $processes --model host "${small[@]}" --steps 41 --seed 7 --time-step 0.05
    done
    unset DCUDA_DISABLE_PEER
    # All segments at a border, cells with many particles, hardly any particles, no step, more of them than cells.
    for height in 2 3 4 5; do verified $processes --model host --width 6 --height $height --particles 90 --steps 30; done
    verified $processes --model host --width 2 --height 3 --particles 120 --steps 30
    verified $processes --model host --width 5 --height 4 --particles 2 --steps 200 --time-step 0.1
    verified $processes --model host "${small[@]}" --steps 0
    verified $processes --model host "${small[@]}" --steps 1 --capacity 200

    refused 1 'segment .* its capacity of 23: raise --capacity' $processes --model host "${small[@]}" --capacity 23 --steps 500
    refused 1 'step 1: particle .* use a smaller --time-step' $processes --model host "${small[@]}" --time-step 0.95
done
DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=shm verified 2 --model host "${small[@]}" --steps 3 --json "$work/model.json"
python3 - "$work/model.json" <<'PYTHON' || die "JSON of a model"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["model"] == "host" and "shm" in report["carrier"] and report["exchanges_alone_per_step_us"] > 0
assert report["puts_between_devices_per_step"] == 2 and report["message_bytes"] > 0
PYTHON
refused 1 'is for one device' 2 --model plain "${small[@]}"
refused 1 'two segments of each .* larger --height' 2 --model host --width 8 --height 1 --particles 20
refused 1 'multiple of 32, up to 256' 2 --model host "${small[@]}" --threads 16
refused 1 'multiple of 32, up to 256' 1 --model plain "${small[@]}" --threads 512
refused 2 '--model' 1 --model openmp
if [ "$(job 1 "${small[@]}" --steps 1 --json - 2>/dev/null | grep -c '"backend": "cpu"')" = 1 ]; then
    refused 1 'GPUs only' 1 --model nccl
    refused 1 'GPUs only' 1 --model plain-graph
fi
echo "$runs runs as expected"
