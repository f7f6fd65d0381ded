#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""dcuda-run over two hosts: network namespaces with a cable between them (two virtual interfaces), which is pulled.
Usage: network_test.py PATH_OF_dcuda-run. Ends with 77 where there can be no namespaces.

What stands for ssh is this file, too: `network_test.py --server NAME ADDRESS` on a host, and the client that
`network_test.py --client ADDRESS COMMAND` is. So the connection of an agent goes over the cable, and hangs without it.
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

PORT = 2222


def pump(pairs, until):
    """Copies from each descriptor to its partner until `until` has ended; ends a partner when its source has."""
    pairs = dict(pairs)
    while until in pairs:
        for source in select.select(list(pairs), [], [])[0]:
            try:
                data = os.read(source, 65536)
                while data:
                    data = data[os.write(pairs[source], data):]
                    if not data:
                        break
                else:
                    raise EOFError
            except (OSError, EOFError):
                target = pairs.pop(source)
                try:
                    socket.socket(fileno=os.dup(target)).shutdown(socket.SHUT_WR)
                except OSError:
                    os.close(target)  # a pipe


def serve(name, address):
    with socket.create_server((address, PORT)) as server:
        while True:
            connection = server.accept()[0]
            if os.fork() != 0:
                connection.close()
                continue
            with connection, connection.makefile("rb", buffering=0) as file:
                line = file.readline()
                if not line:
                    os._exit(0)  # only asked whether we are there
                command = json.loads(line)
                process = subprocess.Popen(["unshare", "--uts", "sh", "-c", 'hostname "$0" && eval "$1"', name, command],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                output = process.stdout.fileno()
                pump([(connection.fileno(), process.stdin.fileno()), (output, connection.fileno())], output)
                process.wait()
            os._exit(0)


def connect(address, command):
    with socket.create_connection((address, PORT), 5) as connection:
        connection.settimeout(None)
        connection.sendall(json.dumps(command).encode() + b"\n")
        pump([(0, connection.fileno()), (connection.fileno(), 1)], connection.fileno())


if sys.argv[1] == "--server":
    serve(*sys.argv[2:])
if sys.argv[1] == "--client":
    sys.exit(connect(*sys.argv[2:]))

import unittest  # noqa: E402

import hosts_test  # noqa: E402
from support import TIMEOUT, JobTest, alive, launcher, wait_until  # noqa: E402

SPACES = [f"dcuda{os.getpid()}{side}" for side in "ab"]
ADDRESSES = ["10.213.77.1", "10.213.77.2"]


def ip(*arguments, **settings):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, **settings)


def remove_spaces():
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], capture_output=True)


def make_spaces():
    """Raises what says why not."""
    subprocess.run(["unshare", "--uts", "hostname", "any"], check=True, capture_output=True, text=True)
    for space in SPACES:
        ip("netns", "add", space)
    # Both ends are made where they belong: nothing appears among the machine's own interfaces.
    ip("-n", SPACES[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", SPACES[1])
    for space, address in zip(SPACES, ADDRESSES):
        ip("-n", space, "addr", "add", address + "/24", "dev", "cable")
        ip("-n", space, "link", "set", "lo", "up")
        ip("-n", space, "link", "set", "cable", "up")


class NetworkTest(JobTest):
    def setUp(self):
        super().setUp()
        ip("-n", SPACES[1], "link", "set", "cable", "up")
        self.servers = []
        for space, address in zip(SPACES, ADDRESSES):
            self.servers.append(subprocess.Popen(["ip", "netns", "exec", space, sys.executable, __file__, "--server",
                                                  space, address], start_new_session=True))
            self.assertTrue(wait_until(lambda: subprocess.run(
                ["ip", "netns", "exec", space, "bash", "-c", f": < /dev/tcp/{address}/{PORT}"],
                capture_output=True).returncode == 0))
        os.symlink(launcher, os.path.join(self.folder, "dcuda-run"))

    def tearDown(self):
        for server in self.servers:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        super().tearDown()

    def options(self):
        return ["--hosts", ",".join(ADDRESSES), "--ssh", f"{sys.executable} {__file__} --client", "--remote-path",
                self.folder]

    def command(self, *arguments, script):
        # dcuda-run is on the first host.
        return ["ip", "netns", "exec", SPACES[0], *super().command(*arguments, script=script)]

    def test_processes_meet(self):
        result = self.run_job("-n", 4, script=f"[ $0 != x ] && exec {sys.executable} -c '{hosts_test.MEET}' $0")
        self.assertEqual((result.stdout, result.stderr), (f"{ADDRESSES[0]} ['1', '2', '3']\n", ""))

    def test_hosts_differ(self):
        result = self.run_job("-n", 2, "--prefix", script="hostname")
        self.assertEqual(sorted(result.stdout.splitlines()), [f"[{i}] {SPACES[i]}" for i in range(2)])

    def test_cable_is_pulled(self):
        job = self.start_job("-n", 4, "--grace", 1, script="(exec -a $0 sleep 100) & setsid bash -c 'sleep 100; :' $0 & "
                                                          "READY; sleep 100")
        start = time.monotonic()
        ip("-n", SPACES[1], "link", "set", "cable", "down")
        _, error = job.communicate(timeout=TIMEOUT)
        self.assertLess(time.monotonic() - start, 25)
        self.assertNotEqual(job.returncode, 0)
        self.assertIn(f"lost host {ADDRESSES[1]}: nothing heard from it for 15 s", error)
        # The agent over there misses dcuda-run likewise.
        self.assertTrue(wait_until(lambda: alive(self.mark) == [], 20), "processes outlive the job")

    def test_no_cable(self):
        ip("-n", SPACES[1], "link", "set", "cable", "down")
        start = time.monotonic()
        result = self.run_job("-n", 2, script="")
        self.assertLess(time.monotonic() - start, 15)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, f"host {ADDRESSES[1]}: .*(timed out|No route)")


if __name__ == "__main__":
    try:
        make_spaces()
    except (OSError, subprocess.CalledProcessError) as problem:
        remove_spaces()
        print(f"skipped: no network namespaces here: {getattr(problem, 'stderr', None) or problem}")
        sys.exit(77)
    try:
        unittest.main(argv=sys.argv[:1], verbosity=2)
    finally:
        remove_spaces()
