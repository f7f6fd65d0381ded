#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stream waits that cannot end say so, and end; nothing behind them runs as if they had.
Usage: stream_port_test.py PATH_OF_dcuda-run PATH_OF_stream_port_faults
"""
import os
import subprocess
import sys
import unittest

dcuda_run, program = (os.path.abspath(path) for path in sys.argv[1:3])
TIMEOUT = 90
SHORT = {"DCUDA_WAIT_TIMEOUT": "1"}


class StreamPortTest(unittest.TestCase):
    def run_case(self, case, **variables):
        return subprocess.run([dcuda_run, "-n", "2", program, case], capture_output=True, text=True, timeout=TIMEOUT,
                              stdin=subprocess.DEVNULL, env={**os.environ, **variables})

    def check(self, case, *said, **variables):
        result = self.run_case(case, **variables)
        self.assertNotEqual(result.returncode, 0, result.stderr)
        for text in said:
            self.assertIn(text, result.stderr)
        for text in ("the port goes on", "what is behind the wait has run", "did not end within"):
            self.assertNotIn(text, result.stderr)
        return result.stderr

    def test_waits_that_last_too_long(self):
        waits = "process 1: stream wait for tag 3, 1 of 2 arrived, nothing ever from process 0 after 1 s (DCUDA_WAIT_TIMEOUT)"
        self.check("any", waits, "the stream has failed", **SHORT)
        self.check("kernel", waits, "the stream has failed", **SHORT)
        self.check("from", "process 1: stream wait for tag 3 from process 0, 0 of 1 arrived, nothing ever from process 0",
                   "the stream has failed", **SHORT)

    def test_two_waits_for_a_tag(self):
        self.check("two", "process 1: stream wait for tag 2, 0 of 1 arrived", "the stream has failed", **SHORT)

    def test_waits_of_hosts(self):
        self.check("host", "stream wait for tag", "(DCUDA_WAIT_TIMEOUT)", "caught: stream wait for tag", **SHORT)

    def test_a_process_is_lost(self):
        self.check("lost", "the stream has failed", "caught: process 0 (pid")

    def test_a_process_leaves_by_an_exception(self):
        self.check("exception", "caught: process 0 has had enough", "process 0 has left its stream port by an exception")

    def test_processes_disagree(self):
        self.check("tags", "process 0 makes a port of 4 tags, and process 1 one of 5")

    def test_a_receive_is_too_short(self):
        self.check("short", "process 1: stream_port: a send of 20 B from process 0 for a receive of 10 B",
                   "caught: stream_port: a send of 20 B from process 0 for a receive of 10 B")

    def test_nothing_is_sent(self):
        self.check("unsent", "process 1: stream receive from process 0: nothing has come after 1 s (DCUDA_WAIT_TIMEOUT)", **SHORT)

    def test_nothing_is_received(self):
        result = self.check("full", "caught: stream ", "after 1 s (DCUDA_WAIT_TIMEOUT)", **SHORT)
        self.assertRegex(result, "stream send to process 1: it has not received what was sent before|stream wait for tag 0")

    def test_a_port_ends_before_its_receive(self):
        self.check("open", "process 1: the stream port ends while a receive from process 0 is under way, and waits for it",
                   "nothing has come after 1 s (DCUDA_WAIT_TIMEOUT)", **SHORT)

    def test_a_send_is_not_received(self):
        result = self.run_case("unread")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("process 1: a send of 8 B from process 0 was not received when the stream port ended", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
