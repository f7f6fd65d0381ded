# SPDX-License-Identifier: BSD-3-Clause
"""A job under test: its output is read while it runs, and it is ended with all its processes."""
import contextlib
import os
import re
import signal
import subprocess
import threading
import time
import unittest

LIMIT = 30  # seconds, within which a job with a lost process ends


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Job:
    def __init__(self, command, **variables):
        self.process = subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        start_new_session=True)
        self.output = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        with self.process.stdout as lines:
            for line in lines:
                self.output += line

    def pids(self):
        """Of the processes, by their indices in the job."""
        return {int(index): int(pid) for index, pid in re.findall(r"process (\d+) has pid (\d+)", self.output)}

    def wait(self, seconds):
        self.process.wait(seconds)
        self.reader.join(seconds)
        return self.process.returncode

    def end(self):
        for pid in [*self.pids().values(), self.process.pid]:
            if is_alive(pid):
                with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()


class JobTest(unittest.TestCase):
    def start_traffic(self, command, ranks, **variables):
        """A job of the program `traffic`, of which all ranks are under way."""
        job = Job(command, **variables)
        self.addCleanup(job.end)
        end = time.monotonic() + LIMIT
        while job.output.count("under way") < ranks:
            self.assertTrue(time.monotonic() < end and job.process.poll() is None, job.output)
            time.sleep(0.02)
        return job

    def check_end(self, job, *said):
        """The job ends in time, says so, and leaves no process."""
        try:
            code = job.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.fail("does not end: " + job.output)
        self.assertNotEqual(code, 0, job.output)
        for text in said:
            self.assertRegex(job.output, text)
        end = time.monotonic() + 5  # of those that outlive their launcher for a moment, as under mpirun
        while any(map(is_alive, job.pids().values())) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual([pid for pid in job.pids().values() if is_alive(pid)], [], job.output)
