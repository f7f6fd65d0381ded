#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How programs that break a rule end: with a status that is not 0, a message that names the cause, in time, and with no
process left. Usage: misuse_test.py PATH_OF_dcuda-run PATH_OF_misuse cpu|cuda
"""
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

launcher, misuse, unchecked = (os.path.abspath(path) for path in sys.argv[1:4])
backend = sys.argv[4]

# On GPUs a process begins in 1.4 s and takes turns with others in the driver: few run at a time, and where one number of
# processes shows as much as several it is the only one.
ON_GPUS = backend == "cuda"
BOUND = 20 * (4 if os.environ.get("TSAN_OPTIONS") or ON_GPUS else 1)  # seconds until every case must have ended

COUNTS = (2,) if ON_GPUS else (1, 2)  # of processes
AT_A_TIME = 2 if ON_GPUS else max(1, min(8, os.cpu_count() // 4))  # runs

# What the last rank of the world (R, in process P) does wrong, and the sentence about it. N: ranks, L: the last of them.
TAGS = "there are tags 0 to 255 (DCUDA_TAGS=256)"
NONE = "on a window that is none: it was never created, or create_window failed"
GONE = "on window 1, which does not exist (any more): it was freed, or belongs to another run"
NO_MEMBER = (": the rank is in no such communicator (any more): it was freed, is another rank's, or belongs to "
             "another run")
OTHER_GROUP = " on window 0: the rank is not in the window's communicator (communicator 3)"
STARTED = " on world: a collective operation has been started there (start_allreduce), which must be finished before another one"
IN_WINDOW = "there are ranks 0 to {L} in window 0's communicator"
CONTRACTS = {
    "offset": "put of 0 B at offset 1025 exceeds window 0 of rank 0 (1024 B)",
    "size": "put_notify of 1025 B at offset 0 exceeds window 0 of rank 0 (1024 B)",
    "offset_plus_size": "put of 16 B at offset -8 exceeds window 0 of rank 0 (1024 B)",
    "negative_size": "put of -4 B at offset 8 exceeds window 0 of rank 0 (1024 B)",
    "rank": "put to rank {N}: " + IN_WINDOW,
    "negative_rank": "put_notify to rank -1: " + IN_WINDOW,
    "tag": "put_notify with tag 256: " + TAGS,
    "negative_tag": "put_notify with tag -1: " + TAGS,
    "notify_tag": "notify with tag 256: " + TAGS,
    "notify_rank": "notify to rank {N}: there are ranks 0 to {L} in this communicator",
    "notify_each_rank": "notify to rank {N}: there are ranks 0 to {L} in this communicator",
    "notify_negative_count": "notify for tag 3 with count -2: expected 0 or more",
    "wait_tag": "wait_notifications with tag 1000: " + TAGS,
    "freed_window": "put " + GONE,
    "freed_twice": "free_window " + GONE,
    "no_window": "put_notify " + NONE,
    "flush_no_window": "flush " + NONE,
    "communicator": "notify on communicator 5" + NO_MEMBER,
    "barrier_communicator": "barrier on the communicator none" + NO_MEMBER,
    "freed_communicator": "barrier on communicator 3" + NO_MEMBER,
    "split_of_none": "split on the communicator none" + NO_MEMBER,
    "put_to_another_group": "put" + OTHER_GROUP,
    "window_of_another_group_freed": "free_window" + OTHER_GROUP,
    "group_with_windows_freed": "free_communicator on communicator 3: 1 of its windows are open; call free_window on them "
                                "before",
    "world_freed": "free_communicator on world: it is always there; free those that split has made",
    "started_twice": "start_allreduce" + STARTED,
    "started_array_twice": "start_allreduce" + STARTED,
    "split_while_started": "split" + STARTED,
    "finish_of_nothing": "finish_allreduce on device: none has been started there, or it is finished",
    "root": "broadcast with root -3: the communicator has ranks 0 to {L}",
    "null_window": "create_window over 64 B at a null pointer: give it memory from cudaMalloc (did that fail?), or 0 bytes "
                   "for a rank that receives nothing",
    "negative_count": "wait_notifications for tag 3 with count -2: expected 0 or more",
    "any_of_no_tag": "wait_any over 0 tags from tag 3 on: expected 1 to 253, as " + TAGS,
    "any_of_too_many_tags": "wait_any over 7 tags from tag 250 on: expected 1 to 6, as " + TAGS,
    "some_of_no_tag": "wait_some with tag -1: " + TAGS,
    "pending_tag": "pending_notifications with tag 256: " + TAGS,
    "wait_for_negative_count": "wait_notifications_for for tag 3 with count -1: expected 0 or more",
}

MATCHED = "tags 254 to 255 are matched by source (DCUDA_MATCH_SOURCES=2)"
# The same where the last two tags are matched by source.
MATCHED_CONTRACTS = {
    "matched_tag": f"wait_notifications with tag 255: {MATCHED}, and only wait_notifications_from waits for them",
    "matched_range": f"wait_some with tag 254: {MATCHED}, and only wait_notifications_from waits for them",
    "from_plain_tag": f"wait_notifications_from with tag 253: only {MATCHED}",
    "from_no_member": "wait_notifications_from with source rank {N}: there are ranks 0 to {L} in this communicator",
    "from_no_communicator": "wait_notifications_from on the communicator none" + NO_MEMBER,
    "from_negative_count": "wait_notifications_from for tag 254 with count -1: expected 0 or more",
    "wait_tag": "wait_notifications with tag 1000: " + TAGS,
}


AGE = r" \(\d+\.\d s\)"  # of waits in the report of a deadlock


def running(mark):
    """Process ids whose environment has the mark; zombies have none."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


class MisuseTest(unittest.TestCase):
    def run_case(self, processes, case, *arguments, program=misuse, **variables):
        """Returns the exit status and the output, both streams together."""
        mark = f"DCUDA_TEST_MARK={os.getpid()}-{case}-{processes}-{time.monotonic_ns()}"
        name, value = mark.split("=")
        environment = {**os.environ, name: value, **{key: str(given) for key, given in variables.items()}}
        job = subprocess.Popen([launcher, "-n", str(processes), program, case, *arguments], env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = job.communicate(timeout=BOUND)
        except subprocess.TimeoutExpired:
            job.terminate()
            output, _ = job.communicate()
            self.fail(f"{case} did not end within {BOUND} s:\n{output}")
        self.assertEqual(running(mark), [], "processes were left behind")
        return job.returncode, output

    def expect(self, processes, case, *sentences, arguments=(), status=3, program=misuse, **variables):
        with self.subTest(case=case, processes=processes):
            return self.check(self.run_case(processes, case, *arguments, program=program, **variables), status, sentences)

    def check(self, outcome, status, sentences):
        seen_status, output = outcome
        self.assertEqual(seen_status, status, output)
        for sentence in sentences:
            self.assertIn(sentence, output)
        return output

    def expect_contracts(self, processes, contracts, **variables):
        """The last rank breaks each of them. Several run at a time."""
        ranks = 2 * processes
        who = f"device_fault: rank {ranks - 1} (process {processes - 1}, block 1): "
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            outcomes = {case: pool.submit(self.run_case, processes, case, **variables) for case in contracts}
        for case, sentence in contracts.items():
            with self.subTest(case=case, processes=processes):
                self.check(outcomes[case].result(), 3, [who + sentence.format(N=ranks, L=ranks - 1) + "\n"])

    def expect_lines(self, processes, case, *patterns, **settings):
        """Each pattern matches a whole line."""
        output = self.expect(processes, case, **settings) or ""
        for pattern in patterns:
            with self.subTest(case=case, processes=processes):
                self.assertRegex(output, re.compile(f"^{pattern}$", re.MULTILINE))

    # ---- contracts of device operations ----

    def test_contracts(self):
        for processes in (2,) if ON_GPUS else (1, 2, 3):
            self.expect_contracts(processes, CONTRACTS)

    def test_tags_that_are_matched_by_source(self):
        for processes in COUNTS:
            self.expect_contracts(processes, MATCHED_CONTRACTS, DCUDA_MATCH_SOURCES=2)
        self.expect(1, "from_plain_tag", "with tag 253: no tags are matched by source; set options::match_sources or "
                                         "DCUDA_MATCH_SOURCES, and use the last tags")
        self.expect(1, "from_plain_tag", "257 tags shall be matched by source (DCUDA_MATCH_SOURCES), but there are 256 "
                                         "(DCUDA_TAGS)", DCUDA_MATCH_SOURCES=257)
        self.expect(2, "from_plain_tag", "65536 tags, of which 1 are matched by source (DCUDA_MATCH_SOURCES), take 65540 "
                                         "numbers with 4 ranks: there are 65536", DCUDA_MATCH_SOURCES=1, DCUDA_TAGS=65536)

    def test_finished_twice(self):
        for processes in COUNTS:
            self.expect(processes, "finished_twice",
                        ": finish_allreduce on communicator 3: none has been started there, or it is finished")

    def test_started_and_not_finished(self):
        for processes in COUNTS:
            self.expect(processes, "started_at_the_end", "device_fault: rank 0 (process 0, block 0): finish while an allreduce on "
                                                         "communicator 3 is started and not finished (finish_allreduce)")

    def test_results_in_memory_of_one_thread(self):
        self.expect(1, "some_to_own_memory", "rank 1 (process 0, block 1): wait_some into memory at 0x",
                    ", which is one thread's own: all threads of the rank read the result there, so it must be shared or "
                    "global memory")

    @unittest.skipUnless(backend == "cuda", "on the CPU backend all memory of the process is global")
    def test_window_over_shared_memory(self):
        self.expect(1, "shared_memory", "rank 1 (process 0, block 1): create_window over 64 B at 0x",
                    "which is shared or local memory of the block: other ranks can reach global memory only")

    def test_number_of_tags_is_an_option(self):
        self.expect(1, "tag", "put_notify with tag 256: there are tags 0 to 99 (DCUDA_TAGS=100)",
                    arguments=["--dcuda-tags=100"])

    def test_memory_that_cannot_be_shared(self):
        what = "which is no memory from cudaMalloc; other processes can map nothing else"
        if backend == "cuda":
            what = "managed memory cannot be mapped by other processes"
        self.expect(2, "unusable_memory", "no_path: rank 0 (process 0, block 0): create_window over ", what)
        self.expect(2, "beyond_the_allocation",
                    "rank 0 (process 0, block 0): create_window over 1025 B at offset 0 of an allocation of 1024 B")

    def test_too_many_windows(self):
        full = (r"rank [01] \(process 0, block [01]\): create_window over 8 B: 4 windows exist already, and there may be no "
                r"more; free those that are not used any more \(free_window\), or raise DCUDA_MAX_WINDOWS=4")
        option = r"; with DCUDA_WINDOWS_MAY_FAIL=1 \(options::windows_may_fail\) this is no error, but a window that is false"
        for processes in (1, 3):
            for case in ("too_many_windows", "too_many_windows_of_devices"):
                self.expect_lines(processes, case, "out_of_resources: " + full + option, DCUDA_MAX_WINDOWS=4)
                output = self.expect(processes, case, "has no window", status=0, DCUDA_MAX_WINDOWS=4,
                                     DCUDA_WINDOWS_MAY_FAIL=1) or ""
                self.assertRegex(output, re.compile(f"^dcuda: {full}$", re.MULTILINE))

    # ---- waits that never end ----

    def expect_deadlock(self, processes, case, *patterns, **settings):
        self.expect_lines(processes, case, f"deadlock: deadlock: all {2 * processes} ranks wait and nothing moves",
                          *patterns, **settings)

    def test_missing_notification(self):
        waits = (r"  rank 0 \(process 0, block 0\) in wait_notifications\(tag 7, count 1\): 0 arrived, never notified with "
                 rf"this tag before{AGE}")
        origin = "origin: rank 0 waits for notifications with tag 7; nobody has sent one before; "
        self.expect_deadlock(
            1, "missing_notification", waits,
            rf"  rank 1 \(process 0, block 1\) in the end of the kernel, for rank 0{AGE}",
            origin + "1 other rank waits for it")
        self.expect_deadlock(2, "missing_notification", waits,
                             rf"  3 ranks \(1-3\) in the end of the kernel, for rank 0{AGE}",
                             origin + "3 other ranks wait for it",
                             r"deadlock: deadlock: all 4 ranks wait and nothing moves \(reported by process 0\)")

    def test_ranks_that_wait_for_each_other(self):
        step = "waits for notifications with tag 3, last sent by rank {}"
        for processes in COUNTS:
            ranks = 2 * processes
            self.expect_deadlock(
                processes, "all_wait_first",
                *(rf"  rank {rank} \(.*\) in wait_notifications\(tag 3, count 1\): 0 arrived, last sent by rank "
                  rf"{(rank - 1) % ranks}{AGE}" for rank in range(ranks)),
                "cycle: rank 0 " + ", which ".join(step.format(rank) for rank in reversed(range(ranks))),
                r"  \(taking who sent the last notification with a tag for who should send the next\)")

    def test_any_of_several_tags(self):
        for processes in COUNTS:
            ranks = f"{2 * processes} ranks \\(0-{2 * processes - 1}\\)"
            self.expect_deadlock(processes, "any_that_never_comes",
                                 rf"  {ranks} in wait_any\(tags 3 to 10\): none arrived, senders not known{AGE}",
                                 rf"origin: {ranks} wait for notifications with tags 3 to 10; who sends them is not known")

    def test_one_source_that_sends_nothing(self):
        for processes in COUNTS:
            ranks, here = 2 * processes, 1 if processes == 1 else 0
            step = "waits for notifications with tag 255 from rank {}"
            self.expect_deadlock(
                processes, "from_that_never_comes",
                *(rf"  rank {rank} \(.*\) in wait_notifications_from\(rank {(rank + 1) % ranks}, tag 255, count 2\): "
                  rf"{here} arrived{AGE}" for rank in range(ranks)),
                "cycle: rank 0 " + ", which ".join(step.format((rank + 1) % ranks) for rank in range(ranks)),
                DCUDA_MATCH_SOURCES=1 + processes)
        self.expect(1, "from_that_never_comes", ": wait_notifications_from(rank ", ", tag 255, count 2): 1 arrived within 1 s",
                    DCUDA_MATCH_SOURCES=2, DCUDA_WAIT_TIMEOUT=1, DCUDA_WATCHDOG_INTERVAL=0)

    def test_sender_that_stops_early(self):
        for processes in COUNTS:
            last = 2 * processes - 1
            others = "1 other rank waits for it" if last == 1 else f"{last} other ranks wait for it"
            self.expect_deadlock(
                processes, "stops_early",
                rf"  rank 0 \(.*\) in wait_notifications\(tag 9, count 1\): 0 arrived, last sent by rank {last}{AGE}",
                f"origin: rank 0 waits for notifications with tag 9, last sent by rank {last}, which has reached the end "
                f"of the kernel; {others}")

    def test_senders_that_are_not_known(self):
        waits = rf"  {{}} in wait_notifications\(tag 3, count 1\): 0 arrived, senders not known{AGE}"
        origin = "origin: {} for notifications with tag 3; who sends them is not known{}"
        # Without mailboxes, and where the rank has forgotten.
        self.expect_lines(1, "all_wait_first", waits.format(r"2 ranks \(0-1\)"),
                          origin.format(r"2 ranks \(0-1\) wait", ""), DCUDA_MAILBOX_PACKETS=0)
        self.expect_lines(1, "other_tags_between", waits.format(r"rank 0 \(process 0, block 0\)"),
                          origin.format("rank 0 waits", "; 1 other rank waits for it"))

    def test_ranks_in_different_barriers(self):
        for processes in COUNTS:
            self.expect_deadlock(
                processes, "different_barriers",
                rf"  rank 0 \(process 0, block 0\) in barrier\(device\), for rank 1{AGE}",
                rf"  .* in barrier\(world\), for (rank 0|2 ranks \(0, 2\)){AGE}",
                r"cycle: rank 0 waits in barrier\(device\) for rank 1, which waits in barrier\(world\) for rank 0")

    def test_members_in_different_collectives(self):
        meets = (r"device_fault: rank \d \(.*\): {} on {} meets {} of rank \d: all members must make the same collective "
                 r"calls, with the same type, operator, root and number of values")
        for processes in COUNTS:
            self.expect_lines(processes, "different_collectives",
                              meets.format("(allreduce|broadcast)", "communicator 3", "(allreduce|broadcast)"))
            self.expect_lines(processes, "different_operators", meets.format("allreduce", "world", "a different one"))
            self.expect_lines(processes, "different_counts", meets.format("all_gather", "world", "a different one"))
            self.expect_lines(processes, "different_count_of_none", meets.format("allreduce", "world", "a different one"))
            self.expect_lines(
                processes, "unexpected_count", r"device_fault: rank 0 \(.*\): gather on world: rank 1 of it brings 3 elements, "
                "where 2 are expected from it")
            self.expect_lines(
                processes, "gather_root", r"device_fault: rank \d \(.*\): gather with root 7: the communicator has ranks 0 to 1")

    def test_barriers_beside_a_split(self):
        for processes in COUNTS:
            self.expect_deadlock(
                processes, "barriers_beside_split", rf"  .* in split on world, for rank 1{AGE}",
                rf"  rank 1 \(.*\) in barrier\(world\), for .*{AGE}",
                r"cycle: rank \d waits in split on world for rank 1, which waits in barrier\(world\) for rank \d")

    def test_member_that_does_not_come(self):
        for processes in COUNTS:
            self.expect_deadlock(
                processes, "one_reduces_too_little", rf"  .* in allreduce on communicator 3, for (rank|other).*{AGE}",
                r"origin: .* waits? in allreduce on communicator 3 for rank 0, which has reached the end of the kernel.*")
        self.expect_lines(
            1, "one_reduces_too_little",
            r"wait_timeout: rank 1 \(.*\): allreduce on communicator 3: rank 0 did not come within 1 s \(wait timeout\)",
            DCUDA_WAIT_TIMEOUT=1, DCUDA_WATCHDOG_INTERVAL=0)

    def test_memory_of_collectives(self):
        for processes in COUNTS:
            self.expect_lines(
                processes, "overlap", r"device_fault: rank \d \(.*\): allreduce of 8 B into memory at 0x[0-9a-f]+, which "
                r"overlaps its input: both must be the same, or apart")
            self.expect_lines(
                processes, "move_overlap", r"device_fault: rank \d \(.*\): all_to_all of 8 B into memory at 0x[0-9a-f]+, which "
                r"overlaps its input: both must be the same, or apart")
            self.expect_lines(
                processes, "own_memory", r"device_fault: rank \d \(.*\): allreduce into memory at 0x[0-9a-f]+, which is one "
                r"thread's own: all threads of the rank read the result there, so it must be shared or global memory")

    def test_one_rank_in_create_window(self):
        for processes in COUNTS:
            self.expect_deadlock(
                processes, "one_creates_a_window",
                rf"  rank 0 \(process 0, block 0\) in create_window, for rank 1{AGE}",
                "origin: rank 0 waits in create_window for rank 1, which has reached the end of the kernel; .*")

    def test_one_rank_not_in_create_window_of_a_group(self):
        self.expect_deadlock(
            3, "one_of_a_group_creates_no_window",
            rf"  2 ranks \(1, 3\) in create_window on communicator 3, for rank 5{AGE}",
            r"origin: 2 ranks \(1, 3\) wait in create_window on communicator 3 for rank 5, which has reached the end of the "
            r"kernel; 4 other ranks wait for them")

    def test_wait_timeout(self):
        sentence = ("wait_timeout: rank 0 (process 0, block 0): wait_notifications(tag 42, count 3): 0 arrived within "
                    "1 s (wait timeout)")
        for processes in COUNTS:
            self.expect(processes, "waits_for_ever", sentence, DCUDA_WAIT_TIMEOUT=1, DCUDA_WATCHDOG_INTERVAL=0)
        self.expect(1, "waits_for_ever", sentence, arguments=["--dcuda-wait-timeout=1"], DCUDA_WATCHDOG_INTERVAL=0)

    def test_timeouts_of_other_waits(self):
        limits = dict(DCUDA_WAIT_TIMEOUT=1, DCUDA_WATCHDOG_INTERVAL=0)
        for processes in COUNTS:
            self.expect_lines(
                processes, "different_barriers",
                r"wait_timeout: rank \d \(.*\): barrier: not all ranks came to barrier\((device|world)\) within 1 s "
                r"\(wait timeout\)", **limits)
            self.expect_lines(
                processes, "one_creates_a_window",
                r"wait_timeout: rank 0 \(.*\): create_window: not all ranks came to create_window within 1 s \(wait timeout\)",
                **limits)
        self.expect_lines(
            1, "busy_target",
            r"wait_timeout: rank 0 \(.*\): flush: rank 1 did not take what this rank has put there within 1 s \(wait timeout\)",
            **limits)
        self.expect(1, "busy_target", status=0)  # rank 1 moves, so the watchdog says nothing

    def test_fewer_tags_than_a_rank_keeps_near(self):
        output = self.expect(1, "stops_early", arguments=["--dcuda-tags=8"]) or ""
        self.assertRegex(output, r"(notify|wait_notifications) with tag 9: there are tags 0 to 7 \(DCUDA_TAGS=8\)")
        few = dict(arguments=["--dcuda-tags=8"], DCUDA_MATCH_SOURCES=1)
        self.expect(1, "negative_of_few_tags", "wait_notifications with tag -1: there are tags 0 to 7 (DCUDA_TAGS=8)", **few)
        self.expect(1, "matched_of_few_tags", "wait_notifications with tag 7: tags 7 to 7 are matched by source "
                                              "(DCUDA_MATCH_SOURCES=1)", **few)

    def test_without_contract_checks(self):
        """DCUDA_CHECKS=0 leaves out the checks of arguments; the end of a run that fails is none of these."""
        self.expect(1, "waits_for_ever", "0 arrived within 1 s (wait timeout)", program=unchecked, DCUDA_WAIT_TIMEOUT=1,
                    DCUDA_WATCHDOG_INTERVAL=0)
        self.expect(2, "all_wait_first", "deadlock: all 4 ranks wait and nothing moves", program=unchecked)
        self.expect(2, "killed", "was killed by signal 9 (SIGKILL)", program=unchecked, status=128 + 9)

    # ---- processes and kernels that end early, or not at all ----

    def test_killed_process(self):
        for processes in (2, 4):
            output = self.expect(processes, "killed", "was killed by signal 9 (SIGKILL)", status=128 + 9)
            if output:
                lost = re.findall(r"^process_lost: process 1 \(pid \d+\) ended unexpectedly(?:; here wait)?$", output,
                                  re.MULTILINE)
                self.assertEqual(len(lost), processes - 1, output)

    def test_process_that_ends_before_run(self):
        self.expect_lines(2, "ends_before_run", r"process_lost: process 1 .*")

    # ---- collective calls of hosts ----

    def test_host_collectives_without_a_process(self):
        self.expect_lines(3, "ends_before_gather", r"process_lost: process 1 \(pid \d+\) finished while the others wait for it in "
                          r"runtime::gather of values of 4 B to process 0")
        for case in ("killed_before_broadcast", "killed_after_gather"):
            output = self.expect(3, case, "was killed by signal 9 (SIGKILL)", status=128 + 9)
            self.assertRegex(output or "", re.compile(r"^process_lost: process 1 \(pid \d+\) ended unexpectedly", re.MULTILINE))

    def test_host_collectives_that_differ(self):
        place = r"process (\d) \(pid \d+\) is in {} while process (\d) \(pid \d+\) is in {}: all processes must make the same "
        for case, first, second in (
                ("different_sizes", "runtime::broadcast of 8 B from process 0", "runtime::broadcast of 16 B from process 0"),
                ("different_roots", "runtime::gather of values of 4 B to process 0",
                 "runtime::gather of values of 4 B to process 1"),
                ("barrier_against_run", "runtime::barrier", "agreeing on the number of ranks")):
            output = self.expect(3, case, "invalid_argument: ") or ""
            self.assertRegex(output, f"{place.format(first, second)}|{place.format(second, first)}")

    def test_host_collective_after_a_failure(self):
        self.expect(1, "gather_after_failure",
                    "invalid_argument: this runtime's last run failed; construct a new one in a new job",
                    DCUDA_WAIT_TIMEOUT=1)

    # ---- threads of a block ----

    @unittest.skipUnless(backend == "cpu", "on a GPU only their hang is seen")
    def test_operation_of_some_threads(self):
        first, others = "thread (0,0,0) is in {}", "7 threads (1,0,0) to (7,0,0) are in {}"
        cases = {
            "one_thread_puts": ("put_notify", first.format("put_notify"), others.format("wait_notifications")),
            "one_thread_notifies_twice": ("notify", first.format("notify"), others.format("wait_notifications")),
            "all_but_one_wait": ("finish (the end of the kernel)", first.format("finish (the end of the kernel)"),
                                 others.format("wait_notifications")),
            "some_in_syncthreads": ("barrier", "6 threads (0,0,0) to (5,0,0) are in barrier",
                                    "2 threads (6,0,0) to (7,0,0) are in __syncthreads"),
        }
        for case, (called, *places) in cases.items():
            for processes in COUNTS:
                self.expect(processes, case, "kernel_failure: process 0: ", "rank 1 (block 1): only some threads of the block have "
                            f"called {called}: {', '.join(places)}. All threads of a block must call every operation: take it "
                            "out of the branch around it, such as if (threadIdx.x == 0)")

    @unittest.skipUnless(backend == "cpu", "a GPU kernel cannot throw")
    def test_kernel_that_throws(self):
        for processes in COUNTS:
            self.expect(processes, "throwing", "kernel_failure: process ",
                        "thread (0,0,0) left the kernel with an exception: rank 1 had enough")

    def test_kernel_that_does_not_end(self):
        for processes in COUNTS:
            self.expect(processes, "deaf", "rank 0 (process 0, block 0): notify to rank -1: there are ranks 0 to ",
                        "dcuda: process 0: the kernel did not end within 1 s after that (a rank is in a loop without "
                        "dCUDA calls, or only some of its threads have made a call?); ending the process", status=1, DCUDA_ABORT_GRACE=1)

    # ---- notifications that nobody waits for ----

    def test_forgotten_waits(self):
        for variables in ({}, {"DCUDA_MAILBOX_PACKETS": 0}, {"DCUDA_COUNTER_START": 2**32 - 1}):
            for processes in COUNTS:
                who = (r"rank {0} \(process {1}, block 0\) has not waited for 1 notification with tag 7 and for those with "
                       r"1 other tag; of this process 1 other rank likewise \(DCUDA_UNCONSUMED=error")
                with self.subTest(processes=processes, **variables):
                    status, output = self.run_case(processes, "forgotten_waits", **variables)
                    self.assertEqual(status, 0, output)
                    self.assertEqual(output.count("has not waited"), processes, output)  # of the second run alone
                    for process in range(processes):
                        self.assertRegex(output, f"dcuda: process {process}: " + who.format(2 * process, process))
                    self.assertNotIn("has not waited",
                                     self.run_case(processes, "forgotten_waits", DCUDA_UNCONSUMED="ignore", **variables)[1])
                    self.expect(processes, "forgotten_waits", "device_fault: rank ", "has not waited for 1 notification with tag 7",
                                DCUDA_UNCONSUMED="error", **variables)

    # ---- signals ----

    def start_and_wait(self, processes, **variables):
        """A job of which rank 0 works and all others wait for it, and the output so far."""
        job = subprocess.Popen([launcher, "-n", str(processes), misuse, "one_works"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env={**os.environ, **variables})
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.read_until(job, r"works")
        # Ranks that start later may not wait yet; process 0 is the one that reports in the end.
        return job, self.read_until(job, r"rank 1 \(process 0, .*in wait_notifications\(tag 5, count 1\)", asks=True)

    def read_until(self, job, pattern, asks=False):
        """The output up to a pattern. `asks`: for a report, again and again."""
        output, end = "", time.monotonic() + BOUND
        while not re.search(pattern, output):
            left = end - time.monotonic()
            if left <= 0:
                self.fail(f"no {pattern!r} in:\n{output}")
            if asks:
                job.send_signal(signal.SIGQUIT)
            if not select.select([job.stdout], [], [], 0.5 if asks else left)[0]:
                continue
            more = os.read(job.stdout.fileno(), 65536)
            self.assertTrue(more, f"ended without {pattern!r}:\n{output}")
            output += more.decode()
        return output

    def test_signals_that_end_a_run_keep_what_was_profiled(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name), tempfile.TemporaryDirectory() as folder:
                job, _ = self.start_and_wait(2, DCUDA_TRACE=f"{folder}/trace.json", DCUDA_STATS=f"{folder}/stats.json")
                job.send_signal(number)
                output = self.read_until(job, r"dcuda-run: .*exited with code 3")
                self.assertEqual(job.wait(BOUND), 3)
                self.assertRegex(output, rf"interrupted: process \d got {number.name}, which ends the run\nwhat its ranks do\n")
                self.assertRegex(output, r"in wait_notifications\(tag 5, count 1\)")
                with open(f"{folder}/trace.json", encoding="utf-8") as file:
                    self.assertIn("wait_notifications", file.read())
                with open(f"{folder}/stats.json", encoding="utf-8") as file:
                    self.assertTrue(json.load(file))

    def test_report_on_request(self):
        job, _ = self.start_and_wait(1)
        for _ in range(2):  # the run goes on
            job.send_signal(signal.SIGQUIT)
            self.read_until(job, r"dcuda: process 0: what its ranks do\n"
                                 r"  rank 0 \(process 0, block 0\) running\n"
                                 r"  rank 1 \(process 0, block 1\) in wait_notifications\(tag 5, count 1\)")
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(BOUND), 3)

    def test_run_after_a_failure(self):
        self.expect(1, "again_after_failure",
                    "invalid_argument: this runtime's last run failed; construct a new one in a new job",
                    DCUDA_WAIT_TIMEOUT=1)

    # ---- what was asked for ----

    def test_disagreement(self):
        self.expect(2, "other_threads", "invalid_argument: processes 0 and 1 disagree on the launch: ranks per device "
                    "2 / 2, per block 1 / 1, threads 8x1x1 / 16x1x1, shared bytes 0 / 0, tags 256 / 256, matched by source 0 / 0, windows 64 / 64, packets "
                    "of a queue -1 / -1, queues of a device -1 / -1 (-1: by its memory), small puts up to "
                    f"{'-1 / -1' if ON_GPUS else '4096 / 4096'} B, large arrays from 8192 / 8192 B, leaders from 577 / 577 members of a device, wait timeout 0 / 0 ns")

    def test_too_many_ranks(self):
        self.expect(1, "nothing", "out_of_resources: 1048576 ranks of 8 threads were asked for, but at most ",
                    " are co-resident on process 0's device: ", arguments=["--dcuda-ranks=1048576"])

    def test_no_path(self):
        self.expect(2, "nothing", "no_path: there is no transport pigeon here (libdcuda_pigeon.so in ",
                    DCUDA_DISABLE_PEER=1, DCUDA_TRANSPORT="pigeon")
        self.expect(2, "nothing", "invalid_argument: DCUDA_TRANSPORT=Ofi tcp: expected auto, shm, ofi, mpi or verbs",
                    DCUDA_DISABLE_PEER=1, DCUDA_TRANSPORT="Ofi tcp")
        self.expect(1, "nothing", "3 ranks", arguments=["--dcuda-ranks=3"], status=0, DCUDA_DISABLE_PEER=1)

    def test_malformed_variables(self):
        for variable, value, expected in [
            ("DCUDA_RANKS_PER_DEVICE", "many", "an integer from 1 to 1048576"),
            ("DCUDA_RANKS_PER_DEVICE", "0", "an integer from 1 to 1048576"),
            ("DCUDA_TAGS", "65537", "an integer from 1 to 65536"),
            ("DCUDA_TAGS", "12x", "an integer from 1 to 65536"),
            ("DCUDA_MAX_WINDOWS", "-1", "an integer from 1 to 32768"),
            ("DCUDA_WAIT_TIMEOUT", "soon", "a number of seconds, 0 or more"),
            ("DCUDA_WAIT_TIMEOUT", "-2", "a number of seconds, 0 or more"),
            ("DCUDA_ABORT_GRACE", "1e+300", "at most 1000000000 seconds"),
            ("DCUDA_WATCHDOG_INTERVAL", "10000000000", "at most 1000000000 seconds"),
            ("DCUDA_WATCHDOG_INTERVAL", "nan", "a number of seconds, 0 or more"),
            ("DCUDA_ABORT_GRACE", "", None),
            ("DCUDA_DISABLE_PEER", "perhaps", "1, true, yes, on, 0, false, no or off"),
            ("DCUDA_COUNTER_START", "4294967296", "an integer from 0 to 4294967295"),
        ]:
            if expected is None:  # an empty variable is none
                self.expect(1, "nothing", status=0, **{variable: value})
            else:
                self.expect(1, "nothing", f"invalid_argument: {variable}={value}: expected {expected}",
                            **{variable: value})

    def test_unknown_transport(self):
        self.expect(2, "nothing", "dcuda: DCUDA_TRANSPORT=foo:tcp: there is no such transport here; this job needs none\n",
                    status=0, DCUDA_TRANSPORT="foo:tcp")

    def test_unknown_variables(self):
        output = self.expect(2, "nothing", "dcuda: the environment variable DCUDA_RANK_PER_DEVICE is none of dCUDA's; is "
                             "DCUDA_RANKS_PER_DEVICE meant?\n", status=0, DCUDA_RANK_PER_DEVICE=3) or ""
        self.assertEqual(output.count("none of dCUDA's"), 1)
        self.expect(1, "nothing", "DCUDA_SOMETHING_QUITE_OTHER is none of dCUDA's; docs/guide/running.md has all\n", status=0,
                    DCUDA_SOMETHING_QUITE_OTHER=1)

    def test_all_variables_that_are_read_are_known(self):
        """Whoever adds a variable adds it to the list, or users are warned of it."""
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src")
        read = set()
        for folder, _, names in os.walk(source):
            for name in names:
                with open(os.path.join(folder, name)) as file:
                    read.update(re.findall(r'(?:env_\w+|getenv|seconds|integer)\((?:[^()"]*|"\w+", [^()"]*)"(DCUDA_[A-Z_]+)"',
                                           file.read()))
        self.assertIn("DCUDA_TAGS", read)
        self.assertIn("DCUDA_WAIT_TIMEOUT", read)
        with self.subTest(read=sorted(read)):
            values = {**{name: "" for name in read}, "DCUDA_STACK_BYTES": "65536"}  # an empty one is none, but for this
            output = self.expect(1, "nothing", status=0, **values) or ""
            self.assertNotIn("none of dCUDA's", output)

    def test_malformed_arguments(self):
        expected = "expected --dcuda-ranks=N, --dcuda-tags=N, --dcuda-windows=N or --dcuda-wait-timeout=SECONDS"
        for argument in ("--dcuda-rank=4", "--dcuda-ranks", "--dcuda-"):
            self.expect(1, "nothing", f"invalid_argument: {argument}: {expected}", arguments=[argument])
        self.expect(1, "nothing", "invalid_argument: DCUDA_TAGS=none: expected an integer from 1 to 65536",
                    arguments=["--dcuda-tags=none"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
