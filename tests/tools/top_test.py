#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""dcuda-top beside programs that run. Usage: top_test.py PATH_OF_dcuda-run PATH_OF_dcuda-top PATH_OF_06_rod
"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

launcher, top, rod = map(os.path.abspath, sys.argv[1:4])

BOUND = 20 * (4 if os.environ.get("DCUDA_TEST_SANITIZER") else 1)  # seconds until anything must have happened
QUIET = {"DCUDA_WATCHDOG_INTERVAL": "0"}  # programs that hang go on hanging


def run_top(*arguments, wait=BOUND / 2):
    return subprocess.run([top, "--wait", str(wait), *map(str, arguments)], capture_output=True, text=True, timeout=BOUND)


def name_of(pid):
    return f"\0dcuda-top/{os.geteuid()}/{pid}"


def program_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return None


def wait_for(see, is_right):
    """What see() returns once that is right, or at last."""
    end = time.monotonic() + BOUND
    seen = see()
    while not is_right(seen) and time.monotonic() < end:
        time.sleep(0.05)
        seen = see()
    return seen


class Job:
    def __init__(self, processes, *arguments, **variables):
        self.job = subprocess.Popen([launcher, "-n", str(processes), rod, *arguments],
                                    env={**os.environ, "DCUDA_RANKS_PER_DEVICE": "4", **variables},
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.terminate()
        self.job.communicate(timeout=BOUND)

    def pids(self):
        """Of its processes; dcuda-run has another child that is none. None, once dcuda-run has ended."""
        try:
            with open(f"/proc/{self.job.pid}/task/{self.job.pid}/children") as file:
                return [pid for pid in map(int, file.read().split()) if program_of(pid) == "06_rod"]
        except (FileNotFoundError, ProcessLookupError):
            return []

    def seen(self, ready):
        """The job as JSON, once ready(job) is true."""
        end = time.monotonic() + BOUND
        while time.monotonic() < end:
            pids = self.pids()
            answer = json.loads(run_top("--json", "--once", *pids).stdout) if pids else {"jobs": []}
            if answer["jobs"] and ready(answer["jobs"][0]):
                return answer["jobs"][0]
        raise AssertionError(f"not seen within {BOUND} s: {answer}")

    def hanging(self):
        """Every rank has waited for more than a second."""
        return self.seen(lambda job: len(job["seen"]) == job["processes"]
                         and all(rank.get("seconds", 0) > 1 for rank in job["ranks"]))


class TopTest(unittest.TestCase):
    def test_a_job_that_hangs(self):
        with Job(2, "hasty", **QUIET) as job:
            seen = job.hanging()
            self.assertEqual((seen["program"], seen["processes"], seen["ranks_per_device"]), ("06_rod", 2, 4))
            self.assertEqual([process["pid"] for process in seen["seen"]], job.pids())
            self.assertEqual([rank["rank"] for rank in seen["ranks"]], list(range(8)))
            self.assertEqual([process["rates"] for process in seen["seen"]], ["not counted"] * 2)
            # The rank that has left the loop is in free_window; its neighbours know who used to send.
            gone = [rank["rank"] for rank in seen["ranks"] if "free_window" in rank["waits"]]
            self.assertTrue(gone)
            for rank in seen["ranks"]:
                if rank["rank"] + 1 in gone and rank["rank"] not in gone:
                    self.assertEqual((rank["state"], rank["count"], rank["arrived"]), ("waiting", 1, 0))
                    self.assertEqual(rank["for"], [rank["rank"] + (1 if rank["tag"] == 2 else -1)])
            self.assertTrue(any(re.fullmatch(r"(cycle|origin): rank \d+ waits .*free_window.*", line)
                                for line in seen["conclusion"]), seen["conclusion"])
            # For people.
            text = run_top("--once", "--job", seen["job"]).stdout
            self.assertRegex(text, rf"job {seen['job']}: 06_rod on \S+, 2 of 2 processes\n  process 0 \(pid \d+, .*\), ranks "
                                   r"0-3: 0 running, 4 waiting, 0 done; run 1 for \d+\.\d s\n")
            self.assertIn(seen["conclusion"][0], text)
            self.assertIn("\n  rates of messages: start the program with DCUDA_STATS=1 to see them\n", text)
            self.assertEqual(len(re.findall(r"^  rank \d+ \(process \d, block \d\) in ", run_top("--ranks", *job.pids()).stdout,
                                            re.MULTILINE)), 8)
            self.assertEqual(run_top("--once", "--job", "nonsuch").returncode, 1)

    def test_rates_of_messages(self):
        with Job(2, "hasty", DCUDA_STATS=os.devnull, **QUIET) as job:
            seen = job.hanging()
            for process in seen["seen"]:
                rates = process["rates"]
                self.assertEqual(set(rates), {"local", "peer"})  # to the neighbours here and in the other process
                self.assertGreater(rates["local"]["messages_per_second"], rates["peer"]["messages_per_second"])
                for rate in rates.values():  # a cell in each message
                    self.assertAlmostEqual(rate["bytes_per_second"], 4 * rate["messages_per_second"])
            self.assertRegex(run_top("--once", *job.pids()).stdout,
                             r"\n    local \S+ k?M? ?messages/s, \S+ [kM]?B/s; peer \S+ k? ?messages/s, \S+ k?B/s\n")
            # Nothing moves any more: from one poll to the next.
            watcher = subprocess.Popen([top, "--json", "--interval", "0.3", "--wait", str(BOUND / 2), *map(str, job.pids())],
                                       text=True, stdout=subprocess.PIPE)
            polls = [json.loads(watcher.stdout.readline()) for _ in range(2)]
            watcher.kill()
            watcher.communicate()
            self.assertEqual(polls[1]["jobs"][0]["seen"][0]["rates"]["local"],
                             {"messages_per_second": 0, "bytes_per_second": 0})

    def test_a_process_that_does_not_answer(self):
        with Job(2, "hasty", **QUIET) as job:
            job.hanging()
            stopped, other = job.pids()
            os.kill(stopped, signal.SIGSTOP)
            try:
                # On a busy machine the other one, too, may need more than one poll.
                text = wait_for(lambda: run_top("--once", stopped, other, wait=2).stdout,
                                lambda text: "1 of 2 processes" in text)
            finally:
                os.kill(stopped, signal.SIGCONT)
            self.assertIn("1 of 2 processes", text)
            self.assertIn(f"pid {stopped} (06_rod): it does not answer: no run goes on there, or it is stopped", text)
            job.hanging()

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_another_user(self):
        with Job(1, "hasty", **QUIET) as job:
            job.hanging()
            name = name_of(job.pids()[0])
            for user, gets_an_answer in [(0, True), (65534, False)]:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    os.seteuid(user)
                    try:
                        connection.connect(name)
                    finally:
                        os.seteuid(0)
                    self.assertEqual(connection.recv(100) != b"", gets_an_answer)

    def test_switched_off(self):
        with Job(1, "hasty", DCUDA_TOP="0", **QUIET) as job:
            time.sleep(1)
            found = run_top("--once", job.pids()[0])
            self.assertEqual(found.returncode, 1)
            self.assertIn("no such process lets itself be watched", found.stdout)

    def test_the_program_does_not_notice(self):
        """Five of them at a time, one that is killed, garbage, and connections that nobody reads."""
        with Job(2, "hasty", **QUIET) as job:
            job.hanging()
            watchers = [subprocess.Popen([top, "--interval", "0.1", "--json"], stdout=subprocess.DEVNULL)
                        for _ in range(5)]
            idle = []
            for pid in job.pids():
                for sends in [b"", b"GET / HTTP/1.1\r\n\r\n" * 100] * 10:
                    idle.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    idle[-1].setblocking(False)
                    # It has answered already, or as many wait for it as it lets wait.
                    with contextlib.suppress(ConnectionError, BlockingIOError):
                        idle[-1].connect(name_of(pid))
                        idle[-1].sendall(sends)
            time.sleep(0.3)
            watchers[0].kill()
            job.hanging()
            for watcher in watchers:
                self.assertIsNone(watcher.poll() if watcher is not watchers[0] else None)
                watcher.kill()
                watcher.wait()
            for each in idle:
                each.close()
            pid = job.pids()[0]
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            job.hanging()
            # It may be a moment before it closes the last connection.
            self.assertLessEqual(wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")), lambda count: count <= descriptors),
                                 descriptors)
            self.assertIsNone(job.job.poll())

    def test_programs_end_as_ever_when_watched(self):
        watcher = subprocess.Popen([top, "--interval", "0.1"], stdout=subprocess.PIPE, text=True)
        with Job(2) as job:
            output, _ = job.job.communicate(timeout=BOUND)
        watcher.kill()
        text, _ = watcher.communicate()
        self.assertEqual((job.job.returncode, output.count("correct")), (0, 1), output)
        self.assertIn("06_rod", text)

    def test_another_process_has_the_name(self):
        """Anybody can take a name in the abstract namespace; what it says must not be believed, nor steer the terminal."""
        pid = os.getpid()
        for user, answer, problem in [
            (os.geteuid(), b'{"dcuda_top":3,"ver\x1b[2Jsion"', "its answer cannot be read: "),
            (os.geteuid(), b'{"dcuda_top":99,"version":"9.9"}', "it is of version 9.9, this dcuda-top of "),
            (os.geteuid(), b"", "it closed the connection"),
            (os.geteuid(), json.dumps({
                "dcuda_top": 6, "version": "", "backend": "", "program": "", "host": "", "device": "", "job": "",
                "pid": 1, "process": 0, "processes": 1 << 30, "processes_here": 1, "ranks_per_device": 1 << 30,
                "ranks_per_block": 1, "run": 1, "run_seconds": 1, "waits": [], "sent": None}).encode(),
             "its numbers contradict each other"),
            (os.geteuid(), json.dumps({
                "dcuda_top": 6, "version": "", "backend": "", "program": "", "host": "", "device": "", "job": "",
                "pid": 1, "process": 0, "processes": 1, "processes_here": 1, "ranks_per_device": 1, "ranks_per_block": 0,
                "run": 1, "run_seconds": 1, "waits": [[0, 0, 0, 0, 0, 0, 0, 1]], "sent": None}).encode(),
             "its numbers contradict each other"),
        ]:
            with self.subTest(problem=problem), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(f"\0dcuda-top/{user}/{pid}")
                listener.listen()
                reader = subprocess.Popen([top, "--wait", str(BOUND), "--once", str(pid)], stdout=subprocess.PIPE, text=True)
                connection, _ = listener.accept()
                connection.sendall(answer)
                connection.close()
                text, _ = reader.communicate(timeout=BOUND)
                self.assertIn(problem, text)
                self.assertNotIn("\x1b", text)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"\0dcuda-top/{os.geteuid()}/1")
            listener.listen()
            self.assertIn("another process has taken its name", run_top("--once", 1).stdout)

    def test_names_do_not_steer_the_terminal(self):
        """Control characters of ASCII and those of Unicode, which terminals take for the begin of a sequence, and bytes
        that are no text."""
        snapshot = {"dcuda_top": 6, "version": "1", "backend": "cpu", "program": "Zürich \x1b[31m\x9b31m\u202e", "host": "a\x85b",
                    "device": "\x80\x7f", "job": "\x9d0;title\x9c", "pid": 1, "process": 0, "processes": 1, "processes_here": 1,
                    "ranks_per_device": 1, "ranks_per_block": 1, "run": 1, "run_seconds": 1,
                    "waits": [[0, 0, 0, 0, 0, 0, 0, 1]], "sent": None}
        raw = json.dumps(snapshot).encode()
        for answer, is_json in ((raw, True), (json.dumps(snapshot, ensure_ascii=False).encode(), True),
                                (raw.replace(b"a\\u0085b", b"a\xc2"), False)):
            with self.subTest(answer=answer), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, \
                    open("/proc/self/comm", "r+b", buffering=0) as name:
                old = name.read()
                name.write(b"\xc2\x9b31m\xff\xed\xa0\x80\xc0\xaf")
                self.addCleanup(lambda: open("/proc/self/comm", "wb").write(old))
                listener.bind(name_of(os.getpid()))
                listener.listen()
                for arguments in ([], ["--json"]):
                    reader = subprocess.Popen([top, "--wait", str(BOUND), "--once", *arguments, str(os.getpid())],
                                              stdout=subprocess.PIPE)
                    connection, _ = listener.accept()
                    connection.sendall(answer)
                    connection.close()
                    shown = reader.communicate(timeout=BOUND)[0].decode()  # it is UTF-8, whatever came
                    self.assertFalse([c for c in shown if c != "\n" and (c < " " or "\x7f" <= c < "\xa0" or c == "\u202e")], shown)
                    self.assertEqual("Zürich " in shown, is_json)

    def test_wrong_arguments(self):
        for arguments in (["--interval", "0"], ["abc"], ["--what"]):
            self.assertGreater(run_top(*arguments).returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
