# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of dcuda-run share. Their arguments: PATH_OF_dcuda-run [PATH_OF_show_job]

Each process of a job carries a mark of its test in its command line, by which a process that was left behind is found.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

launcher = os.path.abspath(sys.argv[1])
show_job = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None

TIMEOUT = 60


def alive(mark):
    """Process ids whose command line has the mark; zombies have none."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if mark.encode() in file.read() and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def in_other_session(pid):
    """Whether the process runs in another session than these tests; not if it has ended."""
    try:
        return os.getsid(pid) != os.getsid(0)
    except ProcessLookupError:
        return False


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class JobTest(unittest.TestCase):
    def setUp(self):
        self.mark = f"mark-{os.getpid()}-{type(self).__name__}-{self._testMethodName}"
        self.folder = tempfile.mkdtemp(prefix=self.mark)

    def tearDown(self):
        left = alive(self.mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder)
        self.assertEqual(left, [], "processes were left behind")

    def command(self, *arguments, script):
        # bash sees the mark as $0.
        return [launcher, *map(str, arguments), "--", "bash", "-c", script + "\n:", self.mark]

    def run_job(self, *arguments, script, **settings):
        return subprocess.run(self.command(*arguments, script=script), capture_output=True, text=True, timeout=TIMEOUT,
                              **settings)

    def start_job(self, *arguments, script, **settings):
        """Starts a job whose processes each create a file ready.N, and waits for these."""
        count = int(arguments[arguments.index("-n") + 1])
        job = subprocess.Popen(self.command(*arguments, script=script.replace("READY", self.ready())),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)
        self.assertTrue(wait_until(lambda: len(self.files("ready")) == count), "the job did not start")
        return job

    def ready(self):
        return f"touch {self.folder}/ready.$DCUDA_PROCESS_INDEX"

    def files(self, prefix):
        return [name for name in os.listdir(self.folder) if name.startswith(prefix)]
