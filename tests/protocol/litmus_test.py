#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
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

# The numbers of dcuda::detail::order_tag, and the cases that rest on each. The command ring's tags need more commands
# than it has slots.
TAGS = {
    "notify_publish": (1, ["notify", "triggers", "sends"]),
    "notify_observe": (2, ["notify", "triggers", "sends"]),
    "collective_arrive": (3, ["meeting", "roles"]),
    "collective_release": (4, ["meeting"]),
    "collective_observe": (5, ["meeting"]),
    "barrier_arrive": (6, ["barrier", "rows", "columns"]),
    "barrier_observe": (7, ["barrier", "rows", "columns"]),
    "device_arrive": (8, ["devices"]),
    "device_observe": (9, ["devices"]),
    "command_publish": (10, ["commands", "proxied"]),
    "command_observe": (11, ["commands", "proxied"]),
    "reply_publish": (12, ["reply", "proxied"]),
    "reply_observe": (13, ["reply", "proxied"]),
    "slot_free": (14, ["commands", "proxied"]),
    "slot_reuse": (15, ["commands", "proxied"]),
    "message_publish": (16, ["message", "released"]),
    "message_observe": (17, ["message", "released"]),
    "queue_free": (18, ["ring", "crossing", "sends"]),
    "queue_reuse": (19, ["ring", "crossing", "sends"]),
    "write_publish": (20, ["writes"]),
    "write_observe": (21, ["writes"]),
    "exchange_publish": (22, ["members", "bounces"]),
    "exchange_observe": (23, ["members", "bounces"]),
    "window_free": (24, ["table"]),
    "window_reuse": (25, ["table"]),
    "atomic_publish": (26, ["flags"]),
    "atomic_observe": (27, ["flags"]),
}
CASES = sorted({case for _, cases in TAGS.values() for case in cases})
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
        for name, number, case in [(name, number, case) for name, (number, cases) in TAGS.items() for case in cases]:
            with self.subTest(name, case=case):
                status, output = run(case, DCUDA_WEAKEN_ORDER=number)
                self.assertIn(RACE, output)
                self.assertNotEqual(status, 0)

    @unittest.skipUnless(sanitizer == "thread", "needs ThreadSanitizer")
    def test_forgotten_notification(self):
        status, output = run("forgotten")
        self.assertIn(RACE, output)
        self.assertIn("maybe_notified", output)  # the report points into the kernel
        self.assertNotEqual(status, 0)

    @unittest.skipUnless(sanitizer == "thread", "needs ThreadSanitizer")
    def test_read_before_the_wait(self):
        """As users run it: small puts are stored at once, or there would be nothing to see."""
        status, output = run("early", DCUDA_SMALL_PUT_BYTES="")
        self.assertIn(RACE, output)
        self.assertIn("read_before_wait", output)
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
