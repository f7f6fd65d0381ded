#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of dcuda-run on one host. Usage: launcher_test.py PATH_OF_dcuda-run [PATH_OF_show_job]"""
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support import TIMEOUT, JobTest, alive, in_other_session, launcher, show_job, wait_until


# In a namespace of process numbers: starts a job, and as soon as its process 0 has ended a process with the same number,
# in a group of its own. Then kills the launcher.
REUSE = """
import os, signal, subprocess, sys, time
*command, folder = sys.argv[1:]
def number(process):
    with open(f"{folder}/pid.{process}") as file:
        return int(file.read())
def has_ended(pid): # and this one is the reaper of orphans
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
def wait_until(condition):
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            sys.exit("it takes too long")
        time.sleep(0.02)
job = subprocess.Popen(command)
wait_until(lambda: all(os.path.exists(f"{folder}/pid.{i}") and os.path.getsize(f"{folder}/pid.{i}") for i in range(2)))
free = number(0)
wait_until(lambda: not os.path.exists(f"/proc/{free}"))
time.sleep(0.2)
try:
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(free - 1))
except OSError as problem:
    print(problem)
    sys.exit(77)
other = subprocess.Popen(["sleep", "50"], start_new_session=True)
if other.pid != free:
    print("another was quicker")
    sys.exit(77)
job.kill()
job.wait()
wait_until(lambda: has_ended(number(1)))
time.sleep(0.2)
print("it lives" if other.poll() is None else "it was killed")
other.kill()
"""


class LauncherTest(JobTest):
    # ---- starting ----

    def test_variables(self):
        result = self.run_job("-n", 3, "--prefix", "--ranks", 12, "--env", "ONE=1", "--env", "TWO=a=b",
                              script="echo $DCUDA_PROCESS_INDEX $DCUDA_PROCESS_COUNT $DCUDA_LOCAL_INDEX "
                                     "$DCUDA_LOCAL_COUNT $DCUDA_JOB $DCUDA_RANKS_PER_DEVICE $ONE $TWO "
                                     "${DCUDA_RENDEZVOUS-none} ${DCUDA_LISTEN_FD-none}",
                              env={**os.environ, "DCUDA_RENDEZVOUS": "x:1", "DCUDA_LISTEN_FD": "77"})
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = sorted(result.stdout.splitlines())
        key = lines[0].split()[5]
        self.assertRegex(key, "^[0-9a-f]{32}$")
        self.assertEqual(lines, [f"[{i}] {i} 3 {i} 3 {key} 12 1 a=b none none" for i in range(3)])

    def test_default_count(self):
        def count(**variables):
            environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
            return self.run_job(script="echo $DCUDA_PROCESS_COUNT", env={**environment, **variables}).stdout.split()
        self.assertEqual(count(CUDA_VISIBLE_DEVICES="2,5,7"), ["3", "3", "3"])
        self.assertEqual(count(CUDA_VISIBLE_DEVICES=""), ["1"])
        gpus = len([name for name in os.listdir("/dev") if re.fullmatch("nvidia[0-9]+", name)])
        self.assertEqual(len(count()), max(gpus, 1))

    def test_arguments_pass_unchanged(self):
        result = subprocess.run([launcher, "-n", "1", "printf", "%s|", "-n", "--prefix", "", "a b", "--"],
                                capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.stdout, "-n|--prefix||a b|--|")

    def test_missing_program(self):
        for program, code, text in (("./missing", 127, "does not exist"), ("no-such-program", 127, "in PATH"),
                                    ("/etc/passwd", 126, "not an executable file"),
                                    ("/tmp", 126, "not an executable file")):
            result = subprocess.run([launcher, "-n", "2", program], capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(result.returncode, code)
            self.assertIn(text, result.stderr)

    def test_unrunnable_program(self):
        path = os.path.join(self.folder, "script")
        with open(path, "w") as file:
            file.write("no interpreter is named here")
        os.chmod(path, 0o755)
        result = subprocess.run([launcher, "-n", "2", path], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 126)
        self.assertIn("Exec format error", result.stderr)

    def test_usage_errors(self):
        for arguments in ([], ["-n", "0", "true"], ["--env", "x", "true"], ["--grace", "soon", "true"],
                          ["--no-such-option", "true"], ["-x", "true"], ["-np", "none", "true"]):
            result = subprocess.run([launcher, *arguments], capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertNotEqual(result.stderr, "")

    def test_number_of_processes_as_others_call_it(self):
        for arguments in (["-np", "2"], ["--np", "2"], ["--prefix", "-np", "2"], ["-n2"]):
            result = subprocess.run([launcher, *arguments, "sh", "-c", 'echo "$@"', "-np", "-np", "7"],
                                    capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout.count("-np 7\n"), 2, result.stdout)

    # ---- input and output ----

    def test_stdin_goes_to_process_0(self):
        result = self.run_job("-n", 3, "--prefix", script="cat", input="one\ntwo\n")
        self.assertEqual(result.stdout, "[0] one\n[0] two\n")

    def test_stdin_from_a_terminal(self):
        # A new session whose terminal is the pty, so that the launcher is its foreground group.
        pid, terminal = pty.fork()
        if pid == 0:
            command = self.command("-n", 2, script="read line; echo \"$DCUDA_PROCESS_INDEX:<$line>\"")
            os.execv(command[0], command)
        os.write(terminal, b"hello\n")
        output = b""
        try:
            while chunk := os.read(terminal, 1000):
                output += chunk
        except OSError:
            pass  # the terminal's other end is closed
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIn(b"0:<hello>", output)
        self.assertIn(b"1:<>", output)

    def test_ctrl_c_on_a_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            command = self.command("-n", 2, script=f"{self.ready()}; sleep 50")
            os.execv(command[0], command)
        self.assertTrue(wait_until(lambda: len(self.files("ready")) == 2))
        os.write(terminal, b"\x03")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 128 + signal.SIGINT)
        os.close(terminal)

    def test_prefix_keeps_lines_whole(self):
        result = self.run_job("-n", 4, "--prefix",
                              script="for i in {1..300}; do printf 'part %s ' $i; printf 'end\n'; "
                                     "echo error $i >&2; done; printf last")
        self.assertEqual(result.returncode, 0)
        out, err = result.stdout.splitlines(), result.stderr.splitlines()
        for i in range(4):
            mine = [line for line in out if line.startswith(f"[{i}] ")]
            self.assertEqual(mine, [f"[{i}] part {n} end" for n in range(1, 301)] + [f"[{i}] last"])
            self.assertEqual([line for line in err if line.startswith(f"[{i}] ")],
                             [f"[{i}] error {n}" for n in range(1, 301)])
        self.assertEqual((len(out), len(err)), (4 * 301, 4 * 300))

    def test_prefix_with_much_output(self):
        result = self.run_job("-n", 2, "--prefix", script="head -c 3000000 /dev/zero | tr '\\0' x; seq 100000")
        self.assertEqual(result.stdout.count("\n"), result.stdout.count("["))
        self.assertEqual(result.stdout.count("x"), 6000000)
        self.assertEqual(len(re.findall(r"^\[[01]\] 99999$", result.stdout, re.M)), 2)

    def test_more_processes_than_descriptors_at_first(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        done = subprocess.run(self.command("-n", 40, "--prefix", script="echo $DCUDA_PROCESS_INDEX"), timeout=TIMEOUT,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, most)),
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(f"[{i}] {i}" for i in range(40)))

    def test_closed_output_ends_the_job(self):
        job = subprocess.Popen(self.command("-n", 2, "--prefix", script="yes"), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
        job.stdout.readline()
        job.stdout.close()
        self.assertEqual(job.wait(TIMEOUT), 0)  # yes ended with SIGPIPE; the script with its last command, ':'

    def test_output_dir(self):
        folder = os.path.join(self.folder, "a", "b")
        result = self.run_job("-n", 2, "--output-dir", folder,
                              script="echo out $DCUDA_PROCESS_INDEX; echo err $DCUDA_PROCESS_INDEX >&2")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertEqual(sorted(os.listdir(folder)), ["0.err", "0.out", "1.err", "1.out"])
        for name, text in (("0.out", "out 0\n"), ("1.err", "err 1\n")):
            with open(os.path.join(folder, name)) as file:
                self.assertEqual(file.read(), text)

    # ---- ending ----

    def test_exit_code_of_the_first_that_failed(self):
        failed = f"{self.folder}/failed"  # process 2 looks for it, so that it is later however slowly process 1 starts
        result = self.run_job("-n", 3, script=f"case $DCUDA_PROCESS_INDEX in 1) touch {failed}; exit 3;; "
                                              f"2) until [ -e {failed} ]; do sleep 0.02; done; sleep 1; exit 4;; esac")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, r"^dcuda-run: process 1 \(pid \d+, host \S+\) exited with code 3\n$")

    def test_signal_death(self):
        result = self.run_job("-n", 3, script="[ $DCUDA_PROCESS_INDEX != 2 ] || kill -KILL $$")
        self.assertEqual(result.returncode, 128 + signal.SIGKILL)
        self.assertRegex(result.stderr, r"process 2 \(pid \d+, host \S+\) was killed by signal 9 \(SIGKILL\)\n$")

    # Ends that dcuda-run sees at the same time, in any order: it names the cause, not who ended because of it.

    def end_behind_its_back(self, *arguments, script):
        """Runs the script to its end in all processes while dcuda-run is stopped. It begins when a file `go` is there."""
        job = self.start_job(*arguments, script=f"READY; until [ -e {self.folder}/go ]; do sleep 0.02; done; {script}")
        own = set(alive(self.mark))
        os.kill(job.pid, signal.SIGSTOP)
        open(os.path.join(self.folder, "go"), "w").close()
        keepers = {job.pid, *filter(in_other_session, own)}
        self.assertTrue(wait_until(lambda: not own.intersection(alive(self.mark)) - keepers), "the script does not end")
        os.kill(job.pid, signal.SIGCONT)
        _, error = job.communicate(timeout=TIMEOUT)
        return job.returncode, error

    # Who tells dcuda-run whom a runtime holds for the cause: `echo OWN_INDEX CULPRIT >&$blame`.
    BLAME = "blame=${DCUDA_BLAME_FD%%:*}; "

    def test_signal_before_exit_codes(self):
        code, error = self.end_behind_its_back(
            "-n", 3, script="case $DCUDA_PROCESS_INDEX in 2) kill -KILL $$;; *) exit 3;; esac")
        self.assertEqual(code, 128 + signal.SIGKILL, error)
        self.assertRegex(error, r"^dcuda-run: process 2 \(pid \d+, host \S+\) was killed by signal 9 \(SIGKILL\)\n$")

    def test_blamed_process_before_others(self):
        """Also if the others die by a signal of their own, as by an exception that nobody catches."""
        code, error = self.end_behind_its_back(
            "-n", 3, script=self.BLAME + "[ $DCUDA_PROCESS_INDEX = 1 ] && exit 5; echo $DCUDA_PROCESS_INDEX 1 >&$blame; "
                                         "kill -ABRT $$")
        self.assertEqual(code, 5, error)
        self.assertRegex(error, r"^dcuda-run: process 1 \(pid \d+, host \S+\) exited with code 5\n$")

    def test_cause_ends_last(self):
        result = self.run_job("-n", 2, script=self.BLAME + "[ $DCUDA_PROCESS_INDEX = 1 ] && { sleep 1; exit 5; }; "
                                                           "echo 0 1 >&$blame; exit 3")
        self.assertEqual(result.returncode, 5)
        self.assertRegex(result.stderr, r"^dcuda-run: process 1 \(pid \d+, host \S+\) exited with code 5\n$")

    def test_cause_does_not_end(self):
        result = self.run_job("-n", 2, "--grace", 0.5, script=self.BLAME + "[ $DCUDA_PROCESS_INDEX = 1 ] && sleep 50; "
                                                                           "echo 0 1 >&$blame; exit 3")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, r"process 0 \(pid \d+, host \S+\) exited with code 3 because of process 1 "
                                        r"\(host \S+\), which has not ended\n")

    def test_blame_is_checked(self):
        result = self.run_job("-n", 2, "--grace", 0.5, script=self.BLAME + "[ $DCUDA_PROCESS_INDEX = 0 ] && { echo 0 7 >&$blame; "
                                                           "echo nonsense >&$blame; echo -1 1 >&$blame; exit 3; }; sleep 50")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, r"^dcuda-run: process 0 \(pid \d+, host \S+\) exited with code 3\n")

    def test_grace_lets_others_finish(self):
        result = self.run_job("-n", 2, "--prefix", "--grace", 20,
                              script="[ $DCUDA_PROCESS_INDEX = 0 ] && exit 7; sleep 1; echo my own message")
        self.assertEqual((result.returncode, result.stdout), (7, "[1] my own message\n"))

    def test_grace_ends(self):
        others_are_ready = f"[ -e {self.folder}/ready.1 ] && [ -e {self.folder}/ready.2 ]"
        result = self.run_job("-n", 3, "--grace", 0.3, "--prefix",
                              script=f"case $DCUDA_PROCESS_INDEX in 0) until {others_are_ready}; do sleep 0.02; done; exit 7;; "
                                     f"1) trap '' TERM;; 2) trap 'echo terminated; exit' TERM;; esac; {self.ready()}; "
                                     "while :; do sleep 0.1; done")
        self.assertEqual((result.returncode, result.stdout), (7, "[2] terminated\n"))
        self.assertIn("2 other processes did not end within 0.3 s", result.stderr)

    def test_stopped_process_is_ended(self):
        result = self.run_job("-n", 2, "--grace", 0.3,
                              script="[ $DCUDA_PROCESS_INDEX = 0 ] && { sleep 0.3; exit 7; }; kill -STOP $$")
        self.assertEqual(result.returncode, 7)

    def test_signals_are_forwarded(self):
        for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
            job = self.start_job("-n", 2, "--prefix",
                                 script=f"trap 'echo got {name}; exit 5' {name}; READY; while :; do sleep 0.1; done")
            job.send_signal(getattr(signal, "SIG" + name))
            out, _ = job.communicate(timeout=TIMEOUT)
            self.assertEqual(sorted(out.splitlines()), [f"[0] got {name}", f"[1] got {name}"])
            self.assertEqual(job.returncode, 5)
            for file in self.files("ready"):
                os.remove(os.path.join(self.folder, file))

    def test_default_action_of_forwarded_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = self.start_job("-n", 2, script="READY; sleep 50")
            job.send_signal(number)
            self.assertEqual(job.wait(TIMEOUT), 128 + number)
            job.communicate()
            for file in self.files("ready"):
                os.remove(os.path.join(self.folder, file))

    def test_second_interrupt_kills(self):
        job = self.start_job("-n", 2, script="trap '' INT; READY; while :; do sleep 0.1; done")
        job.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(TIMEOUT), 128 + signal.SIGKILL)
        job.communicate()

    def test_stop_and_continue(self):
        def state(pid):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    return file.read().rsplit(")", 1)[1].split()[0]
            except OSError:
                return "gone"  # the shell's copy of itself, which became a sleep and ended
        job = self.start_job("-n", 2, script="READY; while :; do sleep 0.1; done")
        # The launcher's guard is in a session of its own and does not stop.
        pids = [pid for pid in alive(self.mark) if not in_other_session(pid)]
        self.assertGreaterEqual(len(pids), 3)
        job.send_signal(signal.SIGTSTP)
        self.assertTrue(wait_until(lambda: all(state(pid) in ("T", "gone") for pid in pids)))
        job.send_signal(signal.SIGCONT)
        self.assertTrue(wait_until(lambda: all(state(pid) != "T" for pid in pids)))
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(TIMEOUT), 128 + signal.SIGTERM)
        job.communicate()

    # ---- nothing is left behind ----

    def test_grandchildren_are_killed(self):
        # One in the process's group, one in a session of its own; both outlive their parent and hold the output.
        result = self.run_job("-n", 2, "--prefix",
                              script="(exec -a $0 sleep 50) & setsid bash -c 'sleep 50; :' $0 & "
                                     "sleep 0.3; echo done")
        self.assertEqual((result.returncode, sorted(result.stdout.splitlines())), (0, ["[0] done", "[1] done"]))
        self.assertEqual(alive(self.mark), [])

    def test_killed_launcher_leaves_nothing(self):
        job = self.start_job("-n", 3, script="trap '' INT TERM HUP; (exec -a $0 sleep 50) & READY; "
                                             "while :; do sleep 0.1; done")
        self.assertGreaterEqual(len(alive(self.mark)), 7)
        job.kill()
        job.wait()
        self.assertTrue(wait_until(lambda: alive(self.mark) == []), "processes outlive the launcher")
        job.communicate()

    def test_killed_launcher_leaves_no_session(self):
        """A process that has left its group, and whose parent has ended."""
        job = self.start_job("-n", 2, script="setsid bash -c 'sleep 50; :' $0 & sleep 0.3; READY; sleep 50")
        self.assertGreaterEqual(len(alive(self.mark)), 4)
        job.kill()
        job.wait()
        self.assertTrue(wait_until(lambda: alive(self.mark) == []), "processes outlive the launcher")
        job.communicate()

    def test_killed_launcher_within_a_job(self):
        """The guard of the inner job does its work although the outer one's kills what has its key."""
        inner = f"{launcher} -n 1 bash -c 'setsid bash -c \"sleep 50; :\" $0 & sleep 0.3; {self.ready()}; sleep 50; :' $0"
        job = self.start_job("-n", 1, script=inner)
        job.kill()
        job.wait()
        self.assertTrue(wait_until(lambda: alive(self.mark) == []), "processes outlive the launchers")
        job.communicate()

    def test_killed_launcher_spares_others(self):
        """Another process gets the number of one of the job that has ended."""
        result = subprocess.run(["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable,
                                 "-c", REUSE, *self.command("-n", 2, script=f"echo $$ > {self.folder}/pid."
                                 "$DCUDA_PROCESS_INDEX; [ $DCUDA_PROCESS_INDEX = 0 ] && exit; sleep 50"), self.folder],
                                capture_output=True, text=True, timeout=TIMEOUT)
        if result.returncode == 77:
            self.skipTest("the number of the next process cannot be chosen here: " + result.stdout)
        self.assertEqual((result.returncode, result.stdout), (0, "it lives\n"), result.stderr)

    # ---- with the library ----

    @unittest.skipUnless(show_job, "no path of show_job was given")
    def test_processes_meet(self):
        result = subprocess.run([launcher, "-n", "4", show_job], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(result.stdout.splitlines()), [f"dcuda-run {i}/4 {i}/4 met" for i in range(4)])

    @unittest.skipUnless(show_job, "no path of show_job was given")
    def test_processes_meet_alone(self):
        result = subprocess.run([show_job], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.stdout, "none 0/1 0/1 met\n")

    @unittest.skipUnless(show_job, "no path of show_job was given")
    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
    def test_processes_meet_under_mpirun(self):
        def start():
            return subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", show_job],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        jobs = [start(), start()]  # at the same time
        for job in jobs:
            out, err = job.communicate(timeout=TIMEOUT)
            self.assertEqual(job.returncode, 0, err)
            if "openmpi" not in out:
                self.skipTest("mpirun is not Open MPI")
            self.assertEqual(sorted(out.splitlines()), [f"openmpi {i}/3 {i}/3 met" for i in range(3)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
