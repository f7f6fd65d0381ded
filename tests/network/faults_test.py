#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A process is lost while ranks send over a network. Usage: faults_test.py PATH_OF_dcuda-run PATH_OF_traffic [MPIRUN...]

The other processes end by themselves and say who was lost and what their ranks waited for.
"""
import contextlib
import os
import re
import signal
import sys
import time
import unittest

from job import LIMIT, JobTest, is_alive

dcuda_run, traffic, *mpirun = sys.argv[1:]
WAITS = r"in wait_notifications\(tag 1, count 1\)"


def shm_files(pids):
    return [name for name in os.listdir("/dev/shm")
            if any(re.fullmatch(rf"dcuda-\d+-{pid}-\d+-[0-9a-f]{{16}}", name) for pid in pids)]


class FaultsTest(JobTest):
    def start(self, transport, *arguments):
        launcher = mpirun if transport == "mpi" else [dcuda_run]
        job = self.start_traffic([*launcher, "-n", "4", traffic, *arguments], 8, DCUDA_DISABLE_PEER="1",
                                 DCUDA_TRANSPORT=transport)
        if transport == "ofi:shm":
            self.addCleanup(self.remove_shm_files, job.pids().values())
        return job

    def remove_shm_files(self, pids):
        for name in shm_files(pids):
            with contextlib.suppress(FileNotFoundError):  # another process over ofi:shm was quicker
                os.remove("/dev/shm/" + name)

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
                    told = len(re.findall(lost, job.output))
                    # Save processes that wait for ever for a lock that the killed one held in libfabric's memory.
                    ended = re.findall(r"(\d) other process\w* did not end", job.output) if transport == "ofi:shm" else []
                    self.assertEqual(told + sum(map(int, ended)), 3, job.output)
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

    def test_leftovers_are_removed(self):
        """Memory of a process that was killed, by the next one; not memory of one that lives, or may live elsewhere."""
        job = self.start("ofi:shm", "1000")
        pid = job.pids()[1]
        os.kill(pid, signal.SIGKILL)
        self.check_end(job)
        left = shm_files([pid])
        self.assertEqual(len(left), 1)
        with open("/proc/self/stat") as file:
            own_start = file.read().rpartition(")")[2].split()[19]
        space = os.stat("/proc/self/ns/pid").st_ino
        kept = [f"dcuda-{space}-{os.getpid()}-{own_start}-0123456789abcdef",  # it lives
                f"dcuda-{space + 1}-{pid}-1-0123456789abcdef",                # of another namespace
                f"dcuda-{space}-{pid}-1-0123456789abcdef.txt"]                # not one of ours
        for name in kept:
            open("/dev/shm/" + name, "w").close()
            self.addCleanup(os.remove, "/dev/shm/" + name)
        self.check_end(self.start("ofi:shm", "1000", "exit"))
        self.assertEqual([name for name in left if os.path.exists("/dev/shm/" + name)], [])
        self.assertEqual([name for name in kept if not os.path.exists("/dev/shm/" + name)], [])

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
