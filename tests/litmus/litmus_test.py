#!/usr/bin/env python3
"""Runs the litmus program both ways. Usage: litmus_test.py PATH_OF_litmus [thread|address]

Without a sanitizer, or on a GPU: every case sees the right values. Built with ThreadSanitizer and DCUDA_LITMUS: every
case is silent, and a data race once the order that it rests on is weakened. Built with AddressSanitizer: writing behind
a window's allocation is reported.
"""
import os
import subprocess
import sys
import unittest

litmus = os.path.abspath(sys.argv[1])
sanitizer = sys.argv[2] if len(sys.argv) > 2 else ""

# The numbers of dcuda::detail::order_tag, and the case that rests on each. The command ring's tags need more commands
# than it has slots.
TAGS = {
    "notify_publish": (1, "notify"),
    "notify_observe": (2, "notify"),
    "barrier_arrive": (3, "barrier"),
    "barrier_release": (4, "barrier"),
    "barrier_observe": (5, "barrier"),
    "device_arrive": (6, "devices"),
    "device_observe": (7, "devices"),
    "command_publish": (8, "commands"),
    "command_observe": (9, "commands"),
    "reply_publish": (10, "reply"),
    "reply_observe": (11, "reply"),
    "slot_free": (12, "commands"),
    "slot_reuse": (13, "commands"),
}
CASES = sorted({case for _, case in TAGS.values()})
RACE = "WARNING: ThreadSanitizer: data race"


def run(case, **variables):
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    environment.setdefault("TSAN_OPTIONS", "halt_on_error=1")
    result = subprocess.run([litmus, case], env=environment, capture_output=True, text=True, timeout=120)
    return result.returncode, result.stdout + result.stderr


class LitmusTest(unittest.TestCase):
    def test_silent(self):
        for case in CASES + ["notified"]:
            with self.subTest(case):
                status, output = run(case)
                self.assertEqual(status, 0, output)
                self.assertNotIn("Sanitizer", output)

    @unittest.skipUnless(sanitizer == "thread", "needs ThreadSanitizer and DCUDA_LITMUS")
    def test_weakened(self):
        for name, (number, case) in TAGS.items():
            with self.subTest(name):
                status, output = run(case, DCUDA_WEAKEN_ORDER=number)
                self.assertIn(RACE, output)
                self.assertNotEqual(status, 0)

    @unittest.skipUnless(sanitizer == "thread", "needs ThreadSanitizer")
    def test_forgotten_notification(self):
        status, output = run("forgotten")
        self.assertIn(RACE, output)
        self.assertIn("maybe_notified", output)  # the report points into the kernel
        self.assertNotEqual(status, 0)

    @unittest.skipUnless(sanitizer == "address", "needs AddressSanitizer")
    def test_write_behind_a_window(self):
        status, output = run("within")
        self.assertEqual(status, 0, output)
        status, output = run("beyond")
        self.assertNotEqual(status, 0)
        self.assertIn("ERROR: AddressSanitizer", output)
        self.assertIn("overflow", output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
