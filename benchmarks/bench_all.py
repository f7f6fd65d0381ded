#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes all records that documents quote, one after the other, in one folder.

    benchmarks/bench_all.py BUILD FOLDER [--records FILE] [--only PATTERN] [--seconds N] [--limit N] [--list]

BUILD is a build directory with benchmarks and case studies. --records says what is measured (default: records.txt beside
this script, whose head describes it). What is in FOLDER already, of this commit, is not measured again: where a machine
is lent for a while, --seconds N begins no record after so many seconds, and the next call goes on. --only PATTERN: records
whose names fit. --limit N: seconds that one command may take (default 600). --list: says what would be measured.

FOLDER/README.md says on which machine, when, of which commit, how long each record took, and the clocks before and
after. Ends with 0 if nothing failed. What the machine or the build lacks is no failure: it is named.
"""
import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Nothing may use NVLink's multicast.
NO_MULTICAST = {"NVSHMEM_DISABLE_NVLS": "1", "NCCL_NVLS_ENABLE": "0"}


class Record:
    """A file, and the commands that make it."""

    def __init__(self, name):
        self.name, self.gpus, self.commands = name, 0, []

    def needs(self):
        """Other records that a command reads."""
        return [name for command in self.commands for name in re.findall(r"\{([^}?]+)\}", command)]


def read_records(path):
    records = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        if len(words) < 3 or not words[1].isdigit() or Path(words[0]).suffix not in (".json", ".txt"):
            sys.exit(f"{path}:{number}: expected NAME.json or NAME.txt, a number of GPUs and a command: {line}")
        record = records.setdefault(words[0], Record(words[0]))
        if record.commands and words[0].endswith(".json"):
            sys.exit(f"{path}:{number}: {words[0]} has a command already")
        record.gpus = max(record.gpus, int(words[1]))
        record.commands.append(words[2])
        for name in record.needs():
            if name not in records:
                sys.exit(f"{path}:{number}: {name} is not made before {words[0]}")
    return list(records.values())


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def count_gpus(build):
    cache = (build / "CMakeCache.txt").read_text()
    if not re.search(r"^DCUDA_BACKEND:\w+=cuda$", cache, re.MULTILINE):
        return 1 << 30  # the CPU backend has as many devices as there are processes
    return len(output_of(str(HERE.parent / "scripts" / "gpus.sh")).split())


def clocks():
    return output_of("nvidia-smi", "--query-gpu=index,clocks.sm,clocks.max.sm,power.limit", "--format=csv,noheader").replace("\n", "; ")


class Session:
    def __init__(self, chosen):
        self.chosen = chosen
        self.build, self.folder = Path(chosen.build).resolve(), Path(chosen.folder).resolve()
        self.commit = os.environ.get("DCUDA_COMMIT") or output_of("git", "-C", str(HERE), "rev-parse", "--short", "HEAD")
        self.state = self.folder / "state.json"
        self.done = json.loads(self.state.read_text()) if self.state.exists() else {}
        self.environment = {**os.environ, **NO_MULTICAST, "DCUDA_COMMIT": self.commit}

    def is_done(self, name):
        return self.done.get(name, {}).get("commit") == self.commit and (self.folder / name).exists()

    def arguments(self, command, record):
        """The variables that a command sets, and its words, with programs and records where they are."""
        words = []
        for word in shlex.split(command):
            name = word.strip("{?}")
            if word.startswith("{") and word.endswith("?}") and not self.is_done(name):
                words.pop()  # the option before it
            else:
                words.append(str(self.folder / name) if word.startswith("{") else word)
        variables = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        words = [str(self.build / "bin" / word) if self.is_program(word) else word for word in words]
        if record.name.endswith(".json"):
            words += ["--json", str(self.folder / record.name)]
        return variables, words

    def is_program(self, word):
        return re.fullmatch(r"[a-z][a-z0-9_-]*", word) is not None and (self.build / "bin" / word).is_file()

    def missing(self, record):
        """Why a record cannot be made here, or nothing."""
        if record.gpus > self.gpus:
            return f"takes {record.gpus} GPUs, and here are {self.gpus}"
        for command in record.commands:
            for word in shlex.split(command):
                if re.match(r"[A-Z_]+=|-", word):
                    continue
                # The launcher's number stands between it and the program.
                if re.fullmatch(r"\d+|dcuda-run", word):
                    continue
                if not self.is_program(word):
                    return f"{word} is not built"
                break
        for name in record.needs():
            if not self.is_done(name):
                return f"{name} is not there"
        return ""

    def run(self, record):
        """Whether all of its commands have ended well."""
        text = []
        for command in record.commands:
            variables, words = self.arguments(command, record)
            try:
                ended = subprocess.run(words, env={**self.environment, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, timeout=self.chosen.limit, check=False)
                output, problem = ended.stdout, f"exit status {ended.returncode}" if ended.returncode != 0 else ""
            except subprocess.TimeoutExpired as error:
                output = (error.stdout or b"").decode(errors="replace")
                problem = f"not done after {self.chosen.limit} s"
            text.append(f"$ {command}\n{output.rstrip()}\n")
            if problem:
                (self.folder / f"{record.name}.failed").write_text("\n".join(text))
                print(f"  FAILED   {record.name}: {problem}: {command}; see {record.name}.failed", flush=True)
                return False
        if record.name.endswith(".txt"):
            (self.folder / record.name).write_text("\n".join([f"{self.machine()}, commit {self.commit}\n", *text]))
        (self.folder / f"{record.name}.failed").unlink(missing_ok=True)
        return True

    def machine(self):
        names = output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
        return f"{len(names)} {names[0]}" if names else f"CPU backend, {os.cpu_count()} cores"

    def write_notes(self, before):
        versions = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()[:1]
        lines = [f"{self.machine()}, driver {versions[0] if versions else 'none'}, {datetime.date.today()}, commit {self.commit}: records of",
                 "`benchmarks/bench_all.py`, each of one launch after the other, alone on the machine.", "",
                 f"Clock of each GPU, its largest, power limit: {before or 'not known'} (before); {clocks() or 'not known'} (after).", "",
                 "| record | commit | seconds |", "|---|---|---|"]
        lines += [f"| `{name}` | {of['commit']} | {of['seconds']:.0f} |" for name, of in sorted(self.done.items())]
        (self.folder / "README.md").write_text("\n".join(lines) + "\n")

    def measure(self):
        records = [each for each in read_records(Path(self.chosen.records)) if re.search(self.chosen.only, each.name)]
        self.gpus = count_gpus(self.build)
        if self.chosen.list:
            for record in records:
                print(f"{record.name}: {'done' if self.is_done(record.name) else self.missing(record) or '; '.join(record.commands)}")
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        start, before, failed = time.monotonic(), clocks(), 0
        for record in records:
            if self.is_done(record.name):
                continue
            if time.monotonic() - start > self.chosen.seconds:
                print(f"  {self.chosen.seconds} s are over: call again for the rest, from {record.name} on")
                break
            if why := self.missing(record):
                print(f"  skipped  {record.name}: {why}", flush=True)
                continue
            began = time.monotonic()
            if not self.run(record):
                failed += 1
                continue
            self.done[record.name] = {"commit": self.commit, "seconds": time.monotonic() - began}
            self.state.write_text(json.dumps(self.done, indent=1))
            print(f"  made     {record.name}, {self.done[record.name]['seconds']:.0f} s", flush=True)
        self.write_notes(before)
        return failed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("--records", default=HERE / "records.txt")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args()
    if not (Path(chosen.build) / "bin" / "dcuda-bench").is_file():
        sys.exit(f"{chosen.build} has no dcuda-bench: build the benchmarks there (make bench-all does)")
    sys.exit(0 if Session(chosen).measure() else 1)


if __name__ == "__main__":
    main()
