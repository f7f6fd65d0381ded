#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The script that draws results: pictures of a small record; a clear error where matplotlib or the record is missing.
#
#   plot.sh <dcuda-bench> <dcuda-bench-plot>
set -euo pipefail
bench=$1 plot=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! python3 "$plot" --check 2>"$work/error"; then
    grep -q matplotlib "$work/error" || { echo "no matplotlib, and no word about it:"; cat "$work/error"; exit 1; }
    echo "no matplotlib"
    exit 77
fi
cat >"$work/record.json" <<'JSON'
{"program": "dcuda-bench", "processes": 2, "machine": {"multiprocessors": 132}, "rows": [
 {"benchmark": "latency", "path": "peer", "operation": "put_notify", "bytes": 4, "threads": 128, "ranks": 1, "beside": 0,
  "unit": "us", "value": 1.0, "low": 0.9, "high": 1.1, "rivals": [{"name": "NVSHMEM", "value": 2.0, "ratio": 2.0}]},
 {"benchmark": "bandwidth", "path": "peer", "operation": "put, 1 rank", "bytes": 65536, "threads": 128, "ranks": 1,
  "beside": 0, "unit": "GB/s", "value": 40, "low": 39, "high": 41},
 {"benchmark": "bandwidth", "path": "peer", "operation": "put, all ranks", "bytes": 65536, "threads": 128, "ranks": 99,
  "beside": 0, "unit": "GB/s", "value": 350, "low": 349, "high": 351},
 {"benchmark": "barrier", "path": "same device", "operation": "barrier", "bytes": 0, "threads": 32, "ranks": 132,
  "beside": 0, "unit": "us", "value": 0.9, "low": 0.9, "high": 0.9, "rivals": [{"name": "grid.sync", "value": 1.0, "ratio": 1.1}]},
 {"benchmark": "overlap", "path": "neighbours", "operation": "copy, overlap", "bytes": 1024, "threads": 128, "ranks": 132,
  "beside": 0, "unit": "ratio", "value": 0.5, "low": 0.4, "high": 0.6},
 {"benchmark": "waiters", "path": "same device", "operation": "copy, slow-down", "bytes": 0, "threads": 64, "ranks": 132,
  "beside": 1, "unit": "times", "value": 1.01, "low": 1.0, "high": 1.02},
 {"benchmark": "latency", "path": "remote", "operation": "put_notify", "bytes": 0, "threads": 0, "ranks": 0, "beside": 0,
  "unit": "us", "missing": "no network"}]}
JSON
python3 "$plot" --output "$work/pictures" "$work/record.json"
for name in latency bandwidth barrier overlap waiters; do
    [ -s "$work/pictures/$name.png" ] || { echo "no $name.png"; exit 1; }
done
if python3 "$plot" --output "$work/pictures" "$work/none.json" 2>"$work/error"; then
    echo "a record that is not there was drawn"
    exit 1
fi
grep -q none.json "$work/error" || { echo "the error does not name the file:"; cat "$work/error"; exit 1; }
# From the program itself, where it can run here.
if "$bench" flush --rounds 3 --batches 2 --json "$work/flush.json" >/dev/null 2>&1; then
    "$bench" latency --rounds 3 --batches 2 --sizes 4 --threads 32 --plot "$work/own" >/dev/null
    [ -s "$work/own/latency.png" ] || { echo "--plot drew no latency.png"; exit 1; }
fi
