#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Timeline, statistics and checker each see every operation of every example, of both interfaces.

    trace_examples_test.py PATH_OF_dcuda-run EXAMPLE...
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter

launcher, *examples = sys.argv[1:]
BOUND = 60  # seconds
PATHS = ("local", "peer", "network")


class ExamplesTest(unittest.TestCase):
    def run_example(self, example, *options, **variables):
        job = subprocess.run([launcher, "-n", "2", "--ranks", "4", *options, example], timeout=BOUND, text=True,
                             env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(job.returncode, 0, job.stdout)
        return job.stdout

    def counted(self, example, folder):
        """What statistics and timeline of one run say of its operations; both by the statistics' names."""
        stats, trace = os.path.join(folder, "stats.json"), os.path.join(folder, "trace.json")
        self.run_example(example, f"--stats={stats}", "--trace", trace)
        with open(stats) as file:
            total = json.load(file)["total"]
        counts = {name: sum(total[path][name] for path in PATHS)
                  for name in ("puts", "notified_puts", "notifications")}
        counts |= {name: total[name] for name in ("waits", "flushes", "barriers", "windows")}
        with open(trace) as file:
            events = Counter(event["name"] for event in json.load(file)["traceEvents"] if event["ph"] == "X")
        slices = {"puts": "put", "notified_puts": "put_notify", "notifications": "notify", "waits": "wait_notifications",
                  "flushes": "flush", "barriers": "barrier", "windows": "create_window"}
        return counts, {name: events[slices[name]] for name in counts}, events["all_to_all"]

    def test_all_see_the_same(self):
        for example in examples:
            with self.subTest(example=os.path.basename(example)), tempfile.TemporaryDirectory() as folder:
                counts, events, exchanges = self.counted(example, folder)
                self.assertEqual(counts, events)
                puts = counts["puts"] + counts["notified_puts"]
                notifications = counts["notifications"] + counts["notified_puts"]
                if exchanges == 0:  # a program has either these or windows
                    self.assertGreater(puts, 0)
                    self.assertGreater(notifications, 0)
                    self.assertGreater(counts["waits"], 0)
                    self.assertGreaterEqual(counts["windows"], 8)
                output = self.run_example(example, DCUDA_CHECK="1")
                self.assertRegex(output, rf"of 8 ranks, {puts} puts, {notifications} notifications,")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
