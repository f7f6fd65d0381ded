#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the small wrong programs and their right twins under the protocol checker.

    check_test.py DCUDA_RUN CHECK_PROGRAMS [SEEDS]

Each wrong program must be found, with its ranks, operation and lines; each right one must be clean.
"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

launcher, program = sys.argv[1:3]
seeds = range(1, 1 + int(sys.argv[3] if len(sys.argv) > 3 else 1))
source = Path(__file__).parent / "check_programs.cu"

# What a finding says, in any schedule. {put} is the line that is marked `place: put` in the program.
EXPECTED = {
    "read_early": [
        r"rank 1 reads window 0 of rank 1 \[64, 72\) \({read}\) while the put of rank 0 \({put}\) may still change it: "
        r"nothing orders the put before the read; wait for the notification with tag 3 first",
        r"rank 0 puts to window 0 of rank 1 \[64, 72\) \({put}\) while rank 1 may still be reading it \({read}\): .*"
        r"wait for its notification \(tag 3\) before the read",
    ],
    "told_relaxed": [
        r"rank 1 reads window 0 of rank 1 \[64, 72\) \({read}\) while the put of rank 0 \({put}\) may still change it: "
        r"nothing orders the put before the read; no notification follows it: use put_notify, or notify rank 1 after it",
        r"rank 0 puts to window 0 of rank 1 \[64, 72\) \({put}\) while rank 1 may still be reading it \({read}\)",
    ],
    "get_early": [
        r"rank 0 reads window 0 of rank 1 \[64, 72\) \({get}\) while rank 1 may still be writing it \({write}\): nothing "
        r"orders the write before the read",
        r"rank 1 writes window 0 of rank 1 \[64, 72\) \({write}\) while rank 0 may still be reading it \({get}\)",
    ],
    "count_early": [
        r"rank 1 reads window 0 of rank 1 \[64, 72\) \({read}\) while rank 0 may still be in an atomic operation on it "
        r"\({add}\): nothing orders the atomic operation before the read",
        r"rank 0 makes an atomic operation on window 0 of rank 1 \[64, 72\) \({add}\) while rank 1 may still be reading it",
    ],
    "value_read_early": [
        r"rank 1 reads window 0 of rank 1 \[120, 128\) \({read}\) while the put of rank 0 \(.*\) may still change it: "
        r"nothing orders the put before the read; wait for the notification with tag 3 first",
        r"rank 0 puts to window 0 of rank 1 \[120, 128\) \(.*\) while rank 1 may still be reading it \({read}\): .*"
        r"wait for its notification \(tag 3\) before the read",
    ],
    "write_early": [
        r"rank 1 writes window 0 of rank 1 \[80, 88\) \({write}\) while the put of rank 0 \({put}\) may still change it",
        r"rank 0 puts to window 0 of rank 1 \[80, 88\) \({put}\) while rank 1 may still be writing it \({write}\)",
    ],
    "no_notification": [
        r"rank 1 reads .* \({read}\) while the put of rank 0 \({put}\) .* no notification follows it",
        r"rank 0 puts to .* \({put}\) while rank 1 may still be reading it \({read}\)",
    ],
    "no_credit": [
        r"rank 0 puts to window 0 of rank 1 \[64, 72\) \({put}\) while rank 1 may still be reading it \({read}\): nothing "
        r"orders the read before the put; rank 1 must notify rank 0 after it \(a credit\)",
        r"rank 1 reads window 0 of rank 1 \[64, 72\) \({read}\) while the put of rank 0 \({put}\) may still change it",
    ],
    "two_puts": [r"rank [12] puts to window 0 of rank 0 \[64, 72\) \({second}|{first}\) while the put of rank [12] \("],
    "forward_early": [
        r"rank 1 puts from window 0 of rank 1 \[64, 72\) \({forward}\) while the put of rank 0 \({put}\) may still change",
        r"rank 0 puts to window 0 of rank 1 \[64, 72\) \({put}\) while the put of rank 1 \({forward}\) to rank 2 may still",
    ],
    "in_place": [
        r"rank 0 writes window 0 of rank [01] \[\d+, \d+\) \({write}\) while rank 1 may still be reading it \({read}\): nothing "
        r"orders the read before the write",
        r"rank 1 reads window 0 of rank 1 \[64, 72\) \({read}\) while rank 0 may still be writing it \({write}\)",
        r"rank 2 writes window 0 of rank [23] \[\d+, \d+\) \({write}\) while rank 3 may still be reading it \({read}\)",
        r"rank 3 reads window 0 of rank 3 \[64, 72\) \({read}\) while rank 2 may still be writing it \({write}\)",
    ],
    "overwrite": [
        r"rank 0 overwrites window 0 of rank 0 \[0, 8\) \({write}\) while the put of rank 0 \({put}\) to rank 1 may still "
        r"read it: .* flush window 0 first",
    ],
    "overwrite_before_answer": [
        r"rank 0 overwrites window 0 of rank 0 \[0, 8\) \({write}\) while the put of rank 0 \({put}\) to rank 1 may still",
    ],
    "left_over": [r"rank 1 has 1 notification with tag 9 left over .* the notify of rank 0 \({notify}\)"],
    "too_many": [r"rank 1 waits for 2 notifications with tag 9 \({wait}\), of which 1 has arrived, and no more can come"],
    "wrong_tag": [r"rank 1 waits for 1 notification with tag 9 \({wait}\), of which 0 have arrived; it has 1 with tag 8"],
    "test_for_ever": [r"rank 1 tests for 1 notification with tag 9 again and again \({test}\), of which 0 arrived"],
    "use_of_freed": [r"rank 0: put \({put}\) on window 1, which was freed \({free}\)"],
    "freed_too_early": [r"window 1 is freed \({free}\) while the put of rank 0 \({put}\) to \[0, 8\) of rank 1 may still"],
    "other_order": [
        r"rank [0-3] calls barrier\((world|device)\) \({world}|{device}\) while rank [0-3] is in barrier\((world|device)\)"
    ],
    "one_is_missing": [
        r"rank 1 calls the end of the kernel \(.*\) while rank [0-3] is in barrier\(world\) \({barrier}\)",
        r"rank [0-3] calls barrier\(world\) \({barrier}\) while rank 1 is in the end of the kernel",
    ],
    "left_early": [
        r"rank 1 has left the kernel without its last collective call \(finish\), which all others wait for; its last operation "
        r"was wait_notifications \({wait}\)"
    ],
    "other_source": [
        r"rank 1 reads window 0 of rank 1 \[64, 72\) \({read}\) while the put of rank 0 \({put}\) may still change it: "
        r"nothing orders the put before the read; wait for the notification with tag 255 from rank 0 first",
        r"rank 0 puts to window 0 of rank 1 \[64, 72\) \({put}\) while rank 1 may still be reading it \({read}\): .*"
        r"wait for its notification \(tag 255 from rank 0\) before the read",
    ],
    "too_many_from": [
        r"rank 1 waits for 2 notifications with tag 255 from rank 0 \({wait}\), of which 1 has arrived; it has 1 with tag 255 "
        r"from rank 2, and no more can come"
    ],
    "threads_differ": [r"rank 0: its threads call put_notify with different arguments \({put}\)"],
    "thread_is_missing": [
        r"rank 0: some of its threads call notify \({notify}\), others (__syncthreads \({sync}\)|are in __syncthreads)"
    ],
}


def places(name):
    """The marked lines of a program, by their word: "check_programs.cu:17"."""
    lines = source.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if re.match(rf"__(device|global)__ void {name}\(", line))
    end = next(i for i in range(begin, len(lines)) if lines[i] == "}")
    marks = {}
    for number in range(begin, end):
        if mark := re.search(r"// place: (\w+)", lines[number]):
            marks[mark[1]] = re.escape(f"{source.name}:{number + 1}")
    return marks


def run(name, variant, processes, seed, mode="1"):
    ranks = 4 // processes
    environment = dict(os.environ, DCUDA_CHECK=mode, DCUDA_CHECK_SEED=str(seed), DCUDA_RANKS_PER_DEVICE=str(ranks))
    start = [launcher, "-n", str(processes)] if processes > 1 else []
    return subprocess.run(start + [program, name, variant], env=environment, capture_output=True, text=True, timeout=60)


def check(case):
    name, processes, seed = case
    problems = []
    wrong = run(name, "wrong", processes, seed)
    patterns = [pattern.format(**places(name)) for pattern in EXPECTED[name]]
    if wrong.returncode == 0 or not any(re.search(pattern, wrong.stderr) for pattern in patterns):
        problems.append(f"{name} wrong, {processes} processes, seed {seed}: exit {wrong.returncode}, expected one of\n    "
                        + "\n    ".join(patterns) + f"\n  found\n{wrong.stderr}")
    right = run(name, "right", processes, seed)
    if right.returncode != 0 or "nothing found" not in right.stderr:
        problems.append(f"{name} right, {processes} processes, seed {seed}: exit {right.returncode}\n{right.stderr}")
    return problems


names = re.findall(r'^    \{"(\w+)", ', source.read_text(), re.MULTILINE)
assert sorted(names) == sorted(EXPECTED), "programs and expectations differ"
cases = [(name, processes, seed) for name in names for processes in (1, 2) for seed in seeds]
with ThreadPoolExecutor(2) as pool:
    problems = [problem for found in pool.map(check, cases) for problem in found]

# One seed is one run, also of what is wrong; other seeds are others: which of two puts comes last, and whether a source is
# read before it is overwritten.
for name, rank, values in (("two_puts", 0, {"1", "2"}), ("overwrite", 1, {"0", "2"})):
    runs = {seed: [run(name, "wrong", 2, seed, "report") for _ in range(2)] for seed in range(1, 7)}
    for seed, (one, other) in runs.items():
        if one.returncode != 0 or sorted(one.stderr.splitlines()) != sorted(other.stderr.splitlines()) or \
                sorted(one.stdout.splitlines()) != sorted(other.stdout.splitlines()):
            problems.append(f"{name}, seed {seed}, twice: {one}\n{other}")
    seen = {re.search(f"rank {rank} has (.*)", one.stdout)[1] for one, _ in runs.values()}
    if seen != values:
        problems.append(f"{name}: rank {rank} has {seen} with different seeds, expected {values}")

print("\n".join(problems) or f"check: {len(names)} programs, {len(cases)} cases are fine")
sys.exit(1 if problems else 0)
