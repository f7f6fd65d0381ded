#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Strangers at the ports of a running job. Usage: strangers_test.py PATH_OF_dcuda-run PATH_OF_steady PATH_OF_stranger

They know an address and no secret. The job goes on, nothing in its memory changes, and it ends in good order.
"""
import contextlib
import mmap
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time

from job import LIMIT, Job, JobTest, unittest

dcuda_run, steady, stranger = sys.argv[1:]
QUEUE_BYTES = 4096  # of the numbers of the writes from one process to another, in transport/shm.hpp


def listening(pid):
    """[(address, port)] where a process waits for TCP connections."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(f"/proc/{pid}/fd/{name}")))
        except FileNotFoundError:
            pass
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open(f"/proc/{pid}/net/{table}") as lines:
                rows = [line.split() for line in lines][1:]
        except FileNotFoundError:  # no IPv6 here
            continue
        for row in rows:
            if row[3] == "0A" and row[9] in inodes:
                address, port = row[1].split(":")
                raw = b"".join(bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8))
                found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return found


class StrangersTest(JobTest):
    def start(self, transport):
        """A job over libfabric, with all its ranks under way: itself, and what makes it end."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        end = os.path.join(folder.name, "end")
        job = Job([dcuda_run, "-n", "2", steady, end], DCUDA_DISABLE_PEER="1", DCUDA_TRANSPORT=transport)
        self.addCleanup(job.end)
        deadline = time.monotonic() + LIMIT
        while job.output.count("under way") < 4:
            self.assertTrue(time.monotonic() < deadline and job.process.poll() is None, job.output)
            time.sleep(0.02)
        return job, lambda: open(end, "w").close()

    def ports(self, job):
        found = [place for pid in job.pids().values() for place in listening(pid)]
        self.assertGreaterEqual(len(found), 2, job.output)
        return found

    def attack(self, job, address, port, attack, *keys):
        provider = re.search(r"over ofi \((\S+)\)", job.output)[1]
        done = subprocess.run([stranger, provider, address, str(port), attack, *map(str, keys)], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIsNone(job.process.poll(), f"{attack}: {done.stdout}{job.output}")
        return done.stdout

    def check_good_end(self, job, end):
        end()
        code = job.wait(LIMIT)
        self.assertEqual(job.output.count("ends with 0 wrong words"), 2, job.output)
        self.assertEqual(code, 0, job.output)

    def test_a_job_of_one_host_listens_on_the_loopback_interface_only(self):
        job, end = self.start("ofi:tcp")
        self.assertEqual({address for address, _ in self.ports(job)}, {"127.0.0.1"}, job.output)
        self.check_good_end(job, end)

    def test_without_a_key_nothing_is_written_or_read(self):
        job, end = self.start("ofi:tcp")
        for address, port in self.ports(job):
            # Keys as libraries give them, and as somebody may guess them.
            for attack, *keys in (("write", 0, 16), ("number", 0, 16), ("read", 0, 16),
                                  ("write", secrets.randbits(64), 2), ("number", secrets.randbits(64), 2)):
                said = self.attack(job, address, port, attack, *keys)
                self.assertRegex(said, " 0 of ", attack)
        self.check_good_end(job, end)

    def test_messages_that_nobody_waits_for(self):
        job, end = self.start("ofi:tcp")
        for address, port in self.ports(job):
            self.attack(job, address, port, "message", 0, 4)
        self.check_good_end(job, end)

    def test_a_number_that_no_fragment_has_ends_the_job_with_its_cause(self):
        # Another process of the same user may write to this memory: here as somebody who has got the key of a network's.
        job, _ = self.start("shm")
        victim = job.pids()[1]
        queues = []
        for name in os.listdir(f"/proc/{victim}/fd"):
            path = f"/proc/{victim}/fd/{name}"
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                if "memfd:dcuda-network" in os.readlink(path) and os.stat(path).st_size == QUEUE_BYTES:
                    queues.append(path)
        self.assertEqual(len(queues), 1, job.output)  # of what the other process writes
        with open(queues[0], "r+b") as file, mmap.mmap(file.fileno(), QUEUE_BYTES) as queue:
            queue[:] = (999_999_999 + 1).to_bytes(4, "little") * (QUEUE_BYTES // 4)
            self.check_end(job, "what has come over shm is of no process of this job: a fragment with number 999999999")
        self.assertNotIn("terminate called", job.output)
        self.assertEqual(job.output.count("of no process of this job"), 2, job.output)  # the other hears of it

    def test_bytes_that_mean_nothing(self):
        job, end = self.start("ofi:tcp")
        held = []
        self.addCleanup(lambda: [each.close() for each in held])
        for place in self.ports(job):
            for size in (0, 1, 4, 64, 5000) * 4:
                held.append(socket.create_connection(place, timeout=LIMIT))
                try:
                    held[-1].sendall(secrets.token_bytes(size))
                except ConnectionError:  # it has been refused already
                    pass
            for each in held[::2]:
                each.close()
        self.check_good_end(job, end)


class FewDescriptorsTest(JobTest):
    """What strangers may use up. Wherever a process has none left, it says so."""

    def test_they_end_the_job_with_their_cause(self):
        with tempfile.NamedTemporaryFile() as end:  # the job shall end at once
            ends = []
            for limit in range(13, 29):
                done = subprocess.run(["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", dcuda_run, "-n", "6", steady, end.name],
                                      env={**os.environ, "DCUDA_DISABLE_PEER": "1", "DCUDA_TRANSPORT": "shm"},
                                      capture_output=True, text=True, timeout=60)
                output = done.stdout + done.stderr
                self.assertNotIn("signal", output)
                if done.returncode == 0:
                    self.assertEqual(output.count("ends with 0 wrong words"), 6, output)
                elif "no memory on the device" not in output:
                    self.assertRegex(output, "Too many open files.*: raise `ulimit -n`", output)
                ends.append(done.returncode)
            self.assertEqual({0, 1}, set(ends))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
