#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# dcuda-bench mpi on small sizes over two and four processes: the record, the solver's result against one that is computed
# here, ways that are missing, errors of the command line. The program itself compares what messages bring.
#
#   mpi.sh <dcuda-bench> <dcuda-run>
set -euo pipefail
bench=$1 run=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
die() {
    echo "FAILED: $1"
    cat "$work/output"
    exit 1
}
says() { grep -q -- "$1" "$work/output" || die "does not say: $1"; }

launch=("$run")
other_library=1
if version=$(mpirun --version 2>/dev/null); then
    case "$version" in *"Open MPI"*) launch=(mpirun --allow-run-as-root --oversubscribe --bind-to none) ;; *) launch=(mpirun) ;; esac
    # Where this launcher starts nothing, and for a program without MPI or with another one, ours is taken. A program that
    # fails in another way fails here.
    if ! "${launch[@]}" -n 2 true >"$work/output" 2>&1; then
        echo "mpirun starts nothing here"
    elif "${launch[@]}" -n 2 "$bench" mpi --ways mpi-host --measure latency --sizes 1 --rounds 1 --batches 1 >"$work/output" 2>&1 &&
        ! grep -q "not measured" "$work/output"; then
        other_library=0
    else
        says 'MPI was not found\|its own launcher has started\|takes two processes or more'
    fi
fi
[ $other_library = 0 ] || launch=("$run")
small=(--rounds 3 --batches 2 --window 5 --piece 64 --ranks 3)

"${launch[@]}" -n 2 "$bench" mpi --sizes 1,24,1000,70001 --points 12 --steps 950 "${small[@]}" --json "$work/two.json" \
    >"$work/output" 2>&1 || die "two processes"
says 'NCCL: not measured: .*runs on GPUs only'
[ $other_library = 1 ] || says 'MPI, device memory: not measured: device memory is host memory'
"${launch[@]}" -n 4 "$bench" mpi --measure jacobi --points 10 --steps 37 "${small[@]}" --json "$work/four.json" \
    >"$work/output" 2>&1 || die "four processes"
python3 - "$work/two.json" "$work/four.json" $other_library <<'PYTHON' >"$work/output" 2>&1 || die "the records"
import json, struct, sys

def solve(across, down, points, steps):
    """The plate of all processes, as the program computes it."""
    width, height = across * points, down * points
    plate = [[((x * 7 + y * 13) % 101) / 101.0 for x in range(width + 2)] for y in range(height + 2)]
    for step in range(steps):
        new = [row[:] for row in plate]
        for y in range(1, height + 1):
            for x in range(1, width + 1):
                new[y][x] = 0.25 * ((plate[y - 1][x] + plate[y + 1][x]) + (plate[y][x - 1] + plate[y][x + 1]))
        change = max(abs(a - b) for old, now in zip(plate, new) for a, b in zip(old, now))
        plate = new
        if (step + 1) % 100 == 0 and change <= 1e-5:
            break
    bits = (struct.unpack("<Q", struct.pack("<d", plate[y + 1][x + 1]))[0] * (2 * (y * width + x) + 1)
            for y in range(height) for x in range(width))
    return f"{sum(bits) % 2**64:016x} after {step + 1} steps"

two, four = (json.load(open(name)) for name in sys.argv[1:3])
without_mpi = sys.argv[3] == "1"
assert two["program"] == "dcuda-bench mpi" and two["processes"] == 2 and two["machine"]["backend"] == "cpu"
assert two["parameters"]["jacobi 1 x 2"] == solve(1, 2, 12, 950), two["parameters"]
assert int(two["parameters"]["jacobi 1 x 2"].split()[2]) < 950  # it stops by itself
for across, down in (1, 4), (2, 2):
    assert four["parameters"][f"jacobi {across} x {down}"] == solve(across, down, 10, 37), four["parameters"]
measured = [row for row in two["rows"] if "value" in row]
for row in measured:
    assert row["benchmark"] == "mpi" and 0 < row["low"] <= row["value"] <= row["high"], row
    assert row["unit"] == ("GB/s" if row["operation"].startswith("bandwidth") else "us"), row
ways = ["dCUDA, host", "dCUDA, streams", "dCUDA, ranks"]
ways += [] if without_mpi else ["MPI, host memory", "MPI, staged", "MPI, staged in pieces"]
for way in ways:
    for measurement in "latency", "bandwidth":
        sizes = {row["bytes"] for row in measured if row["operation"] == f"{measurement}, {way}"}
        assert sizes == {1, 24, 1000, 70001}, (measurement, way, sizes)
    assert any(row["operation"] == f"jacobi 1 x 2, {way}" for row in measured), way
assert {row["ranks"] for row in measured if row["operation"] == "bandwidth, dCUDA, ranks"} == {1, 3}
for missing in (row for row in two["rows"] if "missing" in row):
    assert missing["operation"].endswith(("NCCL", "MPI, device memory")) or without_mpi, missing
PYTHON

# refused TEXT ARGUMENT...: ends with an error that says this.
refused() {
    local text=$1
    shift
    "$bench" "$@" >"$work/output" 2>&1 && die "went on: $*"
    says "$text"
}
refused 'takes two processes or more' mpi --ways dcuda-host --measure jacobi --points 8 --json "$work/missing/x.json"
refused 'smoke-signals not in' mpi --ways smoke-signals
refused '--sizes: Value 0 not in range' mpi --sizes 0
refused 'mpi comes first' --json "$work/x.json" mpi
"$bench" mpi --help >"$work/output" || die "--help"
grep -E '.{121}' "$work/output" && die "a line of --help is wider than 120 columns"

if python3 "$bench-plot" --check 2>/dev/null; then
    "$bench-plot" --output "$work/pictures" "$work/two.json" >"$work/output" 2>&1 || die "no pictures"
    [ -s "$work/pictures/mpi_latency.png" ] && [ -s "$work/pictures/mpi_bandwidth.png" ] || die "a picture is missing"
fi
echo "all went as expected"
