#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the case studies over numbers of devices, with dCUDA and with the models that they are compared with.

Weak scaling: every device gets the published amount of work, if --options says nothing else; but hpgmg, which --apps can
name, solves the largest cube that fits. Each application, model and number of devices is a job of its own, under
dcuda-run, or mpirun for the model mpi. What fails or exceeds its time is named, and the others go on; the exit status
tells. Results lie beside each other in tables, a record and pictures.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

APPLICATIONS = ["stencil", "particles", "spmv", "power_iteration"]  # by default; others, such as hpgmg, by name
# Models whose blocks communicate from inside a kernel; in all others the host calls a library between kernels.
ONE_MODEL = ("dcuda", "nvshmem")
# With these words a program says that it cannot have what was asked for: on any number of devices, or on this one. All
# else is a failure.
NOT_HERE = r"this build has no model .*"
NO_MODEL = "the program has no model"
NOT_ON_SO_MANY = r"the models? .+ (is|are) for (one device|at most \d+ devices).*"
LAUNCHERS = ("DCUDA_PROCESS_INDEX", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
SETTINGS = ("DCUDA_", "NCCL_", "NVSHMEM_", "UCX_", "FI_", "OMPI_", "CUDA_VISIBLE_DEVICES")  # that go into the record
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 10  # from the request to end until a job is killed
MOST_OUTPUT = 4000  # characters of a failed job, in the record


class Job(NamedTuple):
    status: int
    output: str
    timed_out: bool
    seconds: float


def run_job(command, limit_s, environment=None):
    """Its output goes to a file: a process that it leaves behind cannot keep a pipe open."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        # In a session of its own, so that all of it can be ended.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
        timed_out = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:  # also when this script is stopped
            end(process)
        output.seek(0)
        return Job(process.returncode, output.read().decode(errors="replace"), timed_out, time.monotonic() - begin)


def end(process):
    """Launchers end their processes when they are asked to end."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stop(number, _frame):
    """Whoever stops this script stops the job that runs."""
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    print(f"stopped by {signal.Signals(number).name}", file=sys.stderr, flush=True)
    sys.exit(128 + number)


def reason_of(name, job):
    """One line of what a job printed when it failed: that its results are wrong, its error, or the last."""
    lines = [line.strip() for line in job.output.splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith("WRONG: ")]
    errors = [line for line in lines if re.match(rf"{name}\w*: |--[\w-]+: ", line)]
    others = [line for line in lines if not line.startswith("dcuda-run: ")] or lines or ["it printed nothing"]
    return f"status {job.status}: {(wrong + errors + others[-1:])[0]}"


class Application:
    """A program, and the models that it knows. Which of them this build has, only a run tells."""

    def __init__(self, name, folders):
        self.name = name
        self.program = next((folder / name for folder in folders if os.access(folder / name, os.X_OK)), None)
        self.models = ["dcuda"]
        self.takes_model = False
        if self.program is None:
            raise FileNotFoundError(f"there is no program {name} in {' or '.join(map(str, folders))}")
        # It refuses a model of this name with a list of those that it knows.
        asked = run_job([self.program, "--model", "?"], 60, dict(os.environ, DCUDA_LAUNCHER="none"))
        known = re.search(r"--model: .*\{(.+)\}", asked.output)
        if known:
            self.takes_model = True
            self.models = known.group(1).split(",")
        elif not re.search(r"not expected: .*--model", asked.output):
            raise RuntimeError(f"it does not say which models it has: {reason_of(name, asked)}")


def mpirun():
    """MPI's launcher, or the reason why there is none."""
    found = shutil.which("mpirun")
    if found is None:
        return None, "there is no mpirun"
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if "Open MPI" in version else []
    return [found, *flags], None


def measure(application, model, devices, chosen, launcher):
    """A row: what was measured, or why nothing was."""
    words = shlex.split(model)
    row = {"application": application.name, "model": model, "devices": devices}
    if chosen.gpus is not None and devices > chosen.gpus:
        are = "is" if chosen.gpus == 1 else "are"
        return {**row, "missing": f"it takes {devices} GPUs, and here {are} {chosen.gpus}"}
    if words[0] not in application.models:
        return {**row, "missing": f"{NO_MODEL} {words[0]}" + ("" if application.takes_model else ", only dcuda")}
    start = [launcher, "-n", str(devices), "--"]
    if words[0] == "mpi":
        start, problem = mpirun()
        if problem:
            return {**row, "missing": problem}
        start += ["-n", str(devices)]
    arguments = [*(["--model", *words] if application.takes_model else words[1:]),
                 *chosen.options.get(application.name, []), "--repeat", str(chosen.repeat), "--progress", "0"]
    if chosen.verify:
        arguments.append("--verify")
    row["command"] = shlex.join([Path(start[0]).name, *start[1:], application.name, *arguments])
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        job = run_job([*start, application.program, *arguments, "--json", report], chosen.time_limit)
        row["seconds"] = round(job.seconds, 2)
        refusal = re.search(f"{NOT_HERE}|{NOT_ON_SO_MANY}", job.output)
        if job.timed_out:
            failure = f"not done after {chosen.time_limit:g} s"
        elif job.status != 0 and refusal:
            return {**row, "missing": refusal.group(0)}
        elif job.status != 0:
            failure = reason_of(application.name, job)
        else:
            try:
                return {**row, **told(json.loads(report.read_text()))}
            except (OSError, ValueError, KeyError, TypeError, StopIteration) as problem:
                failure = f"its report does not tell the times: {problem!r}"
        return {**row, "failed": failure, "output": job.output[-MOST_OUTPUT:]}


def rows_of(name, folders, chosen, launcher):
    """Measures an application: row after row."""
    try:
        application = Application(name, folders)
    except FileNotFoundError as problem:
        yield {"application": name, "model": "all", "devices": chosen.devices[0], "missing": str(problem)}
        return
    except RuntimeError as problem:
        yield {"application": name, "model": "all", "devices": chosen.devices[0], "failed": str(problem)}
        return
    not_here = set()  # said once; what is not for so many devices is not for more
    for devices in chosen.devices:
        for model in chosen.models or application.models:
            if model in not_here:
                continue
            row = measure(application, model, devices, chosen, launcher)
            if re.search(f"{NOT_HERE}|{NO_MODEL}|{NOT_ON_SO_MANY}", row.get("missing", "")):
                not_here.add(model)
            yield row


def told(report):
    """Milliseconds of a run, from a program's report, which has microseconds of a step."""
    name = next(key for key in report if re.fullmatch(r"time_per_\w+_us", key))
    step = name[len("time_per_"):-len("_us")]
    steps = next(report[key] for key in (f"{step}s", "repetitions") if key in report)
    time_us = report[name]
    row = {"unit": "ms", "step": step, "steps": steps, "interval": time_us["interval"], "runs": report["repeat"]}
    for ours, theirs in (("value", "median"), ("low", "low"), ("high", "high")):
        row[ours] = time_us[theirs] * steps / 1e3
    alone_us = report.get(f"exchanges_alone_per_{step}_us")
    if alone_us:
        row["exchanges_alone"] = alone_us * steps / 1e3
    row["verified"] = (report.get("verification") or {}).get("equal", False)
    row["report"] = report
    return row


# --- What is printed -------------------------------------------------------------------------------------------------

# The same columns as below.
HEAD = f"{'devices':>7} {'ms':>10}  {'interval':<22} {'exchanges':>10} {'efficiency':>10}"


def efficiency(row, rows):
    """Time on the fewest devices that this model ran on, by the time on these; None on those."""
    same = [other for other in rows if "value" in other and other["model"] == row["model"]]
    fewest = min(same, key=lambda other: other["devices"], default=row)
    return fewest["value"] / row["value"] if fewest["devices"] < row["devices"] and row["value"] > 0 else None


def in_words(row, rows):
    if "value" not in row:
        outcome = f"left out: {row['missing']}" if "missing" in row else f"FAILED: {row['failed']}"
        return f"{row['model']:<22} {row['devices']:>7} {outcome}"
    scaling = efficiency(row, rows)
    alone = f"{row['exchanges_alone']:.3f}" if "exchanges_alone" in row else "-"
    interval = f"{row['low']:.3f} to {row['high']:.3f}"
    return (f"{row['model']:<22} {row['devices']:>7} {row['value']:>10.3f}  {interval:<22} {alone:>10} "
            f"{'-' if scaling is None else format(scaling, '.2f'):>10}").rstrip()


def best(rows, belongs):
    return min((row for row in rows if belongs(row["model"].split()[0])), key=lambda row: row["value"], default=None)


def comparisons(rows):
    """For each number of devices, dCUDA's best time beside the best of two models and of NVSHMEM."""
    lines = []
    for devices in sorted({row["devices"] for row in rows}):
        here = [row for row in rows if "value" in row and row["devices"] == devices]
        ours = best(here, lambda name: name == "dcuda")
        others = [("the best of two models", best(here, lambda name: name not in ONE_MODEL)),
                  ("the best of NVSHMEM", best(here, lambda name: name == "nvshmem"))]
        if ours is None or not ours["value"] > 0 or not any(row for _, row in others):
            continue
        lines.append("; ".join([f"{counted(devices)}: {ours['model']} {ours['value']:.3f} ms"]
                               + [f"{row['model']}, {what}, {row['value']:.3f} ms ({row['value'] / ours['value']:.2f}x)"
                                  for what, row in others if row]))
    return lines


def counted(devices):
    return f"{devices} device{'s' if devices > 1 else ''}"


def write_record(chosen, rows):
    """The whole file or the one before: it is written anew after every job."""
    parameters = {"subcommand": "apps", "repeat": chosen.repeat, "time_limit_s": chosen.time_limit,
                  "options": {name: shlex.join(words) for name, words in chosen.options.items()},
                  "environment": {name: value for name, value in sorted(os.environ.items())
                                  if name.startswith(SETTINGS) and name != "DCUDA_JOB"}}
    content = {"program": "dcuda-bench apps", "machine": chosen.machine, "parameters": parameters, "rows": rows}
    unfinished = Path(f"{chosen.json}.tmp")
    unfinished.write_text(json.dumps(content, indent=2) + "\n")
    unfinished.replace(chosen.json)


# --- The command line ------------------------------------------------------------------------------------------------


def names(text):
    return [name.strip() for name in text.split(",") if name.strip()]


def counts(text):
    result = [int(word) for word in names(text)]
    if not result or min(result) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no list of numbers of devices, such as 1,2,4")
    return sorted(set(result))


def at_least_one(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def positive(text):
    if not float(text) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return float(text)


def application_options(text):
    name, sign, options = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text} is not APPLICATION=OPTIONS, such as 'stencil=--nz 13'")
    return name, shlex.split(options)


def parse_command_line():
    parser = argparse.ArgumentParser(prog="dcuda-bench apps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=counts, metavar="N,...",
                        help="numbers of devices (default: 1, 2, 4, ... up to the GPUs; CPU backend: 1,2)")
    parser.add_argument("--apps", type=names, default=APPLICATIONS, metavar="NAME,...",
                        help=f"default: {','.join(APPLICATIONS)}")
    parser.add_argument("--models", type=names, metavar="MODEL,...",
                        help="default: all that the program knows; options of the program may follow the name: "
                             "'dcuda,nvshmem,nvshmem --stores'")
    parser.add_argument("--options", type=application_options, action="append", default=[], metavar="APP=OPTIONS",
                        help="options of an application, such as 'stencil=--nx 64 --fused'; may be repeated "
                             "(default: none, which means the published sizes)")
    parser.add_argument("--repeat", type=at_least_one, default=20, metavar="N", help="runs of each job (default: 20)")
    parser.add_argument("--verify", action="store_true",
                        help="each job compares its results with the serial reference; takes longer than all runs")
    parser.add_argument("--time-limit", type=positive, default=300, metavar="SECONDS", help="of a job (default: 300)")
    parser.add_argument("--json", metavar="FILE", help="write the record to this file, after every job")
    parser.add_argument("--plot", metavar="DIRECTORY", help="draw a picture of each application (needs matplotlib)")
    parser.add_argument("--programs", type=Path, metavar="DIRECTORY",
                        help="where the applications are (default: beside dcuda-bench, or where it was installed)")
    parser.add_argument("--commit", help="commit of the sources, for the record; or DCUDA_COMMIT")
    parser.add_argument("--machine", type=json.loads, default={}, help=argparse.SUPPRESS)  # dcuda-bench says it
    chosen = parser.parse_args()

    started_by = [name for name in LAUNCHERS if name in os.environ]
    if started_by:
        parser.error(f"it starts the applications itself: run it without a launcher ({started_by[0]} is set)")
    if chosen.plot:
        Path(chosen.plot).mkdir(parents=True, exist_ok=True)
        chosen.json = chosen.json or str(Path(chosen.plot) / "dcuda-bench-apps.json")
    if chosen.json and not os.access(Path(chosen.json).resolve().parent, os.W_OK):
        parser.error(f"cannot write {chosen.json}")
    if chosen.commit:
        chosen.machine["commit"] = chosen.commit
    chosen.gpus = len(chosen.machine["gpus"]) if "gpus" in chosen.machine else None
    if chosen.devices is None:
        chosen.devices = [n for n in (1, 2, 4, 8, 16) if n <= (2 if chosen.gpus is None else max(1, chosen.gpus))]
    by_name = {}
    for name, words in chosen.options:
        by_name.setdefault(name, []).extend(words)
    unknown = sorted(set(by_name) - set(chosen.apps))
    if unknown:
        parser.error(f"--options {unknown[0]}=...: that is none of --apps {','.join(chosen.apps)}")
    chosen.options = by_name
    return chosen


def main():
    chosen = parse_command_line()
    here = Path(__file__).resolve().parent
    folders = [chosen.programs] if chosen.programs else [here, here.parent / "libexec" / "dcuda"]
    for number in STOPPING:
        signal.signal(number, stop)
    if chosen.plot:
        subprocess.run([sys.executable, here / "dcuda-bench-plot", "--check"], check=True)

    rows = []
    for name in chosen.apps:
        first = len(rows)
        print(f"\n{name:<22} {HEAD}", flush=True)
        for row in rows_of(name, folders, chosen, here / "dcuda-run"):
            rows.append(row)
            print(in_words(row, rows[first:]), flush=True)
            if chosen.json:
                write_record(chosen, rows)
        for line in comparisons(rows[first:]):
            print(line)

    measured, failed = ([row for row in rows if key in row] for key in ("value", "failed"))
    print(f"\n{len(measured)} measured, {len(failed)} failed, {len(rows) - len(measured) - len(failed)} left out")
    for row in failed:
        print(f"FAILED: {row['application']}, model {row['model']}, {counted(row['devices'])}: {row['failed']}")
    if chosen.plot and measured:
        sys.stdout.flush()
        subprocess.run([sys.executable, here / "dcuda-bench-plot", "--output", chosen.plot, chosen.json], check=True)
    return 0 if measured and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
