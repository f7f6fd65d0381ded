#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Timelines and statistics of a program whose operations are known, and of programs that fail; and what dcuda-trace says.

    trace_test.py PATH_OF_dcuda-run PATH_OF_dcuda-trace PATH_OF_pattern PATH_OF_misuse [TEST...]
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter, defaultdict
from random import Random
from unittest import mock

launcher, tool, pattern, misuse = (os.path.abspath(path) for path in sys.argv[1:5])

BOUND = 30 * (4 if os.environ.get("TSAN_OPTIONS") else 1)  # seconds
RANKS = 3  # of a device
STEPS = 3  # of trace_pattern.cu
PUT_BYTES, LARGE_BYTES, SMALL_BYTES = 64, 8192, 16
RUNS = 2


class Timeline:
    """What a file of DCUDA_TRACE holds."""

    def __init__(self, path):
        with open(path) as file:
            content = json.load(file)
        self.about = content["dcuda"]
        self.ranks = {}  # (pid, tid): world rank
        self.slices = defaultdict(list)  # by world rank; of the host by process, as -1 - process
        flows = defaultdict(dict)
        for event in content["traceEvents"]:
            key = event["pid"], event["tid"]
            if event["ph"] == "M" and event["name"] == "thread_name" and event["args"]["name"].startswith("rank "):
                self.ranks[key] = int(event["args"]["name"][5:])
            elif event["ph"] == "X":
                self.slices[self.ranks.get(key, -1 - event["pid"])].append(event)
            elif event["ph"] in "sf":
                flows[event["id"]][event["ph"]] = event
        self.arrows = [(self.slice_of(flow["s"]), self.slice_of(flow["f"])) for flow in flows.values()]

    def slice_of(self, flow):
        """The innermost slice in which an arrow begins or ends, as viewers find it, with its rank."""
        rank = self.ranks[flow["pid"], flow["tid"]]
        around = [one for one in self.slices[rank] if one["ts"] <= flow["ts"] <= one["ts"] + one["dur"] + 1e-6]
        return rank, min(around, key=lambda one: one["dur"])

    def of(self, rank, name, run=None):
        """Slices with this name; those of one run, if all runs have the same number of them."""
        found = [one for one in self.slices[rank] if one["name"] == name]
        if run is not None:
            part = len(found) // RUNS
            found = found[run * part:(run + 1) * part]
        return found

    def unfinished(self):
        return sorted((rank, one["name"]) for rank, ones in self.slices.items() if rank >= 0 for one in ones
                      if one["args"].get("unfinished") and one["name"] != "kernel")


class TraceTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace = os.path.join(self.folder, "trace.json")
        self.stats = os.path.join(self.folder, "stats.json")

    def run_job(self, processes, *command, status=0, options=(), **variables):
        """Returns standard output and standard error."""
        environment = {**os.environ, "DCUDA_RANKS_PER_DEVICE": str(RANKS), **variables}
        job = subprocess.run([launcher, "-n", str(processes), *options, *command], env=environment, timeout=BOUND,
                             capture_output=True, text=True)
        self.assertEqual(job.returncode, status, job.stdout + job.stderr)
        return job.stdout, job.stderr

    def run_pattern(self, processes, **variables):
        output, _ = self.run_job(processes, pattern, "pattern",
                                 options=("--trace", self.trace, f"--stats={self.stats}"), **variables)
        waits = RUNS * (3 * STEPS * RANKS)
        sent = RUNS * RANKS * STEPS * (PUT_BYTES + LARGE_BYTES + SMALL_BYTES)
        lines = sorted(output.splitlines())
        self.assertEqual(len(lines), processes)
        # Rank 0 has one wait more.
        self.assertIn(f"{RUNS} runs, {RANKS} ranks, {waits + RUNS} waits, {sent} B", lines)
        return Timeline(self.trace)

    def check_pattern(self, processes, other_path, **variables):
        timeline = self.run_pattern(processes, **variables)
        count = processes * RANKS

        def path(source, target):
            return "local" if source // RANKS == target // RANKS else other_path

        # The operations of each rank, with what belongs to them.
        for rank in range(count):
            right, left = (rank + 1) % count, (rank - 1) % count
            names = Counter(one["name"] for one in timeline.slices[rank])
            expected = {"kernel": 1, "init": 1, "finish": 1, "create_window": 1, "free_window": 1, "start_timer": 1, "stop_timer": 1,
                        "whole": 1,
                        "put": STEPS, "flush": STEPS, "put_notify": 2 * STEPS, "notify": STEPS + 2,
                        "test_notifications": 1,
                        "wait_notifications": 3 * STEPS + (rank == 0), "barrier": STEPS + 1,
                        **{f"step {step}": 1 for step in range(STEPS)}}
            self.assertEqual(names, {name: RUNS * number for name, number in expected.items()})
            for run in range(RUNS):
                puts = timeline.of(rank, "put_notify", run)
                for one in puts[0::2]:
                    self.assertEqual(one["args"], {"target": right, "path": path(rank, right), "tag": 1, "through_mailbox": False,
                                                   "bytes": LARGE_BYTES, "window": 0})
                for one in puts[1::2]:
                    self.assertEqual(one["args"], {"target": left, "path": path(rank, left), "tag": 2,
                                                   "through_mailbox": path(rank, left) != "network", "bytes": SMALL_BYTES,
                                                   "window": 0})
                for one in timeline.of(rank, "put", run):
                    self.assertEqual(one["args"], {"target": right, "path": path(rank, right), "bytes": PUT_BYTES,
                                                   "window": 0})
                tags = [one["args"]["tag"] for one in timeline.of(rank, "wait_notifications", run)]
                self.assertEqual(tags, STEPS * [1, 2, 3] + (rank == 0) * [4])
                self.assertEqual([one["args"]["of"] for one in timeline.of(rank, "barrier", run)],
                                 STEPS * ["world"] + ["device"])
                # All that happens in a kernel, and in a range, happens between its begin and its end.
                for outer, inner in (("kernel", "whole"), ("whole", "step 1"), ("kernel", "init"), ("kernel", "finish")):
                    outer, inner = timeline.of(rank, outer, run)[0], timeline.of(rank, inner, run)[0]
                    self.assertLessEqual(outer["ts"], inner["ts"])
                    self.assertLessEqual(inner["ts"] + inner["dur"], outer["ts"] + outer["dur"] + 1e-3)

        # An arrow for each notification, from the right rank's right operation to the wait that consumed it.
        self.assertEqual(len(timeline.arrows), RUNS * count * (3 * STEPS + 2))
        places = {}  # the how manieth of its tag: of waits, and of notifications from one rank to one other
        for rank in range(count):
            numbers = Counter()
            for one in timeline.slices[rank]:
                if one["name"] in ("wait_notifications", "put_notify", "notify"):
                    key = one["name"] == "wait_notifications", one["args"]["tag"], one["args"].get("target")
                    places[rank, one["ts"]] = numbers[key]
                    numbers[key] += 1
        sources = defaultdict(list)
        for (source, issued), (target, wait) in timeline.arrows:
            tag = wait["args"]["tag"]
            self.assertEqual(issued["args"]["tag"], tag)
            self.assertEqual(issued["args"]["target"], target)
            self.assertLess(issued["ts"], wait["ts"] + wait["dur"])
            if tag in (1, 2, 3):
                self.assertEqual(source, (target + (1 if tag == 2 else -1)) % count)
            if tag in (1, 2, 3, 4):
                self.assertEqual(places[source, issued["ts"]], places[target, wait["ts"]])
            if tag == 4:
                sources[wait["ts"]].append(source)
        self.assertEqual([sorted(each) for each in sources.values()], RUNS * [list(range(count))])

        # The host's track.
        for process in range(processes):
            names = Counter(one["name"] for one in timeline.slices[-1 - process])
            self.assertEqual(names["run 1"] + names["run 2"] + names["run 3"], RUNS)
            self.assertEqual(names["open window"], RUNS * (processes > 1))
            if other_path == "network":
                self.assertEqual(names["network put"], RUNS * self.sent_across(process, count))
                self.assertEqual(names["delivery"], RUNS * self.sent_across(1 - process, count))
                self.assertGreater(names["fragment sent"], 0)
                self.assertGreater(names["fragment arrived"], 0)
        self.assertEqual(timeline.about["dropped"], 0)
        self.check_statistics(processes, path)

    @staticmethod
    def sent_across(process, count):
        """Messages of a process to the other one, of two."""
        messages = 0
        for rank in range(process * RANKS, (process + 1) * RANKS):
            right, left = (rank + 1) % count, (rank - 1) % count
            messages += 3 * STEPS * (right // RANKS != process) + STEPS * (left // RANKS != process) + (process != 0)
        return messages

    def check_statistics(self, processes, path):
        with open(self.stats) as file:
            found = json.load(file)
        count = processes * RANKS
        ranks = [rank for process in found["processes"] for rank in process["ranks"]]
        self.assertEqual([rank["rank"] for rank in ranks], list(range(count)))
        for number, rank in enumerate(ranks):
            expected = {way: {"puts": 0, "notified_puts": 0, "notifications": 0, "bytes": 0}
                        for way in ("local", "peer", "network")}
            through_mailbox = 0
            right, left = (number + 1) % count, (number - 1) % count
            for target, kind, each, size, by_mail in (
                    (right, "puts", STEPS, PUT_BYTES, False), (right, "notified_puts", STEPS, LARGE_BYTES, False),
                    (left, "notified_puts", STEPS, SMALL_BYTES, True), (right, "notifications", STEPS, 0, True),
                    (0, "notifications", 1, 0, True), (number, "notifications", 1, 0, True)):
                way = path(number, target)
                expected[way][kind] += RUNS * each
                expected[way]["bytes"] += RUNS * each * size
                through_mailbox += RUNS * each * (by_mail and way != "network")
            self.assertEqual({way: rank[way] for way in expected}, expected)
            self.assertEqual(rank["through_mailbox"], through_mailbox)
            self.assertEqual(rank["waits"], RUNS * (3 * STEPS + (number == 0)))
            self.assertEqual(rank["flushes"], RUNS * STEPS)
            self.assertEqual(rank["barriers"], RUNS * (STEPS + 1))
            self.assertEqual(rank["windows"], RUNS)
            self.assertGreaterEqual(rank["tests"], RUNS)
            self.assertGreater(rank["put_ns"], 0)
            self.assertGreater(rank["barrier_ns"], 0)
        self.assertEqual(found["total"]["waits"], sum(rank["waits"] for rank in ranks))
        self.assertEqual(found["runs"], RUNS)

    # --- programs that end well ---

    def test_one_process(self):
        self.check_pattern(1, None)

    def test_peers(self):
        self.check_pattern(2, "peer")

    def test_network(self):
        self.check_pattern(2, "network", DCUDA_DISABLE_PEER="1")

    def test_other_waits(self):
        """An arrow for each notification, to the wait that took it; those that are matched by source, from that source."""
        for processes, variables in ((1, {}), (2, {}), (2, {"DCUDA_DISABLE_PEER": "1"}), (1, {"DCUDA_MAILBOX_PACKETS": "0"})):
            with self.subTest(processes=processes, **variables):
                self.run_job(processes, pattern, "waits", DCUDA_TRACE=self.trace, DCUDA_MATCH_SOURCES="1", **variables)
                timeline = Timeline(self.trace)
                count = processes * RANKS
                waits = ("wait_any", "wait_some", "wait_notifications_for", "wait_notifications_from")
                taken = defaultdict(list)  # by target, tag and source
                for (source, issued), (target, wait) in timeline.arrows:
                    tag = wait["args"]["tag"]
                    self.assertEqual((issued["args"]["tag"], issued["args"]["target"]), (tag, target))
                    self.assertEqual(wait["args"].get("source", source), source)
                    taken[target, tag, source].append((issued["ts"], wait["ts"]))
                for rank in range(count):
                    left, right = (rank - 1) % count, (rank + 1) % count
                    for tag, source, kind in ((1, left, 0), (2, right, 0), (3, left, 1), (4, right, 1), (5, left, 2),
                                              (255, left, 3), (255, right, 3)):
                        issued = [one["ts"] for one in timeline.of(source, "notify")
                                  if (one["args"]["tag"], one["args"]["target"]) == (tag, rank)]
                        waited = [one["ts"] for one in timeline.of(rank, waits[kind])
                                  if one["args"]["tag"] == tag and one["args"]["count"] == 1
                                  and one["args"].get("source", source) == source]
                        self.assertEqual(len(issued), STEPS)
                        self.assertEqual(sorted(taken[rank, tag, source]), list(zip(issued, waited, strict=True)))

    def test_without_mailboxes(self):
        timeline = self.run_pattern(1, DCUDA_MAILBOX_PACKETS="0")
        self.assertEqual(len(timeline.arrows), RUNS * RANKS * (3 * STEPS + 2))
        self.assertFalse(any(one["args"].get("through_mailbox") for rank in range(RANKS) for one in timeline.slices[rank]))

    def test_drops_are_counted_and_the_latest_kept(self):
        _, error = self.run_job(1, pattern, "pattern", DCUDA_TRACE=self.trace, DCUDA_TRACE_EVENTS="31")  # 32 of them
        timeline = Timeline(self.trace)
        # init, windows, timers, operations, ranges (an event each for begin and end), wait of rank 0, finish
        written = 1 + 2 + 2 + STEPS * (1 + 1 + 2 + 1 + 3 + 1) + 2 + 1 + 1 + 2 * (1 + STEPS) + 1
        dropped = RUNS * (RANKS * (written - 32) + 1)
        self.assertEqual(timeline.about["dropped"], dropped)
        self.assertIn(f"lacks {dropped} events", error)
        self.assertIn("DCUDA_TRACE_EVENTS=64", error)
        for rank in range(RANKS):
            names = Counter(one["name"] for one in timeline.slices[rank])
            self.assertEqual((names["finish"], names["free_window"], names["init"]), (RUNS, RUNS, 0))
            self.assertEqual((names["step 0"], names["step 2"], names["whole"]), (0, RUNS, 0))
        self.assertEqual(timeline.unfinished(), [])

    def test_statistics_alone(self):
        _, error = self.run_job(1, pattern, "pattern", options=("--stats",))
        found = json.loads(error)
        self.assertEqual(found["total"]["waits"], RUNS * (3 * STEPS * RANKS + 1))
        self.assertEqual(os.listdir(self.folder), [])

    def test_energy(self):
        """From counters of the processors that stand still."""
        zone = os.path.join(self.folder, "intel-rapl:0")
        os.mkdir(zone)
        for name, content in (("name", "package-0"), ("max_energy_range_uj", "1000"), ("energy_uj", "7")):
            with open(os.path.join(zone, name), "w") as file:
                file.write(content)
        for folder, cpu, problem in ((self.folder, 0.0, None), ("/nonsuch", None, "/nonsuch has no processor packages")):
            self.run_job(2, pattern, "pattern", DCUDA_STATS=self.stats, DCUDA_POWERCAP=folder)
            with open(self.stats) as file:
                found = json.load(file)
            for process in found["processes"]:
                seen = process["joules"]
                self.assertEqual((seen["cpu"], seen.get("cpu_problem", "").partition(" (")[0] or None), (cpu, problem))
                self.assertEqual(seen["device"] is None, "device_problem" in seen)
                if found["backend"] == "cpu":
                    self.assertIn("the device is this process", seen["device_problem"])

    def test_nothing_is_counted_unless_asked_for(self):
        _, error = self.run_job(1, pattern, "pattern", status=3)
        self.assertIn("set DCUDA_STATS=1 or options::count", error)

    # --- what cannot work is said at once ---

    def test_unwritable_file(self):
        for processes in (1, 2):
            for variable in ("DCUDA_TRACE", "DCUDA_STATS"):
                _, error = self.run_job(processes, pattern, "deadlock", status=3, **{variable: "/nowhere/file"})
                self.assertIn(f"/nowhere/file ({variable}) cannot be written: No such file or directory", error)
        pipe = os.path.join(os.path.dirname(self.trace), "pipe")
        os.mkfifo(pipe)
        for variable in ("DCUDA_TRACE", "DCUDA_STATS"):  # it does not wait for a reader
            _, error = self.run_job(2, pattern, "deadlock", status=3, **{variable: pipe})
            self.assertIn(f"{pipe} ({variable}) cannot be written: nobody reads that pipe; name a file", error)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        _, error = self.run_job(1, pattern, "deadlock", status=3, DCUDA_TRACE=pipe)
        self.assertIn("it is a pipe or a terminal; name a file", error)

    def test_processes_that_disagree(self):
        _, error = self.run_job(2, "sh", "-c", '[ $DCUDA_PROCESS_INDEX = 0 ] || unset DCUDA_TRACE; exec "$0" pattern',
                                pattern, status=3, DCUDA_TRACE=self.trace)
        self.assertIn("disagree on what is profiled", error)

    # --- programs that fail ---

    def test_deadlock(self):
        for processes in (1, 2):
            self.run_job(processes, pattern, "deadlock", status=3, DCUDA_TRACE=self.trace, DCUDA_STATS=self.stats,
                         DCUDA_WATCHDOG_INTERVAL="0.05")
            timeline = Timeline(self.trace)
            count = processes * RANKS
            waits = [(0, "doomed"), (0, "wait_notifications")] + [(rank, "finish") for rank in range(1, count)]
            self.assertEqual(timeline.unfinished(), waits)
            wait = timeline.of(0, "wait_notifications")[-1]
            self.assertEqual(wait["args"], {"tag": 9, "count": 2, "unfinished": True})
            self.assertEqual(len(timeline.arrows), count)
            self.assertEqual(len(timeline.about["runs"]), processes)
            for run in timeline.about["runs"]:
                self.assertIn("deadlock", run["failure"])
            with open(self.stats) as file:
                self.assertEqual(json.load(file)["total"]["waits"], count)
            summary = subprocess.run([sys.executable, tool, "summary", self.trace], capture_output=True, text=True)
            self.assertIn("it failed: deadlock: all", summary.stdout)
            self.assertIn("unfinished: rank 0 in wait_notifications (tag 9, count 2)", summary.stdout)

    def test_lost_process(self):
        _, error = self.run_job(2, misuse, "killed", status=128 + 9, DCUDA_TRACE=self.trace)
        self.assertIn("nothing that process 1 has profiled of run 1 has come to process 0", error)
        timeline = Timeline(self.trace)
        self.assertEqual(set(timeline.ranks.values()), {0, 1})
        self.assertIn("ended unexpectedly", timeline.about["runs"][0]["failure"])

    def test_lost_first_process(self):
        # As soon as its kernel runs.
        script = """[ $DCUDA_PROCESS_INDEX = 1 ] && exec "$0" deadlock
            (until grep -q "under way" "$1" || ! kill -0 $$; do sleep 0.05; done; kill -9 $$) 2>/dev/null &
            exec "$0" deadlock >"$1" """
        _, error = self.run_job(2, "sh", "-c", script, pattern, os.path.join(self.folder, "output"), status=128 + 9,
                                DCUDA_TRACE=self.trace, DCUDA_WATCHDOG_INTERVAL="0")
        self.assertIn(f"process 1 has written its part of the timeline to {self.trace}.process1", error)
        timeline = Timeline(self.trace + ".process1")
        self.assertEqual(set(timeline.ranks.values()), set(range(RANKS, 2 * RANKS)))

    def test_kernel_that_does_not_end(self):
        _, error = self.run_job(1, misuse, "deaf", status=1, DCUDA_TRACE=self.trace, DCUDA_STATS=self.stats,
                                DCUDA_ABORT_GRACE="0.1")
        self.assertIn("ending the process", error)
        self.assertIn("notify to rank -1", Timeline(self.trace).about["runs"][0]["failure"])
        with open(self.stats) as file:
            self.assertEqual(json.load(file)["runs"], 1)


class ToolTest(unittest.TestCase):
    """Two ranks, the second of which waits for the first: in microseconds

    rank 0: init 0-10, computes to 60, puts to 70, computes to 80, finish 80-100
    rank 1: init 5-10, computes to 20, waits to 75 for that put, computes to 95, finish 95-100
    """

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace = os.path.join(self.folder, "trace.json")

        categories = {"kernel": "kernel", "put_notify": "putting", "wait_notifications": "waiting"}

        def slice(tid, name, begin, end, category=None, **arguments):
            return {"name": name, "cat": category or categories.get(name, "collective"), "ph": "X", "pid": 0, "tid": tid, "ts": begin, "dur": end - begin,
                    "args": arguments}

        def flow(phase, tid, time):
            return {"name": "notification", "cat": "flow", "ph": phase, "id": 0, "pid": 0, "tid": tid, "ts": time}

        events = [{"name": "thread_name", "ph": "M", "pid": 0, "tid": rank + 1, "args": {"name": f"rank {rank}"}}
                  for rank in range(2)]
        events += [
            slice(0, "run 1", 0, 100, "host"),
            slice(1, "kernel", 0, 100), slice(1, "init", 0, 10), slice(1, "half 1", 12, 40, "range"),
            slice(1, "half 2", 40, 50, "range"),
            slice(1, "put_notify", 60, 70, target=1, path="local", tag=3, through_mailbox=True, bytes=100, window=0),
            slice(1, "finish", 80, 100),
            slice(2, "kernel", 5, 100), slice(2, "init", 5, 10), slice(2, "wait_notifications", 20, 75, tag=3, count=1),
            slice(2, "finish", 95, 100), flow("s", 1, 65), flow("f", 2, 74.999),
        ]
        about = {"runs": [{"run": 1, "process": 0, "first_rank": 0, "ranks": 2, "dropped": 0, "failure": "",
                           "missing": ""}]}
        with open(self.trace, "w") as file:
            json.dump({"traceEvents": events, "dcuda": about}, file)

    def run_tool(self, *arguments, status=0):
        result = subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True, timeout=BOUND)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def test_summary(self):
        found = json.loads(self.run_tool("summary", "--json", self.trace))
        times = {"total": 100, "computing": 60, "waiting": 0, "collective": 30, "putting": 10}
        self.assertEqual(found["ranks"][0], {"rank": 0, "process": 0, **times})
        times = {"total": 95, "computing": 30, "waiting": 55, "collective": 10, "putting": 0}
        self.assertEqual(found["ranks"][1], {"rank": 1, "process": 0, **times})
        self.assertAlmostEqual(found["computing_ranks"], 0.9)
        # Rank 0 computes from 20 to 60 and from 70 to 75.
        self.assertAlmostEqual(found["overlap"], 45 / 55)
        self.assertEqual(found["messages"], {"local": {"messages": 1, "bytes": 100, "through_mailbox": 1}})
        self.assertEqual(found["ranges"], {"half": {"count": 2, "total_us": 38}})
        self.assertEqual(found["latest_senders"],
                         [{"rank": 0, "waits": 1, "waited_us": 55, "late_us": 40, "most_by": 1}])
        path = found["critical_path"]
        self.assertEqual([(step["activity"], step["rank"], step["begin_us"], step["end_us"]) for step in path["path"]],
                         [("own", 1, 5, 5), ("collective", 0, 5, 10), ("own", 0, 10, 60), ("message", 1, 60, 75),
                          ("own", 1, 75, 95), ("collective", 0, 95, 100), ("own", 0, 100, 100)])
        self.assertEqual((path["length_us"], path["computing_us"], path["messages_us"], path["collectives_us"]),
                         (95, 70, 15, 10))
        self.assertEqual(path["by_rank_us"], {"0": 50, "1": 20})

    def test_words(self):
        words = self.run_tool("summary", self.trace)
        for part in ("run 1: 2 ranks, 100 us", "overlap: 81.8 %", "1 local (100 B, 1 as messages)",
                     "critical path: 95 us in 3 steps: computing 73.7 %, messages 15.8 %, collectives 10.5 %"):
            self.assertIn(part, words)

    def test_errors(self):
        self.assertIn("no run 7", self.run_tool("summary", "--run", "7", self.trace, status=1))
        self.assertIn("cannot be read: No such file", self.run_tool("summary", self.trace + "x", status=1))
        with open(self.trace, "w") as file:
            file.write('{"traceEvents": [')
        self.assertIn("is no timeline", self.run_tool("summary", self.trace, status=1))

    def test_files_that_hold_anything(self):
        """Each value of a timeline replaced by each of another kind, or left out, and bytes that are wrong: a summary, or a
        word of what is wrong, and nothing that steers a terminal."""
        tool_itself = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("tool", importlib.machinery.SourceFileLoader("tool", tool)))
        tool_itself.__loader__.exec_module(tool_itself)
        with open(self.trace) as file:
            good = file.read()

        def places(value, path=()):
            for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
                yield path + (key,)
                yield from places(value[key], path + (key,))

        def spoilt():
            for *path, last in places(json.loads(good)):
                for value in (None, True, -1, 2**70, 1e308, -0.5, "", "x\x1b[2J\x9b", "rank 7", "run 9", "rank -1", [], [1], {},
                              {"name": 3}, float("nan"), float("inf"), "left out"):
                    content = json.loads(good)
                    inner = content
                    for key in path:
                        inner = inner[key]
                    if value == "left out":
                        del inner[last]
                    else:
                        inner[last] = value
                    yield json.dumps(content).encode()
            random = Random(1)
            for _ in range(500):
                text = bytearray(good.encode())
                for _ in range(random.randrange(1, 5)):
                    at = random.randrange(len(text))
                    text[at:at + random.randrange(20)] = random.randbytes(random.randrange(4))
                yield bytes(text)
            yield b"[" * 100_000

        count = Counter()
        for number, content in enumerate(spoilt()):
            with open(self.trace, "wb") as file:
                file.write(content)
            for options in ([], ["--json"]) if number % 8 == 0 else ([],):
                output = io.StringIO()
                try:
                    with contextlib.redirect_stdout(output), mock.patch("sys.argv", [tool, "summary", *options, self.trace]):
                        tool_itself.main()
                    count["good"] += 1
                except SystemExit as end:
                    self.assertRegex(str(end.code), "^dcuda-trace: ")
                    output.write(str(end.code))
                    count["refused"] += 1
                except Exception as problem:
                    raise AssertionError(f"{options} of {content}") from problem
                self.assertTrue(options or all(c == "\n" or c.isprintable() for c in output.getvalue()), output.getvalue())
        self.assertGreater(min(count["good"], count["refused"]), 500, count)

    def test_plot(self):
        picture = os.path.join(self.folder, "trace.png")
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.assertIn("needs matplotlib", self.run_tool("plot", self.trace, picture, status=1))
            self.skipTest("there is no matplotlib")
        self.run_tool("plot", self.trace, picture)
        with open(picture, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")
        self.assertIn("none of these ranks", self.run_tool("plot", "--ranks", "5-6", self.trace, picture, status=1))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
