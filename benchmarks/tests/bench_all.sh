#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# bench_all.py: makes records, goes on where it stopped, and names what failed or is missing.
#   bench_all.sh BUILD
set -euo pipefail
build=$1
all=$(dirname "$0")/../bench_all.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export DCUDA_COMMIT=0123abc
fail() {
    printf 'failed: %s\n%s\n' "$1" "$(cat "$folder/log")"
    exit 1
}
# run STATUS OPTION...: what it prints lies in the log.
run() {
    local expected=$1 status=0
    shift
    "$all" "$build" "$folder/records" --records "$folder/plan" "$@" >"$folder/log" 2>&1 || status=$?
    [ "$status" -eq "$expected" ] || fail "exit status $status instead of $expected with $*"
}
says() { grep -qE -- "$1" "$folder/log" || fail "it does not say: $1"; }

cat >"$folder/plan" <<'PLAN'
# A comment.
absent.json  1  bench_of_nobody
first.json   1  dcuda-bench latency --sizes 8 --rounds 2 --batches 2
second.txt   2  DCUDA_TAGS=20 dcuda-run -n 2 dcuda-bench barrier --rounds 2 --batches 2 --rival {absent.json?}
second.txt   1  dcuda-bench latency --sizes 8 --rounds 2 --batches 2 --compare {first.json}
needs.json   1  dcuda-bench latency --compare {absent.json}
PLAN
run 0 --list
says '^absent.json: bench_of_nobody is not built$'
[ ! -e "$folder/records" ] || fail "--list made something"
run 0 --seconds 0
says '0.0 s are over: call again for the rest, from absent.json on'
run 0 --only first
says 'made +first.json'
run 0
says 'skipped +absent.json: bench_of_nobody is not built'
says 'skipped +needs.json: absent.json is not there'
says 'made +second.txt'
! grep -q first.json "$folder/log" || fail "a record was made twice"
grep -q '"commit": "0123abc"' "$folder/records/first.json" || fail "the record has no commit"
[ "$(grep -c '^\$ ' "$folder/records/second.txt")" -eq 2 ] || fail "second.txt does not have both commands"
grep -q '| `second.txt` | 0123abc |' "$folder/records/README.md" || fail "README.md does not name a record"

# Of another commit all is measured again; of a command that fails the output is kept, and no record.
export DCUDA_COMMIT=4567def
echo 'wrong.txt 1 dcuda-bench latency --sizes none' >>"$folder/plan"
run 1
says 'made +first.json'
says 'FAILED +wrong.txt: exit status [0-9]+: dcuda-bench latency --sizes none; see wrong.txt.failed'
[ -e "$folder/records/wrong.txt.failed" ] && [ ! -e "$folder/records/wrong.txt" ] || fail "what the failed command said is not kept"

echo 'third.json 1' >>"$folder/plan"
run 1
says 'expected NAME.json or NAME.txt, a number of GPUs and a command'
