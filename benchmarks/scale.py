#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What many processes cost each of them: runs the program `scale` with 8 to 64 processes and one rank each, over the
network, and prints a table beside what docs/design/scale.md expects.

  benchmarks/scale.py <folder of dcuda-run and scale> [--transports ofi:tcp shm] [--processes 8 16 32 64]
"""
import argparse
import os
import statistics
import subprocess
import time

TAGS = 4


def ring_kib(processes):
    return min(max((1 << ((32 << 10) // processes).bit_length() - 1), 256), 2048)


def partners(processes, index):
    """Whom a process connects to: in barriers those 2^i before and behind it; in the ring its neighbours are of these."""
    steps = [1 << i for i in range((processes - 1).bit_length())]
    return len({(index + sign * step) % processes for step in steps for sign in (1, -1)} - {index})


def run(folder, transport, processes):
    environment = dict(os.environ, DCUDA_DISABLE_PEER="1", DCUDA_TRANSPORT=transport, DCUDA_TAGS=str(TAGS))
    begin = time.monotonic()
    result = subprocess.run([f"{folder}/dcuda-run", "-n", str(processes), "--ranks", "1", f"{folder}/scale"],
                            env=environment, capture_output=True, text=True, timeout=300)
    wall_s = time.monotonic() - begin
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("process ")]
    if result.returncode != 0 or len(rows) != processes:
        raise SystemExit(f"{transport}, {processes} processes: {len(rows)} lines\n{result.stderr}")
    return wall_s, {int(row[1]): dict(zip(row[2::2], map(float, row[3::2]))) for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--transports", nargs="+", default=["ofi:tcp", "shm"])
    parser.add_argument("--processes", nargs="+", type=int, default=[8, 16, 32, 64])
    parser.add_argument("--repeat", type=int, default=3, help="the run with the median wall time counts")
    options = parser.parse_args()
    print(f"one rank per process, {TAGS} tags; sockets and memory of processes 1..: median (most)\n")
    print("| transport | processes | all, s | start, ms | first run, ms | second run, ms | memory at start, MiB "
          "| peak, MiB | process 0, MiB | sockets | partners, by formula | their rings, KiB |")
    print("|---|" + "---:|" * 11)
    for transport in options.transports:
        for processes in options.processes:
            runs = sorted((run(options.folder, transport, processes) for _ in range(options.repeat)),
                          key=lambda each: each[0])
            wall_s, by_process = runs[len(runs) // 2]
            others = [each for index, each in by_process.items() if index > 0]

            def median(name, digits=0, scale=1.0):
                return f"{statistics.median(each[name] for each in others) / scale:.{digits}f}"

            def largest(name, digits=0, scale=1.0):
                return f"({max(each[name] for each in others) / scale:.{digits}f})"

            active = partners(processes, 1)
            print(f"| {transport} | {processes} | {wall_s:.1f} | {median('start_ms')} | {median('first_ms')} "
                  f"| {median('second_ms')} | {median('start_kib', 1, 1024)} "
                  f"| {median('peak_kib', 1, 1024)} {largest('peak_kib', 1, 1024)} "
                  f"| {by_process[0]['peak_kib'] / 1024:.1f} | {median('sockets')} {largest('sockets')} | {active} "
                  f"| {2 * active * ring_kib(processes)} |", flush=True)


if __name__ == "__main__":
    main()
