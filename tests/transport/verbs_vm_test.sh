#!/usr/bin/env bash
# In the virtual machine of scripts/verbs_vm.sh: what every transport must do, over soft-RoCE.
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
