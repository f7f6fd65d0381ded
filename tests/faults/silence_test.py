#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A process that is stopped is told of, and the run goes on when it does.
Usage: silence_test.py PATH_OF_dcuda-run PATH_OF_traffic TRANSPORTS FOLDER_OF_HOSTS_HELPERS [MPIRUN...]

The bound is short here (DCUDA_SILENT_AFTER). No test depends on how long anything takes: a line is waited for, the process
goes on, and the job must end by itself, in order.
"""
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "network"))
sys.path.append(sys.argv[4])
from job import LIMIT, Job  # noqa: E402
from namespaces import Hosts, why_not  # noqa: E402

dcuda_run, traffic, transports, _, *mpirun = sys.argv[1:]
transports = transports.split(",")
half_message = os.path.join(os.path.dirname(traffic), "half_message")
AFTER = {"DCUDA_SILENT_AFTER": "2"}
ROUNDS, NETWORK_ROUNDS = "20000", "4000"  # a second and more
WAITS = r"Ranks? [-\d, ]+ waits? for (its ranks|messages that may come from it)\."


class SilenceTest(unittest.TestCase):
    def start(self, command, ready, **variables):
        job = Job(command, **AFTER, **variables)
        self.addCleanup(job.end)
        self.wait_for(job, ready)
        return job

    def wait_for(self, job, condition):
        end = time.monotonic() + LIMIT
        while not condition(job.output):
            if job.process.poll() is not None:
                job.reader.join(LIMIT)  # its last lines
                self.assertTrue(condition(job.output), job.output)
            self.assertLess(time.monotonic(), end, job.output)
            time.sleep(0.01)

    def check_told(self, job, victim, waiting, host=None, resume=lambda: None, stop=lambda pid: os.kill(pid, signal.SIGSTOP)):
        """Stops a process, waits for the line about it, lets it go on, and the job must end well."""
        pid = job.pids()[victim]
        stop(pid)
        line = re.compile(rf"^dcuda: process {victim} \(pid {pid} on host {host or os.uname().nodename}\) has not answered for "
                          rf"[\d.]+ s; is it stopped\? {waiting}.*The run goes on when it does\.$", re.M)
        self.wait_for(job, line.search)
        os.kill(pid, signal.SIGCONT)
        resume()
        self.wait_for(job, re.compile(rf"^dcuda: process {victim} \(pid {pid} on host \S+\) answers again, after", re.M).search)
        self.assertEqual(job.wait(LIMIT), 0, job.output)

    def check_path(self, launcher, rounds, **variables):
        for victim in (1, 0):
            with self.subTest(victim=victim, **variables):
                job = self.start([*launcher, "-n", "3", traffic, "1000", rounds],
                                 lambda output: output.count("under way") == 6, **variables)
                self.check_told(job, victim, WAITS)

    def test_peer_access(self):
        self.check_path([dcuda_run], ROUNDS)

    @unittest.skipUnless(os.path.exists(half_message), "the CPU backend alone stops in the midst of a message")
    def test_in_a_message(self):
        """The other rank, which has seen the begin of the message, says that it waits for the rest."""
        for victim in (1, 0):
            with self.subTest(victim=victim):
                job = self.start([dcuda_run, "-n", "2", half_message, str(victim)],
                                 lambda output: len(re.findall("has pid", output)) == 2)
                self.check_told(job, victim, WAITS, stop=lambda pid: None)  # it stops itself
                self.assertIn("all is there", job.output)

    def test_networks(self):
        for transport in transports:
            if transport != "mpi":
                self.check_path([dcuda_run], NETWORK_ROUNDS, DCUDA_DISABLE_PEER="1", DCUDA_TRANSPORT=transport)

    @unittest.skipUnless(mpirun and "mpi" in transports, "no Open MPI")
    def test_mpi(self):
        self.check_path([*mpirun, "-x", "DCUDA_DISABLE_PEER", "-x", "DCUDA_TRANSPORT", "-x", "DCUDA_SILENT_AFTER"],
                        NETWORK_ROUNDS, DCUDA_DISABLE_PEER="1", DCUDA_TRANSPORT="mpi")

    @unittest.skipIf(why_not(), "hosts cannot be made here")
    @unittest.skipUnless("ofi:tcp" in transports, "no libfabric")
    def test_two_hosts(self):
        with Hosts(("sh1", "sh2"), "10.83.0") as hosts:
            for victim, host in ((3, "sh2"), (1, "sh1"), (0, "sh1")):
                with self.subTest(victim=victim):
                    job = self.start(hosts.job_command(traffic, "1000", NETWORK_ROUNDS),
                                     lambda output: output.count("under way") == 8, DCUDA_TRANSPORT="ofi:tcp")
                    self.check_told(job, victim, WAITS, host)

    def test_before_a_run(self):
        """The others wait for it in a collective call of their hosts, where it may come late. The system says that it is stopped."""
        go = os.path.join(tempfile.mkdtemp(), "go")
        self.addCleanup(shutil.rmtree, os.path.dirname(go))
        job = self.start([dcuda_run, "-n", "3", traffic, "1000", "10", go],
                         lambda output: len(re.findall("has pid", output)) == 3)
        self.check_told(job, 1, r"Processes 0, 2 wait for it in agreeing on the number of ranks\.",
                        resume=lambda: open(go, "w").close())

    def test_late_process_is_not_told_of(self):
        """It computes on its host, and nobody can say for how long."""
        go = os.path.join(tempfile.mkdtemp(), "go")
        self.addCleanup(shutil.rmtree, os.path.dirname(go))
        job = self.start([dcuda_run, "-n", "3", traffic, "1000", "10", go],
                         lambda output: len(re.findall("has pid", output)) == 3)
        time.sleep(float(AFTER["DCUDA_SILENT_AFTER"]))
        open(go, "w").close()
        self.assertEqual(job.wait(LIMIT), 0, job.output)
        self.assertNotIn("answer", job.output)

    def test_nobody_wants_to_know(self):
        job = Job([dcuda_run, "-n", "3", traffic, "1000", ROUNDS], DCUDA_SILENT_AFTER="0")
        self.addCleanup(job.end)
        self.wait_for(job, lambda output: output.count("under way") == 6)
        os.kill(job.pids()[1], signal.SIGSTOP)
        time.sleep(2)
        os.kill(job.pids()[1], signal.SIGCONT)
        self.assertEqual(job.wait(LIMIT), 0, job.output)
        self.assertNotIn("answer", job.output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
