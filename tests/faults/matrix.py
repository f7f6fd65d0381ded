#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Faults of all kinds at all times, and what becomes of the job: docs/design/faults.md has what is promised.

    matrix.py BIN [--short] [--only REGEX] [--seed N] [--table FILE] [--mpirun "MPIRUN OPTION..."]

BIN is the folder of dcuda-run and traffic. A case is a launcher, a path, the part that is hit, what hits it, and when:

    launcher: dcuda-run; mpirun; torchrun, srun (stand_in.py)
    path:     peer, shm, ofi:shm, ofi:tcp, mpi (under mpirun)
    part:     first (process 0), last (process), launcher, daemon (slurmstepd, under srun)
    fault:    kill, term, stop (and go on after a while)
    moment:   start (at a random time in the first 0.3 s), middle (all ranks are under way), end (a process has done its run)

Ends with 1 if a promise was broken. --short: some that stand for all; --only: cases whose name matches; --table: a table of the
results; --mpirun "": none.
"""
import argparse
import collections
import contextlib
import itertools
import os
import random
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BOUND = 40  # seconds in which a job with a fault must end
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
PROCESSES = 3

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin")
parser.add_argument("--short", action="store_true")
parser.add_argument("--only", default=".")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--table")
parser.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe --bind-to none")
chosen = parser.parse_args()
chance = random.Random(chosen.seed)
bin_folder = os.path.abspath(chosen.bin)
dcuda_run, traffic = f"{bin_folder}/dcuda-run", f"{bin_folder}/traffic"
modules = os.path.join(bin_folder, "..", "lib", "dcuda")
mpirun = shlex.split(chosen.mpirun)
has_mpirun = bool(mpirun) and shutil.which(mpirun[0]) is not None
folder = tempfile.mkdtemp(prefix="dcuda-faults-")


def marked(mark):
    """Processes of a job that live, by what they run: those whose environment has the mark."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() not in file.read():
                    continue
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    continue
            with open(f"/proc/{pid}/cmdline") as file:
                found[int(pid)] = file.read().split("\0")
        except OSError:
            pass
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Job:
    def __init__(self, launcher, path, rounds):
        self.launcher, self.output = launcher, ""
        self.mark = f"FAULT_MARK={secrets.token_hex(8)}"
        variables = {"DCUDA_SILENT_AFTER": "1", "DCUDA_CONNECT_TIMEOUT": "20", **dict([self.mark.split("=")])}
        if path != "peer":
            variables.update(DCUDA_DISABLE_PEER="1", DCUDA_TRANSPORT=path)
        exports = list(itertools.chain.from_iterable(("-x", name) for name in variables))
        start = {"dcuda-run": [dcuda_run, "-n", str(PROCESSES)],
                 "mpirun": [*mpirun, *exports, "-n", str(PROCESSES)],
                 "torchrun": [sys.executable, f"{HERE}/stand_in.py", "torchrun", str(PROCESSES), str(PROCESSES)],
                 "srun": [sys.executable, f"{HERE}/stand_in.py", "srun", str(PROCESSES), str(PROCESSES)]}[launcher]
        # A file: what processes print after the end of their launcher is seen, too, and no pipe of it ends them.
        self.file = tempfile.NamedTemporaryFile("a", dir=folder)
        self.process = subprocess.Popen([*start, traffic, "1000", str(rounds)], env={**os.environ, **variables},
                                        stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
                                        start_new_session=True)

    def read(self):
        with open(self.file.name) as file:
            self.output = file.read()
        return self.output

    def wait_for(self, condition, seconds=BOUND):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.005)
        return False

    def is_over(self):
        return self.process.poll() is not None

    def pids(self):
        return {int(process): int(pid) for process, pid in re.findall(r"process (\d+) has pid (\d+)", self.read())}

    def find(self, part):
        """The process number of a part. None: it is not there (any more)."""
        if part in ("first", "last"):
            known = self.pids()
            if len(known) == PROCESSES:
                return known[0 if part == "first" else PROCESSES - 1]
            found = sorted(pid for pid, words in marked(self.mark).items() if words[0] == traffic)
            return found[0 if part == "first" else -1] if found else None
        if part == "launcher":
            return self.process.pid
        daemon = re.search(r"daemon has pid (\d+)", self.read())
        return int(daemon[1]) if daemon else None

    def end(self):
        for pid in marked(self.mark):
            send(pid, signal.SIGKILL)
        self.process.wait()
        self.file.close()


def run_case(launcher, path, part, fault, moment):
    """Problems, and what happened."""
    # What must be ended does not end by itself.
    job = Job(launcher, path, 600 if moment == "end" else 4000 if fault == "stop" else 10**9)
    try:
        return hit(job, part, fault, moment)
    finally:
        pids = job.pids().values()
        job.end()
        for name in os.listdir("/dev/shm"):  # the next process over ofi:shm would remove them
            if any(re.fullmatch(rf"dcuda-\d+-{pid}-\d+-[0-9a-f]{{16}}", name) for pid in pids):
                with contextlib.suppress(FileNotFoundError):  # one of another test was quicker
                    os.remove("/dev/shm/" + name)


def hit(job, part, fault, moment):
    problems = []
    if moment == "start":
        time.sleep(chance.uniform(0, 0.3))
        job.wait_for(lambda: job.is_over() or job.find(part) is not None)
    elif moment == "middle":
        if not job.wait_for(lambda: job.is_over() or job.read().count("under way") == 2 * PROCESSES) or job.is_over():
            return ["the job did not start: " + job.output], ""
    else:
        job.wait_for(lambda: job.is_over() or "is done" in job.read())
    victim = job.find(part)
    known = job.pids()
    if victim is None or not send(victim, SIGNALS[fault]):
        victim = None
    begin = time.monotonic()
    if fault == "stop" and victim:
        named = re.compile(rf"process \d+ \(pid {victim} on host \S+\) has not answered")
        if part in ("first", "last") and moment == "middle":
            if not job.wait_for(lambda: named.search(job.read()), 15):
                problems.append("nothing is said of the stopped process")
        else:
            time.sleep(1.5)
        send(victim, signal.SIGCONT)
    if not job.wait_for(job.is_over):
        problems.append("the launcher does not end")
    if not job.wait_for(lambda: job.is_over() and not marked(job.mark)):
        problems.append("left: " + ", ".join(f"{pid} {' '.join(words)[:60]}" for pid, words in marked(job.mark).items()))
    took = time.monotonic() - begin
    output, code = job.read(), job.process.poll()
    done = output.count("is done") == PROCESSES
    if victim is None or fault == "stop":
        if code != 0 or not done:
            problems.append(f"code {code} without a fault that ends anything")
    elif code == 0 and not done:
        problems.append("code 0, but not all processes have done their run")
    elif code != 0 and part in ("first", "last") and job.launcher == "dcuda-run" and moment != "start":
        index = [process for process, pid in known.items() if pid == victim]
        # SIGTERM ends a run like an error; before and after it, the process.
        ends = {f"was killed by signal {int(SIGNALS[fault])}": 128 + SIGNALS[fault]}
        if fault == "term":
            ends["exited with code 1"] = 1
        named = re.search(rf"dcuda-run: process {index[0] if index else ''}\D.* ({'|'.join(ends)})", output)
        if not named:
            problems.append("dcuda-run names another process")
        if code not in ends.values():
            problems.append(f"code {code}")
    if problems:
        problems.append("it said:\n" + "\n".join("      " + line for line in output.splitlines()
                                                  if "under way" not in line and "has pid" not in line)[:2000])
    return problems, f"code {code}, {took:.1f} s" + (", was over" if victim is None else "")


def cases():
    has_ofi = os.path.exists(f"{modules}/libdcuda_ofi.so")
    local = ["peer", "shm", *(["ofi:shm", "ofi:tcp"] if has_ofi else [])]
    paths = {"dcuda-run": local, "torchrun": ["peer", "shm"], "srun": ["peer", "shm"]}
    if has_mpirun:
        paths["mpirun"] = [*local, *(["mpi"] if os.path.exists(f"{modules}/libdcuda_mpi.so") else [])]
    for launcher, list_of_paths in paths.items():
        parts = ["first", "last", "launcher", *(["daemon"] if launcher == "srun" else [])]
        for case in itertools.product([launcher], list_of_paths, parts, SIGNALS, ["start", "middle", "end"]):
            yield case


SHORT = re.compile("|".join((r"dcuda-run shm (first|last|launcher) (kill|stop|term) middle", r"dcuda-run peer \w+ kill (start|end)",
                             r"mpirun shm (launcher|last) kill middle", r"srun peer (launcher|daemon) kill middle",
                             r"torchrun peer launcher term \w+")))


def main():
    table = collections.defaultdict(lambda: [0, 0])
    broken = total = 0
    for case in cases():
        name = " ".join(case)
        if not re.search(chosen.only, name) or (chosen.short and not SHORT.fullmatch(name)):
            continue
        problems, happened = run_case(*case)
        total += 1
        broken += bool(problems)
        launcher, path, part, fault, moment = case
        cell = table[(f"{launcher}, {path}", f"{part} {fault}")]
        cell[0] += not problems
        cell[1] += 1
        print(f"{'BROKEN' if problems else 'kept  '} {name:45} {happened}", flush=True)
        for problem in problems:
            print("    " + problem, flush=True)
    columns = list(dict.fromkeys(column for _, column in table))
    rows = list(dict.fromkeys(row for row, _ in table))
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for row in rows:
        lines.append(f"| {row} | " + " | ".join("{}/{}".format(*table[row, column]) if (row, column) in table else ""
                                                for column in columns) + " |")
    if chosen.table:
        with open(chosen.table, "w") as file:
            file.write("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"{total} faults, {broken} promises broken")
    return 1 if broken or not total else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
