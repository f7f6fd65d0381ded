#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# In the virtual machine of scripts/verbs_vm.sh: what every transport must do, over soft-RoCE; and whole programs, which
# lie beside the launcher.
#   verbs_vm_test.sh LAUNCHER TEST
set -euo pipefail
launcher=$1
test=$2
export DCUDA_TRANSPORT=verbs

# run PROCESSES TESTS: skipped is not passed, there is a device.
run() {
    echo "=== $1 processes: $2"
    "$launcher" -n "$1" -- "$test" "--gtest_filter=$2" --gtest_brief=1 || exit 1
}

run 2 '*'
run 4 '*random*:*both*:*slow*'
# The send queues change their peers.
DCUDA_VERBS_POOL=1 run 4 '*alignment*:*all_to_all*'
# The targets have no receives left most of the time.
DCUDA_VERBS_RECEIVES=32 run 3 '*slow*'

# program NAME ARGUMENT...: the whole runtime, with two processes that have nothing but this network.
program() {
    echo "=== 2 processes: $*"
    "$launcher" -n 2 -- "$(dirname "$launcher")/$1" "${@:2}" || exit 1
}
export DCUDA_DISABLE_PEER=1 DCUDA_RANKS_PER_DEVICE=3
program 02_ring
program stencil --nx 20 --ny 13 --nz 3 --iterations 20 --verify
program power_iteration --size 50 --density 0.1 --iterations 10 --verify
