#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# dcuda-bench apps on small sizes: what goes well, a model that a build lacks, a program that fails, one that takes too
# long, one that is not there, pictures of the record.
#
#   apps.sh <dcuda-bench>
set -euo pipefail
bench=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DCUDA_RANKS_PER_DEVICE
die() {
    echo "FAILED: $1"
    cat "$work/output"
    exit 1
}

# apps STATUS OPTION...: ends with this status.
apps() {
    local expected=$1 status=0
    shift
    "$bench" apps "$@" >"$work/output" 2>&1 || status=$?
    [ $status = "$expected" ] || die "status $status, not $expected: $*"
}
says() { grep -q -- "$1" "$work/output" || die "does not say: $1"; }
small="--nx 16 --ny 9 --nz 2 --iterations 10 --ranks 3"

# Three models, of which each goes as far as it can.
apps 0 --apps stencil --devices 1,2 --models dcuda,plain,host --options "stencil=$small" --repeat 7 --verify \
    --commit abc --json "$work/good.json"
says 'plain  *2 left out: the model plain is for one device'
says '^1 device: dcuda [0-9.]* ms; plain, the best of two models, [0-9.]* ms ([0-9.]*x)$\|^1 device: .* host, the best'
says '^2 devices: dcuda [0-9.]* ms; host, the best of two models, [0-9.]* ms ([0-9.]*x)$'
python3 - "$work/good.json" <<'PYTHON' || die "the record"
import json, sys
record = json.load(open(sys.argv[1]))
assert record["program"] == "dcuda-bench apps" and record["machine"]["commit"] == "abc" and record["machine"]["cores"]
rows = {(row["application"], row["model"], row["devices"]): row for row in record["rows"]}
assert len(rows) == len(record["rows"]) == 6
for devices in 1, 2:
    row = rows["stencil", "dcuda", devices]
    assert 0 < row["low"] <= row["value"] <= row["high"] and row["unit"] == "ms" and row["runs"] == 7, row
    assert row["interval"] == "95 % confidence" and row["verified"] and row["steps"] == 10, row
    samples = sorted(row["report"]["time_per_iteration_us"]["samples"])
    assert len(samples) == 7 and abs(row["value"] - samples[3] * 10 / 1e3) < 1e-9
    assert row["report"]["devices"] == devices and "exchanges_alone" not in row
host = rows["stencil", "host", 2]
assert host["exchanges_alone"] > 0 and host["report"]["model"] == "host"
assert "-n 2 -- stencil --model host" in host["command"]
assert "exchanges_alone" not in rows["stencil", "host", 1]
assert "one device" in rows["stencil", "plain", 2]["missing"] and "value" not in rows["stencil", "plain", 2]
PYTHON

# All applications, each with its own words for a step. Options for one may be given in several parts.
apps 0 --apps stencil,particles,spmv,power_iteration,hpgmg --devices 2 --models dcuda --repeat 2 --json "$work/five.json" --options "stencil=$small" \
    --options "particles=--width 12 --height 8 --particles 60 --steps 4 --ranks 2" \
    --options "spmv=--size 40 --density 0.1" --options "spmv=--ranks 2 --repetitions 5" \
    --options "power_iteration=--size 40 --density 0.1 --iterations 6 --ranks 2" \
    --options "hpgmg=--log2-box 4 --boxes 1 --solves 2 --ranks 2"
says '5 measured, 0 failed, 0 left out'
python3 - "$work/five.json" <<'PYTHON' || die "the record of all applications"
import json, sys
record = json.load(open(sys.argv[1]))
assert record["parameters"]["options"]["spmv"] == "--size 40 --density 0.1 --ranks 2 --repetitions 5"
assert [(row["application"], row["steps"]) for row in record["rows"]] == [
    ("stencil", 10), ("particles", 4), ("spmv", 5), ("power_iteration", 6), ("hpgmg", 2)]
PYTHON

# All models that the program knows, and one that it does not: what this build lacks is left out with the reason.
apps 0 --apps stencil --devices 1 --options "stencil=$small" --repeat 1 --json "$work/all.json"
says 'nccl-graph  *1 left out: .*runs on GPUs only'
says '4 measured, 0 failed\|5 measured, 0 failed' # one of them is mpi
apps 1 --apps stencil --devices 1 --models shmem --json "$work/none.json"
says 'left out: the program has no model shmem'
says '0 measured, 0 failed, 1 left out'

# What fails is named with its reason, and the others go on.
apps 1 --apps stencil,spmv --devices 2 --models dcuda --repeat 1 --options "stencil=--coefficient 5" \
    --options "spmv=--size 40 --ranks 2" --json "$work/failed.json"
says 'FAILED: stencil, model dcuda, 2 devices: status 2: .*not within 0 to 1/32'
says '1 measured, 1 failed'
apps 1 --apps stencil --devices 1 --models "dcuda,dcuda --message plane,host --stores" --options "stencil=$small" \
    --repeat 1
says 'dcuda --message plane  *1  *[0-9]'
says 'FAILED: stencil, model host --stores, 1 device: .*nvshmem only'

# Nothing of a job that takes too long is left.
apps 1 --apps stencil,spmv --devices 2 --models dcuda --repeat 1 --time-limit 2 --json "$work/slow.json" \
    --options "stencil=--nx 17 --ny 9 --iterations 900000007" --options "spmv=--size 40 --ranks 2"
says 'FAILED: stencil, model dcuda, 2 devices: not done after 2 s'
says '1 measured, 1 failed'
! grep -lsa 900000007 /proc/[0-9]*/cmdline >/dev/null || die "processes of a job that was ended"

# Programs that are not there, that are none of ours, or that end by a signal.
mkdir "$work/programs"
apps 1 --programs "$work/programs" --apps stencil --devices 1
says 'left out: there is no program stencil in'
# program TEXT: one that has the model dcuda, and does this when it is started.
program() {
    printf '#!/bin/sh\ncase "$*" in *\\?*) echo "--model: ? not in {dcuda}"; exit 2 ;; esac\n%s\n' "$1" \
        >"$work/programs/stencil"
    chmod +x "$work/programs/stencil"
    apps 1 --programs "$work/programs" --apps stencil --devices 1
}
program 'echo nothing'
says 'FAILED: .*its report does not tell the times'
program 'echo "stencil: diffused something"; echo "WRONG: 3 of 4 values differ"; exit 1'
says 'FAILED: .*status 1: WRONG: 3 of 4 values differ'
program 'kill -SEGV $$'
says 'FAILED: .*status 139'
printf '#!/bin/sh\necho "The following arguments were not expected: ? --model"; exit 2\n' >"$work/programs/stencil"
apps 1 --programs "$work/programs" --apps stencil --devices 1 --models host
says 'left out: the program has no model host, only dcuda'
printf '#!/bin/sh\necho "error while loading shared libraries: libnone.so"; exit 127\n' >"$work/programs/stencil"
apps 1 --programs "$work/programs" --apps stencil --devices 1
says 'FAILED: .*does not say which models it has: status 127: .*libnone.so'

# More devices than GPUs.
python3 "$bench-apps" --machine '{"gpus": ["a GPU"]}' --apps stencil --devices 1,2 --models dcuda \
    --options "stencil=$small" --repeat 1 >"$work/output" 2>&1 || die "one GPU"
says 'dcuda  *2 left out: it takes 2 GPUs, and here is 1'
says '1 measured, 0 failed, 1 left out'

# Errors of the command line.
apps 2 --apps stencil --json "$work/missing/record.json"
says 'cannot write .*missing/record.json'
apps 2 --devices 0
apps 2 --devices 1,x
apps 2 --apps stencil --options "particles=--steps 2"
says 'none of --apps stencil'
DCUDA_PROCESS_INDEX=0 apps 2 --apps stencil
says 'run it without a launcher'
"$bench" --json "$work/x.json" apps >"$work/output" 2>&1 && die "apps was not the first word, and went on"
says 'apps comes first'

if ! python3 "$bench-plot" --check 2>/dev/null; then
    echo "all went as expected; pictures were not drawn: no matplotlib"
    exit 0
fi
"$bench-plot" --output "$work/pictures" "$work/good.json" >"$work/output" 2>&1 || die "no pictures"
[ -s "$work/pictures/stencil.png" ] || die "no stencil.png"
apps 0 --apps stencil --devices 1,2 --models dcuda,host --options "stencil=$small" --repeat 2 --plot "$work/own"
[ -s "$work/own/stencil.png" ] || die "--plot drew nothing"
echo "all went as expected"
