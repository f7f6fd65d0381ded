#!/usr/bin/env python3
"""A process is lost while ranks send over a network. Usage: faults_test.py PATH_OF_dcuda-run PATH_OF_traffic [MPIRUN...]

The other processes end by themselves and say who was lost and what their ranks waited for.
"""
import os
import re
import signal
import sys
import time
import unittest

from job import LIMIT, JobTest, is_alive

dcuda_run, traffic, *mpirun = sys.argv[1:]
WAITS = r"in wait_notifications\(tag 1, count 1\)"


class FaultsTest(JobTest):
    def start(self, transport, *arguments):
        launcher = mpirun if transport == "mpi" else [dcuda_run]
        return self.start_traffic([*launcher, "-n", "4", traffic, *arguments], 8, DCUDA_DISABLE_PEER="1",
                                  DCUDA_TRANSPORT=transport)

    def check_named(self, job, victim):
        """dcuda-run names the process that was killed, and ends as it did."""
        self.assertEqual(job.process.returncode, 128 + signal.SIGKILL, job.output)
        self.assertEqual(re.findall(r"dcuda-run: process .*", job.output),
                         [f"dcuda-run: process {victim} (pid {job.pids()[victim]}, host {os.uname().nodename}) was killed by "
                          "signal 9 (SIGKILL)"], job.output)

    def check_killed(self, transport, *arguments):
        for victim in (1, 0):
            with self.subTest(victim=victim):
                job = self.start(transport, *arguments)
                time.sleep(0.2)
                pid = job.pids()[victim]
                os.kill(pid, signal.SIGKILL)
                if transport == "mpi":  # whose launcher may end the others before they can say anything
                    self.check_end(job, rf"process (rank )?{victim} .*({pid}|signal 9)")
                else:
                    lost = rf"traffic: process {victim} \(pid {pid}.*\) ended unexpectedly"
                    self.check_end(job, lost, WAITS)
                    # Every other process; one whose ranks were just at work has none that waits.
                    self.assertEqual(len(re.findall(lost, job.output)), 3, job.output)
                    self.check_named(job, victim)

    def test_launcher_sees_all_ends_at_once(self):
        for victim in range(4):
            with self.subTest(victim=victim):
                job = self.start_traffic([dcuda_run, "-n", "4", traffic, "1000"], 8)
                os.kill(job.process.pid, signal.SIGSTOP)
                os.kill(job.pids()[victim], signal.SIGKILL)
                end = time.monotonic() + LIMIT
                while any(map(is_alive, job.pids().values())):
                    self.assertLess(time.monotonic(), end, "processes live on: " + job.output)
                    time.sleep(0.02)
                os.kill(job.process.pid, signal.SIGCONT)
                self.check_end(job)
                self.check_named(job, victim)

    def test_killed_over_ofi_tcp(self):
        self.check_killed("ofi:tcp", "10000")

    def test_killed_over_ofi_shm(self):
        self.check_killed("ofi:shm", "10000")

    def test_killed_over_shm(self):
        self.check_killed("shm", "10000")

    def test_killed_with_large_puts(self):
        self.check_killed("ofi:tcp", "5000000")

    @unittest.skipUnless(mpirun, "no MPI")
    def test_killed_over_mpi(self):
        self.check_killed("mpi", "10000")

    def test_ends_early(self):
        for transport in ("ofi:tcp", "shm"):
            with self.subTest(transport=transport):
                self.check_end(self.start(transport, "10000", "exit"),
                               r"process 1 \(pid \d+.*\) ended unexpectedly", WAITS)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
