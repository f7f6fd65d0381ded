#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Launchers that are killed leave no process behind. Usage: launchers_test.py PATH_OF_traffic TRANSPORTS [MPIRUN...]

Open MPI's mpirun is the real one, if there is one; torchrun, srun and PMI launchers are played by stand_in.py.
"""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "network"))
from job import LIMIT, is_alive  # noqa: E402

traffic, transports, *mpirun = sys.argv[1:]
transports = transports.split(",")
STAND_IN = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in.py")]


class LaunchersTest(unittest.TestCase):
    def setUp(self):
        # A file, since the end of a launcher closes what it reads from its processes.
        self.file = tempfile.NamedTemporaryFile("a")
        self.addCleanup(self.file.close)

    def output(self):
        with open(self.file.name) as file:
            return file.read()

    def pids(self, name="process"):
        return [int(pid) for pid in re.findall(rf"{name} \w*\s?has pid (\d+)", self.output())]

    def end_all(self):
        for pid in [*self.pids(), *self.pids("daemon")]:
            if is_alive(pid):
                with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                    os.kill(pid, signal.SIGKILL)

    def wait_until(self, condition, reason):
        end = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), end, reason + ": " + self.output())
            time.sleep(0.02)

    def start(self, command, lines=4, **variables):
        """Starts a job and waits for that many ranks to be under way."""
        job = subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=self.file,
                               stderr=subprocess.STDOUT)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.addCleanup(self.end_all)
        self.wait_until(lambda: self.output().count("under way") >= lines, "the job does not start")
        return job

    def check_end(self, *said):
        self.wait_until(lambda: not any(map(is_alive, self.pids())), "processes outlive the launcher")
        for text in said:
            self.assertRegex(self.output(), text)

    def kill_launcher(self, job, name=r"python\S*"):
        pid = (self.pids("launcher") or [job.pid])[0]
        os.kill(pid, signal.SIGKILL)
        self.check_end(rf"traffic: the launcher of process \d, {name} \(pid {pid}\), has ended")

    def test_stand_ins(self):
        for kind in ("torchrun", "pmi"):
            with self.subTest(kind=kind):
                self.file.truncate(0)
                self.kill_launcher(self.start([*STAND_IN, kind, "2", "2", traffic, "1000"]))

    def test_over_a_network(self):
        for transport in transports:
            if transport == "mpi":
                continue
            with self.subTest(transport=transport):
                self.file.truncate(0)
                self.kill_launcher(self.start([*STAND_IN, "torchrun", "2", "2", traffic, "1000"], DCUDA_DISABLE_PEER="1",
                                              DCUDA_TRANSPORT=transport))

    def test_one_process(self):
        self.kill_launcher(self.start([*STAND_IN, "torchrun", "1", "1", traffic, "1000"], 2))

    def test_programs_in_between(self):
        command = ["sh", "-c", f"{traffic} 1000; true"]
        self.kill_launcher(self.start([*STAND_IN, "torchrun", "2", "2", "sh", "-c", '"$@"; true', "sh", *command]))

    def test_start(self):
        """The other process never comes. This one does not wait for it until DCUDA_CONNECT_TIMEOUT is over."""
        for kind in ("torchrun", "pmi"):
            script = "[ ${RANK:-$PMI_RANK} = 0 ] && { echo process 0 has pid $$; exec " + traffic + "; }; sleep 0.1"
            with self.subTest(kind=kind):
                self.file.truncate(0)
                job = self.start([*STAND_IN, kind, "2", "1", "sh", "-c", script], 0)
                self.wait_until(lambda: self.pids(), "nothing starts")
                time.sleep(0.5)
                os.kill(self.pids("launcher")[0], signal.SIGKILL)
                job.wait()
                self.check_end(r"the launcher of process 0, python\S* \(pid \d+\), has ended")

    def test_srun(self):
        """Its daemon lives on."""
        job = self.start([*STAND_IN, "srun", "2", "2", traffic, "1000"])
        os.kill(job.pid, signal.SIGKILL)
        self.check_end(r"traffic: the launcher of process 0, srun \(which listened at port \d+\), has ended")

    def test_slurmstepd(self):
        self.start([*STAND_IN, "srun", "2", "2", traffic, "1000"])
        daemon = self.pids("daemon")[0]
        os.kill(daemon, signal.SIGKILL)
        self.check_end(rf"traffic: the launcher of process \d, python\S* \(pid {daemon}\), has ended")

    def test_nobody_looks(self):
        job = self.start([*STAND_IN, "torchrun", "2", "2", traffic, "1000"], DCUDA_WATCH_LAUNCHER="0")
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        time.sleep(1.5)
        self.assertEqual([is_alive(pid) for pid in self.pids()], [True, True], self.output())

    @unittest.skipUnless(mpirun, "no Open MPI")
    def test_mpirun(self):
        for variables in ({}, *({"DCUDA_DISABLE_PEER": "1", "DCUDA_TRANSPORT": transport} for transport in transports)):
            with self.subTest(variables=variables):
                self.file.truncate(0)
                exports = [word for name in variables for word in ("-x", name)]
                job = self.start([*mpirun, *exports, "-n", "2", traffic, "1000"], **variables)
                os.kill(job.pid, signal.SIGKILL)
                self.check_end()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
