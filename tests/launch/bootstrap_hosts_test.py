#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the control plane between hosts. Usage: hosts_test.py PATH_OF_dcuda-run PATH_OF_meet_hosts

The hosts are network namespaces with host names of their own, joined by a bridge. Where they cannot be made (that takes
root), the test ends with 77, which counts as skipped.
"""
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from namespaces import DEVICE, TIMEOUT, Hosts, ip, why_not

dcuda_run, program = map(os.path.abspath, sys.argv[1:3])

LOST_AFTER = 2
HOSTS = ("a", "b")


class HostsTest(unittest.TestCase):
    def setUp(self):
        self.processes = []
        self.hosts = Hosts()
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        self.addCleanup(self.end)

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, *arguments, placement=("a", "a", "b", "b"), **variables):
        """Starts a process for each host of the placement, as dcuda-run would."""
        secret = secrets.token_hex(16)
        for index, host in enumerate(placement):
            environment = {**os.environ, "DCUDA_PROCESS_INDEX": str(index),
                           "DCUDA_PROCESS_COUNT": str(len(placement)),
                           "DCUDA_LOCAL_INDEX": str(placement[:index].count(host)),
                           "DCUDA_LOCAL_COUNT": str(placement.count(host)), "DCUDA_JOB": secret,
                           "DCUDA_RENDEZVOUS": "10.77.0.1:29555", "DCUDA_LOST_AFTER": str(LOST_AFTER),
                           "DCUDA_CONNECT_TIMEOUT": "20", **variables}
            self.processes.append(subprocess.Popen(self.hosts.command(host, program, *arguments), env=environment,
                                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def finish(self):
        """What each process printed last."""
        last = []
        for process in self.processes:
            out, err = process.communicate(timeout=TIMEOUT)
            self.assertEqual((process.returncode, err), (0, ""), out)
            last.append(out.splitlines()[-1].split(": ", 1)[1])
        return last

    def await_watching(self):
        for process in self.processes:
            self.assertIn("watching", process.stdout.readline())
        time.sleep(0.3)

    def test_meet(self):
        self.start("meet")
        self.assertEqual(self.finish(), ["met a a b b, last message of 3"] * 4)

    def test_listens_between_the_hosts_only_while_they_meet(self):
        def listening():
            return subprocess.run(["ip", "netns", "exec", self.hosts.names["a"], "cat", "/proc/net/tcp"],
                                  capture_output=True, text=True, timeout=TIMEOUT).stdout.split("\n")[1:-1]
        self.start("watch", placement=("a", "b"))
        self.await_watching()
        self.assertEqual([line for line in listening() if line.split()[3] == "0A"], [])
        self.hosts.link("b", "down")
        self.finish()

    def check_lost(self, mode, host):
        self.start(mode)
        self.await_watching()
        before = time.monotonic()
        self.hosts.link(host, "down")
        said = self.finish()
        self.assertLess(time.monotonic() - before, LOST_AFTER * 1.25 + 3)
        self.assertGreater(time.monotonic() - before, LOST_AFTER * 0.5)
        for index in (2, 3):
            self.assertRegex(said[index], rf"^process 0 \(pid \d+ on host a\) cannot be reached since {LOST_AFTER} s$")
        # On the control server's own host another process comes by the address that goes with its link.
        for index in (0, 1):
            self.assertRegex(said[index], r"^process [0123] \(pid \d+ on host [ab]\) cannot be reached since "
                                          rf"{LOST_AFTER} s$")
        if host == "b":
            self.assertRegex(said[0], r"^process [23] \(pid \d+ on host b\)")

    def test_lost_link_of_the_others(self):
        self.check_lost("watch", "b")

    def test_lost_link_of_the_control_server(self):
        self.check_lost("watch", "a")

    def test_lost_link_of_the_others_with_data_on_the_way(self):
        self.check_lost("send", "b")

    def test_lost_link_of_the_control_server_with_data_on_the_way(self):
        self.check_lost("send", "a")

    def test_packets_are_dropped_silently(self):
        # As when the power of a host fails: no interface goes down here.
        if not shutil.which("tc"):
            self.skipTest("no tc")
        self.start("watch")
        self.await_watching()
        for host in HOSTS:
            subprocess.run(["tc", "-n", self.hosts.names[host], "qdisc", "add", "dev", DEVICE, "root",
                            "netem", "loss", "100%"], check=False, capture_output=True, timeout=TIMEOUT)
        # Without netem in the kernel, an address that leads nowhere does the same for one direction.
        ip("-n", self.hosts.names["b"], "addr", "delete", "10.77.0.2/24", "dev", DEVICE)
        before = time.monotonic()
        said = self.finish()
        self.assertLess(time.monotonic() - before, LOST_AFTER * 1.25 + 3)
        self.assertRegex(said[0], r"^process [23] \(pid \d+ on host b\) cannot be reached")

    def test_short_interruption_is_survived(self):
        self.start("compute", "3", DCUDA_LOST_AFTER="8")
        time.sleep(1.5)
        self.hosts.link("b", "down")
        time.sleep(1)
        self.hosts.link("b", "up")
        self.assertEqual(self.finish(), ["computed"] * 4)

    def test_a_process_that_computes_is_not_lost(self):
        # Two do not read for three times the bound, with more for them than the sockets hold.
        self.start("compute", str(LOST_AFTER * 3))
        self.assertEqual(self.finish(), ["computed"] * 4)

    def agent(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return self.hosts.agent(folder)

    def check_launcher(self, *command, expected):
        # libpmix does not free all that it allocates.
        result = subprocess.run(self.hosts.command("a", "env", "DCUDA_CONNECT_TIMEOUT=20",
                                                   "ASAN_OPTIONS=detect_leaks=0", *command), timeout=TIMEOUT,
                                capture_output=True, text=True)
        if "nothing tells them where" in result.stdout:
            self.skipTest("built without PMIx")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), expected, result.stderr)

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no Open MPI")
    def test_openmpi_tells_where(self):
        for mapping, hosts in (("slot", "a a b b"), ("node", "a b a b")):
            self.check_launcher("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--map-by", mapping, "--mca",
                                "plm_rsh_agent", self.agent(), "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--host",
                                "a:2,b:2", "-n", "4", program, "meet",
                                expected=[f"{i}: met {hosts}, last message of 3" for i in range(4)])

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no Open MPI")
    def test_dcuda_run_calls_openmpi(self):
        self.check_launcher("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                            f"OMPI_MCA_plm_rsh_agent={self.agent()}", "OMPI_MCA_oob_tcp_if_include=10.77.0.0/24", dcuda_run,
                            "--launcher", "mpirun.openmpi", "--hosts", "a:1,b:3", program, "meet",
                            expected=[f"{i}: met a b b b, last message of 3" for i in range(4)])

    @unittest.skipUnless(shutil.which("mpiexec.hydra"), "no MPICH")
    def test_hydra_tells_where(self):
        self.check_launcher("mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", self.agent(), "-iface",
                            DEVICE, "-hosts", "a:2,b:2", "-n", "4", program, "meet",
                            expected=[f"{i}: met a a b b, last message of 3" for i in range(4)])

    def test_killed_process(self):
        self.start("watch")
        self.await_watching()
        victim = self.processes.pop(2)
        victim.kill()
        victim.communicate()
        before = time.monotonic()
        for said in self.finish():
            self.assertRegex(said, r"^process 2 \(pid \d+ on host b\) ended unexpectedly$")
        self.assertLess(time.monotonic() - before, 3)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"skipped: network namespaces cannot be made here: {reason}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
