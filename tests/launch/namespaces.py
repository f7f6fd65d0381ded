# SPDX-License-Identifier: BSD-3-Clause
"""Hosts for tests: network namespaces with host names of their own, joined by a bridge in another one."""
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys

TIMEOUT = 60
DEVICE = "eth0"  # of each host


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True, timeout=TIMEOUT)


class Hosts:
    """The hosts have the addresses NETWORK.1, NETWORK.2, ... and are gone at the end whatever happens."""

    def __init__(self, hosts=("a", "b"), network="10.77.0"):
        self.mark = f"dcuda-{os.getpid()}-{secrets.token_hex(3)}"
        self.names = {host: f"{self.mark}-{host}" for host in hosts}
        self.switch = f"{self.mark}-switch"
        self.network = network + ".0/24"
        self.addresses = {host: f"{network}.{number}" for number, host in enumerate(hosts, 1)}

    def __enter__(self):
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for host, name in self.names.items():
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", self.switch, "link", "add", f"to-{host}", "type", "veth", "peer", "name", DEVICE, "netns", name)
                ip("-n", self.switch, "link", "set", f"to-{host}", "master", "bridge", "up")
                # A bridge that every host has, with the same address, as container engines make them.
                ip("-n", name, "addr", "add", "172.17.0.1/16", "dev", "lo")
                ip("-n", name, "addr", "add", self.addresses[host] + "/24", "dev", DEVICE)
                ip("-n", name, "link", "set", DEVICE, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (*self.names.values(), self.switch):
            for pid in ip("netns", "pids", name, check=False).stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            ip("netns", "delete", name, check=False)

    def link(self, host, state):
        ip("-n", self.names[host], "link", "set", DEVICE, state)

    def block(self, host, ports, blocked=True):
        """From this host no way leads to these TCP ports of others, "7000-7999", until that is taken back."""
        ip("-n", self.names[host], "rule", "add" if blocked else "del", "pref", "10", "ipproto", "tcp", "dport", ports,
           "unreachable")

    def make_slow(self, delay_s, loss):
        """The link between two hosts delays all packets and loses some. Returns the process that relays them, which
        ends with its input and then prints how many came through and how many did not."""
        for name in self.names.values():
            ip("-n", name, "link", "delete", DEVICE)
        relay = subprocess.Popen(
            [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "relay.py"), DEVICE, str(delay_s),
             str(loss), "1", *self.names.values()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if relay.stdout.readline() != "ready\n":
            raise RuntimeError("the relay did not start")
        for host, name in self.names.items():
            ip("-n", name, "addr", "add", self.addresses[host] + "/24", "dev", DEVICE)
            ip("-n", name, "link", "set", DEVICE, "up")
        return relay

    def command(self, host, *command):
        """The command, run on this host, under its host name."""
        return ["ip", "netns", "exec", self.names[host], "unshare", "--uts", "sh", "-c",
                f'hostname {host}; exec "$@"', "sh", *command]

    def job_command(self, *command, per_host=2):
        """A job of the command with so many processes on each host."""
        address = next(iter(self.addresses.values()))
        rendezvous = f"{address}:{random.randrange(20000, 22000)}"  # another one than the last job's, of which something may be left
        return [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "start_job.py"), rendezvous,
                str(per_host), *(json.dumps(self.command(host)) for host in self.addresses), "--", *command]

    def agent(self, folder):
        """The path of a program that mpirun and mpiexec use in place of ssh. It takes names of hosts and addresses."""
        names = "".join(f"{address}) host={host};;\n" for host, address in self.addresses.items())
        path = os.path.join(folder, "agent")
        with open(path, "w") as file:
            file.write(f"""#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
host=$1; shift
case $host in
{names}esac
while [[ "$1" == -* ]]; do shift; done
exec ip netns exec {self.mark}-$host unshare --uts sh -c "hostname $host; $*"
""")
        os.chmod(path, 0o755)
        return path


def why_not():
    """Why hosts cannot be made here; empty if they can."""
    if not shutil.which("ip") or not shutil.which("unshare"):
        return "ip or unshare is missing"
    try:
        with Hosts() as hosts:
            done = subprocess.run(hosts.command("a", "hostname"), capture_output=True, text=True, timeout=TIMEOUT)
        return "" if done.stdout == "a\n" else f"no host name of its own: {done.stderr}"
    except subprocess.CalledProcessError as problem:
        return problem.stderr.strip()
