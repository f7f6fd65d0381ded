#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of dcuda-run --hosts, with a script for ssh. Usage: hosts_test.py PATH_OF_dcuda-run [PATH_OF_show_job]"""
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import launcher_test
from support import TIMEOUT, JobTest, alive, launcher, wait_until

# Runs the command here, under the host's name if that may be changed. Some names stand for what can go wrong.
SSH = r"""#!/bin/sh
host=$1; shift
echo "$host $*" >> "FOLDER/ssh.log"
echo $$ > "FOLDER/pid.$host"  # of the agent, since each of these becomes the next
case $host in
    unreachable) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255;;
    mute) exec sleep 100;;
    greeting*) echo "Welcome to $host!"; echo "it speaks" >&2;;
    babbling) exec cat /dev/zero;;
    old) printf '\ndcuda-run agent\n'; printf '\025\0\0\0\005\0\0\0hello\003\0\0\0000.0\001\0\0\0001'; exec sleep 100;;
    empty) set -- "mount -t tmpfs none FOLDER/there && $*"; exec unshare --mount sh -c "$*";;
    two-gpus) export CUDA_VISIBLE_DEVICES=4,5;;
    no-gpu) export CUDA_VISIBLE_DEVICES=;;
    dying*) sh -c "$*"; exit;;
    late) exec python3 "FOLDER/late.py" "$*";;
    session*) exec setsid --wait sh -c "$*";;
esac
unshare --uts true 2> /dev/null || exec sh -c "$*"
exec unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
"""

# Process 0 accepts all others, who connect to it, at the address that all are told.
MEET = """
import os, socket
index, count = int(os.environ["DCUDA_PROCESS_INDEX"]), int(os.environ["DCUDA_PROCESS_COUNT"])
address, port = os.environ["DCUDA_RENDEZVOUS"].rsplit(":", 1)
if index == 0:
    listener = socket.socket(fileno=int(os.environ["DCUDA_LISTEN_FD"]))
    assert listener.getsockname() == (address, int(port))
    others = [listener.accept()[0] for _ in range(count - 1)]
    print(address, sorted(other.recv(10).decode() for other in others))
else:
    assert "DCUDA_LISTEN_FD" not in os.environ
    with socket.create_connection((address, int(port)), 20) as connection:
        connection.sendall(str(index).encode())
"""


# The agent's last message arrives after its end, and after dcuda-run had something to send to it.
LATE = """
import os, signal, subprocess, sys, time
agent = subprocess.Popen(["sh", "-c", sys.argv[1]], stdout=subprocess.PIPE)
os.close(0)
while chunk := os.read(agent.stdout.fileno(), 65536):
    if chunk.endswith(b"done"):
        agent.wait()
        os.kill(os.getppid(), signal.SIGUSR1)
        time.sleep(0.5)
    os.write(1, chunk)
"""


class OverHosts(JobTest):
    hosts = "a,b"

    def setUp(self):
        super().setUp()
        self.ssh = os.path.join(self.folder, "ssh")
        with open(self.ssh, "w") as file:
            file.write(SSH.replace("FOLDER", self.folder))
        os.chmod(self.ssh, 0o755)
        os.symlink(launcher, os.path.join(self.folder, "dcuda-run"))  # so that agents have our mark

    def options(self):
        return ["--hosts", self.hosts, "--ssh", self.ssh, "--remote-path", self.folder, "--interface", "lo"]

    def on(self, hosts, *arguments, script, **settings):
        self.hosts = hosts
        return self.run_job(*arguments, script=script, **settings)


class AsOnOneHost(OverHosts, launcher_test.LauncherTest):
    """All that holds on one host holds on two."""

    local = ["0 2", "1 2", "0 1"]

    def test_default_count(self):
        result = self.on("two-gpus,no-gpu,c:3", script="echo $DCUDA_PROCESS_INDEX $DCUDA_LOCAL_COUNT")
        self.assertEqual(sorted(result.stdout.splitlines()), ["0 2", "1 2", "2 1", "3 3", "4 3", "5 3"])

    # Of these nothing is special.
    test_missing_program = test_unrunnable_program = test_usage_errors = None
    test_processes_meet = test_processes_meet_alone = test_processes_meet_under_mpirun = None


class HostsTest(OverHosts):
    # ---- layout ----

    def layout(self, *arguments, **settings):
        """Names of the hosts of processes 0, 1, ..., as dcuda-run calls them, or its error."""
        result = subprocess.run([launcher, "--ssh", self.ssh, "--remote-path", self.folder, "--interface", "lo",
                                 "--prefix", *arguments, "--", "bash", "-c", "echo $(hostname)", self.mark],
                                capture_output=True, text=True, timeout=TIMEOUT, **settings)
        lines = sorted(result.stdout.splitlines(), key=lambda line: int(line[1:line.index("]")]))
        return " ".join(line.split()[1] for line in lines) if result.returncode == 0 else result.stderr

    @unittest.skipUnless(subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode == 0,
                         "host names cannot be changed here")
    def test_layout(self):
        for expected, *arguments in (("a a a b b c c", "--hosts", "a,b,c", "-n", "7"),
                                     ("a a a b b c c c", "--hosts", "a,b:2,c", "-n", "8"),
                                     ("a b b", "--hosts", "a:1,b:2"),
                                     ("a a b", "--hosts", "a:2,b:2", "-n", "3"),
                                     ("a a", "--hosts", "a:2,unreachable", "-n", "2"),
                                     ("a a b", "--hosts", "a,b,a")):
            self.assertEqual(self.layout(*arguments), expected, arguments)
        path = os.path.join(self.folder, "hosts")
        with open(path, "w") as file:
            file.write("# ours\na slots=2  # two\n\nb:1\nc\nc\n")
        self.assertEqual(self.layout("--hostfile", path), "a a b c c")
        with open(path, "a") as file:
            file.write("d sluts=2\n")
        self.assertIn("hosts:7: expected host[:N] or host slots=N, not 'sluts=2'", self.layout("--hostfile", path))

    def test_wrong_lists(self):
        for error, *arguments in (("8 processes, but the hosts have 3 slots; give them more, as in a:6",
                                   "--hosts", "a:1,b:2", "-n", "8"),
                                  ("number of slots from 1", "--hosts", "a:0"),
                                  ("number of slots from 1", "--hosts", "a:x"),
                                  ("no host[:slots]", "--hosts", "a,,b"),
                                  ("no host[:slots]", "--hosts", "-oProxyCommand=x"),
                                  ("in brackets", "--hosts", "fe80::1"),
                                  ("no host given", "--hosts", ""),
                                  ("No such file", "--hostfile", "/missing"),
                                  ("there is no host in it", "--hostfile", "/dev/null"),
                                  ("excludes", "--hostfile", "/dev/null", "--hosts", "a")):
            result = subprocess.run([launcher, *arguments, "true"], capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(error, result.stderr)
        result = subprocess.run([launcher, "--interface", "lo", "true"], capture_output=True, text=True)
        self.assertIn("--interface needs --hosts", result.stderr)

    # ---- what processes get ----

    def test_arguments_pass_unchanged(self):
        odd = ["", "a b", "'", '"', "new\nline", "$HOME", "\\", "*", "--", "-n", "ä", "a'b\"c"]
        result = subprocess.run([launcher, *self.options(), "-n", "2", "--", "bash", "-c",
                                 "[ $DCUDA_PROCESS_INDEX = 0 ] || printf '%s|' \"$@\"", self.mark, *odd],
                                capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual((result.stdout, result.stderr), ("".join(each + "|" for each in odd), ""))

    def test_bytes_pass_unchanged(self):
        data = bytes(range(256)) * 20000
        result = subprocess.run(self.command("-n", 2, script="cat; printf end >&2"), input=data, capture_output=True,
                                timeout=TIMEOUT)
        self.assertEqual(result.stdout, data)
        self.assertEqual(result.stderr, b"endend")

    def test_input_that_nobody_reads(self):
        with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
            result = self.run_job("-n", 2, script="head -n1", stdin=endless.stdout)
            endless.kill()
        self.assertEqual((result.returncode, result.stdout), (0, "y\n"))

    def test_environment_travels(self):
        there = os.path.join(self.folder, "there")
        os.mkdir(there)
        environment = {**os.environ, "DCUDA_TAGS": "a b\nc", "DCUDA_LISTEN_FD": "77", "DCUDA_RENDEZVOUS": "x:1",
                       "DCUDA_PROCESS_INDEX": "55", "LD_LIBRARY_PATH": "/libs", "PATH": "/mine:" + os.environ["PATH"]}
        # What ssh would not take along by itself.
        with open(self.ssh) as file:
            script = file.read().replace("host=$1", "unset DCUDA_TAGS LD_LIBRARY_PATH; cd /; PATH=/usr/bin:/bin; host=$1")
        with open(self.ssh, "w") as file:
            file.write(script)
        result = self.run_job("-n", 2, "--prefix", "--env", "OWN=1", cwd=there, env=environment,
                              script="pwd; env -0 | tr '\\n\\0' ' \\n'")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        for line in ("[1] " + there, "[1] DCUDA_TAGS=a b c", "[1] LD_LIBRARY_PATH=/libs", "[1] OWN=1",
                     "[1] DCUDA_PROCESS_INDEX=1", "[1] PATH=" + environment["PATH"]):
            self.assertIn(line, lines)
        self.assertNotRegex(result.stdout, r"\[1\] DCUDA_LISTEN_FD|=x:1|=77")

    def test_secret_is_in_no_command_line(self):
        job = self.start_job("-n", 2, "--env", "PASSWORD=sesame", script="echo $DCUDA_JOB; READY; sleep 50")
        key = job.stdout.readline().strip()
        self.assertRegex(key, "^[0-9a-f]{32}$")
        self.assertEqual(alive(key), [])
        self.assertEqual(set(alive("sesame")) & set(alive("--agent")), set())
        job.terminate()
        job.communicate(timeout=TIMEOUT)
        with open(os.path.join(self.folder, "ssh.log")) as file:
            self.assertEqual(set(file.read().splitlines()),
                             {f"{host} exec '{self.folder}/dcuda-run' --agent" for host in "ab"})

    def test_files_are_on_this_side(self):
        there = os.path.join(self.folder, "there")
        os.mkdir(there)
        outputs = os.path.join(there, "outputs")
        result = self.on("a,greeting", "-n", 3, "--output-dir", outputs, script="echo $DCUDA_PROCESS_INDEX; seq 9 >&2")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        for i in range(3):
            with open(f"{outputs}/{i}.out") as out, open(f"{outputs}/{i}.err") as err:
                self.assertEqual((out.read(), err.read()), (f"{i}\n", "".join(f"{n}\n" for n in range(1, 10))))
        result = self.on("a,b", "-n", 2, "--output-dir", "/proc/none", script="")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("/proc/none", result.stderr)

    def test_listening_socket_is_of_process_0_alone(self):
        # Besides the one to dcuda-run.
        script = 'ls -l /proc/self/fd | grep -v " ${DCUDA_BLAME_FD%%:*} -> " | grep -c socket: || true'
        result = self.run_job("-n", 4, "--prefix", script=script, stdin=subprocess.DEVNULL)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] 1", "[1] 0", "[2] 0", "[3] 0"])

    def test_processes_meet_at_the_socket(self):
        command = [launcher, *self.options(), "-n", "5", sys.executable, "-c", MEET, self.mark]
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual((result.stdout, result.stderr), ("127.0.0.1 ['1', '2', '3', '4']\n", ""))

    def test_no_socket_for_one_host(self):
        for hosts in ("a", "a:2,b"):
            result = self.on(hosts, "-n", 2, script="echo ${DCUDA_RENDEZVOUS-none} ${DCUDA_LISTEN_FD-none}")
            self.assertEqual(result.stdout, "none none\n" * 2)

    def test_wrong_interface(self):
        result = subprocess.run([launcher, *self.options()[:-1], "eth77", "-n", "2", "true"], capture_output=True,
                                text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "host a: --interface eth77: there is none .*; there are .*lo 127.0.0.1")

    def test_login_that_prints(self):
        result = self.on("greeting,greeting2", "-n", 2, script="echo hello")
        self.assertEqual((result.returncode, result.stdout), (0, "hello\nhello\n"))
        self.assertIn("dcuda-run: host greeting2: it speaks\n", result.stderr)

    # ---- faults ----

    def fails(self, hosts, *texts, code=None, seconds=8, **settings):
        before = time.monotonic()
        result = self.on(hosts, "-n", 2, script="sleep 50", **settings)
        self.assertLess(time.monotonic() - before, seconds)
        self.assertNotEqual(result.returncode, 0)
        if code:
            self.assertEqual(result.returncode, code)
        for text in texts:
            self.assertIn(text, result.stderr)
        self.assertEqual(alive(self.mark), [])

    def test_unreachable_host(self):
        self.fails("a,unreachable", "host unreachable: ssh: connect to host unreachable port 22: No route to host",
                   f"host unreachable: `{self.ssh}` ended with code 255")

    def test_no_ssh(self):
        self.ssh = "no-such-ssh"
        self.fails("a,b", "no-such-ssh: not found", "`no-such-ssh` ended with code 127")

    def test_no_dcuda_there(self):
        os.remove(os.path.join(self.folder, "dcuda-run"))
        self.fails("a,b", f"if {self.folder}/dcuda-run is not there, name its folder by --remote-path")

    def test_other_version(self):
        self.fails("a,old", "host old: ", "there is of dCUDA 0.0, this one of")

    def test_nonsense(self):
        self.fails("a,babbling", "host babbling: what arrived is no message of dcuda-run")

    def test_no_program_there(self):
        result = subprocess.run([launcher, *self.options(), "-n", "2", "./missing"], capture_output=True, text=True,
                                timeout=TIMEOUT, cwd=self.folder)
        self.assertEqual(result.returncode, 127)
        self.assertRegex(result.stderr, rf"host [ab]: \./missing does not exist \(in {self.folder}\)")

    def test_program_without_interpreter(self):
        path = os.path.join(self.folder, "script")
        with open(path, "w") as file:
            file.write("no interpreter is named here")
        os.chmod(path, 0o755)
        result = subprocess.run([launcher, *self.options(), "-n", "2", path], capture_output=True, text=True,
                                timeout=TIMEOUT)
        self.assertEqual(result.returncode, 126)
        self.assertRegex(result.stderr, f"host [ab]: cannot start {path}: Exec format error")

    @unittest.skipUnless(subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0,
                         "no mount namespaces here")
    def test_one_host_lacks_something(self):
        there = os.path.join(self.folder, "there", "deep")
        os.makedirs(there)
        self.fails("a,empty", f"host empty: cannot change to the working directory {there}: No such file", cwd=there)
        program = os.path.join(there, "program")
        shutil.copy("/bin/true", program)
        result = subprocess.run([launcher, "--hosts", "a,empty", *self.options()[2:], "-n", "2", program],
                                capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 127)
        self.assertIn(f"host empty: {program} does not exist", result.stderr)

    def signal_agent(self, host, number):
        with open(os.path.join(self.folder, "pid." + host)) as file:
            os.kill(int(file.read()), number)

    def survivors_are_ended(self, job, text, seconds=12):
        before = time.monotonic()
        _, error = job.communicate(timeout=TIMEOUT)
        self.assertNotEqual(job.returncode, 0)
        self.assertIn(text, error)
        self.assertLess(time.monotonic() - before, seconds)
        self.assertEqual(alive(self.mark), [])

    STUBBORN = "trap '' INT TERM HUP; (exec -a $0 sleep 50) & setsid bash -c 'sleep 50; :' $0 & READY; sleep 50"

    def test_agent_is_killed(self):
        job = self.start_job("-n", 4, "--grace", 0.3, script=self.STUBBORN)
        self.signal_agent("b", signal.SIGKILL)
        self.survivors_are_ended(job, "lost host b: ")

    def test_agent_gets_sighup(self):
        job = self.start_job("-n", 4, "--grace", 0.3, script=self.STUBBORN)
        self.signal_agent("b", signal.SIGHUP)
        self.survivors_are_ended(job, "lost host b: ")

    def test_connection_dies(self):
        self.hosts = "a,dying"
        job = self.start_job("-n", 4, "--grace", 0.3, script=self.STUBBORN)
        self.signal_agent("dying", signal.SIGKILL)  # what stands for ssh, here
        self.survivors_are_ended(job, "lost host dying: ")

    def test_last_words_of_a_lost_host(self):
        job = self.start_job("-n", 2, "--grace", 0.3, "--prefix", script="printf last; READY; sleep 50")
        time.sleep(0.5)
        self.signal_agent("b", signal.SIGKILL)
        out, _ = job.communicate(timeout=TIMEOUT)
        self.assertEqual(sorted(out.splitlines()), ["[0] last", "[1] last"])

    def test_agent_ends_before_its_last_message_arrives(self):
        with open(os.path.join(self.folder, "late.py"), "w") as file:
            file.write(LATE)
        result = self.on("late,b", "-n", 2, script="echo fine")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "fine\nfine\n", ""))

    def test_all_connections_die(self):
        self.hosts = "dying1,dying2"
        job = self.start_job("-n", 4, "--grace", 0.3, script=self.STUBBORN)
        for host in self.hosts.split(","):
            self.signal_agent(host, signal.SIGKILL)
        self.survivors_are_ended(job, "lost host dying2: ")

    def test_agents_see_the_end_of_the_launcher(self):
        # The agents are not in the group of what stands for ssh, so they only see the end of their input. Then they find
        # processes in sessions of their own, too.
        self.hosts = "session1,session2"
        job = self.start_job("-n", 4, script=self.STUBBORN)
        job.kill()
        job.communicate(timeout=TIMEOUT)
        self.assertTrue(wait_until(lambda: alive(self.mark) == []), "processes outlive the launcher")

    def test_signal_before_the_job_runs(self):
        self.hosts = "a,mute"
        job = subprocess.Popen(self.command("-n", 2, script="sleep 50"), stderr=subprocess.PIPE, text=True)
        self.assertTrue(wait_until(lambda: len(self.files("pid.")) == 2))
        job.terminate()
        _, error = job.communicate(timeout=TIMEOUT)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)

    def test_silence(self):
        """An agent that hangs, a launcher that hangs, a host that never answers, and a job that was stopped, which is none
        of these; at a time, since this takes long."""
        stopped = self.start_job("-n", 2, script="READY; sleep 1; echo done")
        stopped.send_signal(signal.SIGTSTP)
        for file in self.files("ready"):
            os.remove(os.path.join(self.folder, file))
        hung_agent = self.start_job("-n", 2, "--grace", 0.3, script=self.STUBBORN)
        self.signal_agent("b", signal.SIGSTOP)
        for file in self.files("ready"):
            os.remove(os.path.join(self.folder, file))
        hung_launcher = self.start_job("-n", 2, script=self.STUBBORN.replace("sleep 50", "sleep 51"))
        hung_launcher.send_signal(signal.SIGSTOP)
        self.hosts = "a,mute"
        start = time.monotonic()
        mute = subprocess.Popen(self.command("-n", 2, script="sleep 50"), stderr=subprocess.PIPE, text=True)
        _, error = hung_agent.communicate(timeout=TIMEOUT)
        self.assertIn("lost host b: nothing heard from it for 15 s", error)
        self.assertLess(time.monotonic() - start, 25)
        self.assertTrue(wait_until(lambda: alive("sleep\x0051") == [], 15), "agents wait for a launcher that hangs")
        hung_launcher.kill()
        hung_launcher.communicate(timeout=TIMEOUT)
        _, error = mute.communicate(timeout=TIMEOUT)
        self.assertIn("host mute: no answer within 30 s", error)
        self.assertLess(time.monotonic() - start, 45)
        stopped.send_signal(signal.SIGCONT)
        out, _ = stopped.communicate(timeout=TIMEOUT)
        self.assertEqual((stopped.returncode, out), (0, "done\ndone\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
