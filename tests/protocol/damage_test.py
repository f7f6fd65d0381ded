#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The checks of random_traffic are live: what one rank does wrong is found. Usage: damage_test.py COMMAND..."""
import subprocess
import sys
import unittest

command = sys.argv[1:]
TIMEOUT = 120


class DamageTest(unittest.TestCase):
    def run_with(self, *arguments):
        return subprocess.run([*command, "--seed", "3", "--seconds", "0", "--dcuda-ranks=3", *arguments], capture_output=True,
                              text=True, timeout=TIMEOUT)

    def test_nothing_wrong(self):
        result = self.run_with()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(": correct", result.stdout)

    def test_wrong_bytes_and_counts(self):
        for damage in ("put", "source", "order", "extra", "stream", "sum", "get"):
            with self.subTest(damage=damage):
                result = self.run_with("--damage", damage)
                self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                self.assertRegex(result.stdout, r": WRONG\n.*failures; first: line \d+, rank \d+, round \d+,")

    def test_missing_notification(self):
        result = self.run_with("--damage", "notification")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"deadlock: all \d+ ranks wait and nothing moves")
        self.assertIn("in wait_notifications(tag 1, count 1): 0 arrived", result.stderr)

    def test_arguments(self):
        for wrong in (["--damage", "much"], ["--threads", "0"], ["--seed"], ["--operations", "1x"], ["12", "3"]):
            result = self.run_with(*wrong)
            self.assertEqual(result.returncode, 2, wrong)
            self.assertIn("expected --seed N", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
