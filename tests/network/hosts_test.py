#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs over several hosts, which are network namespaces. Ends with 77 where they cannot be made.
Usage: hosts_test.py FOLDER_OF_HOSTS_HELPERS PATH_OF_traffic STRESS PUT_NOTIFY COLLECTIVE STENCIL [MPIRUN...]
"""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.append(sys.argv[1])
from job import Job, JobTest  # noqa: E402
from namespaces import Hosts, why_not  # noqa: E402

traffic, stress, put_notify, collective, stencil, *mpirun = sys.argv[2:]
# Collective operations of few ranks per process, and reductions of many.
PROGRAMS = {"stress": [stress], "put_notify": [put_notify],
            "collective": [collective, "--gtest_filter=*/1:*Types.AllTypes*/2:*StridesAndNode*"],
            "stencil": [stencil, "--nx", "33", "--ny", "40", "--nz", "4", "--iterations", "30", "--ranks", "3",
                        "--verify"]}
TIMEOUT = 100
PORTS = "23000-23999"  # that libfabric listens at, under the names that its provider has had
PORT_SETTINGS = {f"FI_{provider}_PORT_{end}_RANGE": port for provider in ("NET", "TCP")
                 for end, port in zip(("LOW", "HIGH"), PORTS.split("-"))}


class HostsTest(JobTest):
    def make_hosts(self, count):
        self.hosts = Hosts([f"dh{number}" for number in range(1, count + 1)], "10.79.0")
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)

    def command(self, *program):
        """The program with two processes per host."""
        return self.hosts.job_command(*program)

    def mpi_command(self, *program):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        places = ",".join(host + ":2" for host in self.hosts.addresses)
        return self.hosts.command("dh1", *mpirun, "-n", str(2 * len(self.hosts.addresses)), "-H", places, "--mca",
                                  "plm_rsh_agent", self.hosts.agent(folder), "--mca", "oob_tcp_if_include", self.hosts.network,
                                  "--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", "--mca",
                                  "btl_tcp_if_include", self.hosts.network, "-x", "DCUDA_TRANSPORT", *program)

    def run_programs(self, command, transport, *names, **variables):
        for name in names:
            with self.subTest(program=name):
                result = subprocess.run(command(*PROGRAMS[name]), env={**os.environ, "DCUDA_TRANSPORT": transport, **variables},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, timeout=TIMEOUT)
                self.assertEqual(result.returncode, 0, result.stdout)
                self.assertRegex(result.stdout, "PASSED|equal the serial reference to the last bit")

    def test_two_hosts(self):
        self.make_hosts(2)
        self.run_programs(self.command, "ofi:tcp", "stress", "put_notify", "collective", "stencil")

    def test_four_hosts(self):
        self.make_hosts(4)
        self.run_programs(self.command, "ofi:tcp", "stress", "put_notify", "stencil")

    def test_transports_are_chosen(self):
        # Each host has peer access of its own, and a network to the other.
        self.make_hosts(2)
        self.run_programs(self.command, "auto", "put_notify", "collective")

    @unittest.skipUnless(mpirun, "no MPI")
    def test_mpi(self):
        self.make_hosts(2)
        self.run_programs(self.mpi_command, "mpi", "stress", "put_notify", "stencil")

    @unittest.skipUnless(mpirun, "no MPI")
    def test_mpi_on_four_hosts(self):
        self.make_hosts(4)
        self.run_programs(self.mpi_command, "mpi", "put_notify", "stencil")

    def test_slow_link_that_loses_packets(self):
        self.make_hosts(2)
        relay = self.hosts.make_slow(0.002, 0.01)
        self.addCleanup(relay.kill)
        self.run_programs(self.command, "ofi:tcp", "stress", "put_notify", "stencil")
        said = relay.communicate("", timeout=TIMEOUT)[0].split()
        passed, lost = map(int, said)
        self.assertGreater(lost, passed / 200)

    def test_interruptions_are_survived(self):
        # What is on the way when a link is down is lost, and sent again by TCP.
        self.make_hosts(2)
        over = threading.Event()
        interruptions = 0

        def interrupt():
            nonlocal interruptions
            while not over.wait(0.7):
                self.hosts.link("dh2", "down")
                time.sleep(0.1)
                self.hosts.link("dh2", "up")
                interruptions += 1
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            # On a busy machine probe after probe may meet a link that is down: that is no lost host.
            self.run_programs(self.command, "ofi:tcp", "stress", DCUDA_LOST_AFTER="60")
        finally:
            over.set()
            thread.join()
        self.assertGreater(interruptions, 0)

    def start_without_a_way(self, *arguments, **settings):
        """Starts traffic between hosts whose control plane works, while no connection for data can be made."""
        self.make_hosts(2)
        for host in self.hosts.addresses:
            self.hosts.block(host, PORTS)
        job = Job(self.command(traffic, *arguments), DCUDA_TRANSPORT="ofi:tcp", **PORT_SETTINGS, **settings)
        self.addCleanup(job.end)
        return job

    def test_first_connection_waits_for_a_way(self):
        job = self.start_without_a_way("1000", "100")
        time.sleep(2)
        self.assertIsNone(job.process.poll(), job.output)
        for host in self.hosts.addresses:
            self.hosts.block(host, PORTS, False)
        self.assertEqual(job.wait(TIMEOUT), 0, job.output)

    def test_no_way_is_named(self):
        job = self.start_without_a_way("1000", "100", DCUDA_LOST_AFTER="2")
        self.check_end(job, r"cannot connect to process \d since 2 s: (Network is unreachable|No route to host)")

    def test_link_is_lost(self):
        self.make_hosts(2)
        job = self.start_traffic(self.command(traffic, str(64 << 20)), 8, DCUDA_TRANSPORT="ofi:tcp",
                                 DCUDA_LOST_AFTER="3")
        time.sleep(0.3)
        self.hosts.link("dh2", "down")
        self.check_end(job, r"process [23] \(pid \d+ on host dh2\) cannot be reached since 3 s",
                       r"wait_notifications\(tag 1, count 1\)")


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"skipped: network namespaces cannot be made here: {reason}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
