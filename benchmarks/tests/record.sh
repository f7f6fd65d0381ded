#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What dcuda-bench does with records: it writes one, reads it as a rival's and as that of a program without checks, and
# refuses what is none.
#
#   record.sh <dcuda-bench>
set -euo pipefail
bench=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $1"; cat "$work/output" 2>/dev/null; exit 1; }

small=(--rounds 3 --batches 2)
"$bench" flush "${small[@]}" --json "$work/flush.json" >"$work/output"
grep -q '"operation": "put and flush"' "$work/flush.json" || fail "no row in the record"

sed 's/"unit": "us"/"unit": "us", "library": "Rival of the test"/' "$work/flush.json" >"$work/rival.json"
"$bench" flush "${small[@]}" --rival "$work/rival.json" --compare "$work/flush.json" >"$work/output"
grep -q 'Rival of the test .*x)' "$work/output" || fail "the rival does not stand beside our row"
grep -q 'cost of checks' "$work/output" || fail "the cost of the checks is not shown"
grep -E '.{121}' "$work/output" && fail "a line is wider than 120 columns"
# On GPUs rows have goals.
if ! grep -q '<= ' "$work/output" && head -n 9 "$work/output" | grep -q goal; then
    fail "a column is shown in which no row says anything"
fi

"$bench" flush "${small[@]}" --csv >"$work/output"
head -n 1 "$work/output" | grep -q '^benchmark,path,operation,bytes' || fail "the CSV has no head"

echo '{"rows": [{"benchmark": "flush"}]}' >"$work/broken.json"
if "$bench" flush "${small[@]}" --rival "$work/broken.json" >"$work/output" 2>&1; then fail "a broken record was taken"; fi
grep -q 'broken.json is no record' "$work/output" || fail "the error does not name the file"
