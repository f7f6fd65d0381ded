#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs random traffic (tests/protocol/random_traffic.cu) for long: so many operations over each path, in jobs of different sizes
# and seeds, and writes a record in JSON: machine, date, commit, and of each path operations, time and failures.
#
#   scripts/soak.sh <build directory> [OPERATIONS] [RECORD] [PATH...]
#
# OPERATIONS of each path: 1e9. RECORD: soak-<date>.json. PATHs: one (process), peer, shm, ofi:shm, ofi:tcp, mpi; all that the
# build has. The first seed is drawn; SOAK_SEED sets it. SOAK_JOB: operations of a job, 2e7. SOAK_JOBS: jobs at a time, 1; each
# has its share of the cores. DCUDA_COMMIT: for the record, where there is no git. Afterwards each fuzz target
# (scripts/fuzz.sh) runs for SOAK_FUZZ seconds, 3600, if there is clang; 0: none. Ends with 1 if anything failed.
set -euo pipefail
if [ $# -lt 1 ] || [ ! -x "$1/bin/random_traffic" ]; then
    echo "Use: $0 <build directory> [OPERATIONS] [RECORD] [PATH...]; the directory must hold bin/random_traffic." >&2
    exit 2
fi
exec python3 - "$(dirname "$0")/.." "$@" <<'PYTHON'
import datetime
import json
import os
import platform
import queue
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

source, build, *rest = sys.argv[1:]
build = os.path.abspath(build)
try:
    wanted = int(float(rest[0])) if rest else 10**9
    job_operations = int(float(os.environ.get("SOAK_JOB", "2e7")))
    jobs_at_a_time = int(os.environ.get("SOAK_JOBS", "1"))
    fuzz_seconds = int(os.environ.get("SOAK_FUZZ", "3600"))
    seed = int(os.environ["SOAK_SEED"]) if "SOAK_SEED" in os.environ else random.randrange(10**9)
except ValueError as problem:
    sys.exit(f"soak.sh: {problem}")
record_path = rest[1] if len(rest) > 1 else f"soak-{datetime.date.today()}.json"
program, launcher = f"{build}/bin/random_traffic", f"{build}/bin/dcuda-run"
modules = os.listdir(f"{build}/lib/dcuda") if os.path.isdir(f"{build}/lib/dcuda") else []
mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
with open(f"{build}/CMakeCache.txt") as file:
    backend = re.search(r"^DCUDA_BACKEND:\w+=(\w+)", file.read(), re.M)[1]
gpus = len([name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]) if backend == "cuda" else 0
known = ["one"] + ([] if gpus == 1 else ["peer", "shm"])
if "libdcuda_ofi.so" in modules and gpus != 1:
    known += ["ofi:shm", "ofi:tcp"]
if "libdcuda_mpi.so" in modules and mpirun and gpus != 1:
    known += ["mpi"]
paths = rest[2:] or known
for path in paths:
    if path not in known:
        sys.exit(f"soak.sh: no path {path} here; there are {', '.join(known)}")
limit = 3600  # seconds that a job may take
allowed = sorted(os.sched_getaffinity(0))
if not 1 <= jobs_at_a_time <= len(allowed):
    sys.exit(f"soak.sh: SOAK_JOBS is {jobs_at_a_time}; with {len(allowed)} cores it is a number from 1 to {len(allowed)}")
shares = queue.SimpleQueue()  # of cores, that no job has
for index in range(jobs_at_a_time):
    shares.put(allowed[index::jobs_at_a_time])


def said(*command):
    found = subprocess.run(command, cwd=source, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def machine():
    model = ""
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    about = {"processor": model, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}"}
    if gpus:
        about["gpus"] = (said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "").splitlines()
    return about


def run_job(path, operations, job_seed):
    """One job of a random shape, on a free share of the cores. Returns what is known of it."""
    chance = random.Random(job_seed)
    job = {"seed": chance.randrange(10**9), "operations": 0, "messages": 0, "bytes": 0, "seconds": 0.0}
    processes = 1 if path == "one" else chance.choice([2, 3, 4]) if backend == "cpu" else chance.randint(2, gpus)
    arguments = ["--seed", str(job["seed"]), "--operations", str(operations),
                 "--largest", str(chance.choice([64, 4096, 65536, 65536, 262144])),
                 "--threads", str(chance.choice([1, 4, 32, 33] if backend == "cpu" else [32, 64, 128, 256]))]
    if backend == "cpu":
        arguments.append(f"--dcuda-ranks={chance.choice([1, 2, 5, 8, 17])}")
    environment = dict(os.environ)
    if path not in ("one", "peer"):
        environment.update(DCUDA_DISABLE_PEER="1", DCUDA_TRANSPORT=path)
    start = [launcher, "-n", str(processes)]
    if path == "mpi":
        start = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-x", "DCUDA_DISABLE_PEER", "-x",
                 "DCUDA_TRANSPORT", "-n", str(processes)]
    job["command"] = " ".join([f"-n {processes}", *arguments])
    cores = shares.get()
    os.sched_setaffinity(0, cores)  # of this thread, whose children have the same
    begin = time.monotonic()
    try:
        result = subprocess.run([*start, program, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=limit)
        output, failed = result.stdout + result.stderr, result.returncode != 0
    except subprocess.TimeoutExpired as late:
        output, failed = f"{late.stdout or ''}{late.stderr or ''}\nnot ended within {limit} s", True
    job["seconds"] = time.monotonic() - begin
    shares.put(cores)
    for name in ("operations", "messages", "bytes"):
        job[name] = sum(map(int, re.findall(rf"(\d+) {name}\b", output)))
    if failed or output.count(": correct") != processes:
        job["output"] = output[-4000:]
    return job


record = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": machine(),
          "commit": os.environ.get("DCUDA_COMMIT") or said("git", "rev-parse", "HEAD"), "changed": bool(said("git", "status", "--porcelain", "--untracked-files=no")), "backend": backend,
          "seed": seed, "paths": []}
for path in paths:
    total = {"path": path, "jobs": 0, "operations": 0, "messages": 0, "bytes": 0, "seconds": 0.0, "failures": []}
    record["paths"].append(total)
    first_seeds = random.Random(f"{seed} {path}")
    while total["operations"] < wanted and len(total["failures"]) < 10:
        # What is missing, in jobs of equal size; a job that failed leaves something for the next turn.
        missing = wanted - total["operations"]
        jobs = -(-missing // job_operations)
        with ThreadPoolExecutor(jobs_at_a_time) as pool:
            started = [pool.submit(run_job, path, -(-missing // jobs), first_seeds.randrange(10**9)) for _ in range(jobs)]
            for ended in as_completed(started):
                job = ended.result()
                total["jobs"] += 1
                for name in ("operations", "messages", "bytes", "seconds"):
                    total[name] += job[name]
                if "output" in job:
                    total["failures"].append({name: job[name] for name in ("seed", "command", "output")})
                    print(f"FAILED over {path}: {job['command']}\n{job['output']}", flush=True)
                # After each job, so that a soak that is stopped has its record, too.
                with open(record_path + ".tmp", "w") as file:
                    json.dump(record, file, indent=1)
                os.replace(record_path + ".tmp", record_path)
                if len(total["failures"]) >= 10:
                    pool.shutdown(cancel_futures=True)
                    break
    print(f"{path}: {total['operations']} operations, {total['messages']} messages, {total['bytes']} bytes in {total['jobs']} jobs, "
          f"{total['seconds']:.0f} s: {len(total['failures'])} failures", flush=True)
fuzzed = True
if fuzz_seconds > 0 and shutil.which("clang++"):
    # The parsers and the control plane, each for so long.
    done = subprocess.run(["scripts/fuzz.sh", str(fuzz_seconds)], cwd=source, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if re.match(r"(passed|failed): |\d+ passed", line)]
    record["fuzzed"] = {"seconds_each": fuzz_seconds, "results": lines}
    fuzzed = done.returncode == 0
    print("\n".join(lines) if fuzzed else done.stdout + done.stderr, flush=True)
    with open(record_path, "w") as file:
        json.dump(record, file, indent=1)
sys.exit(1 if not fuzzed or any(total["failures"] for total in record["paths"]) else 0)
PYTHON
