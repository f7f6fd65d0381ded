#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the mailbox protocol's model with spin, both ways: in every configuration spin visits all states and finds
nothing wrong; and it finds what is wrong once a rule of the protocol is left out.

    check_model.py [NAME...]        those configurations and mutations alone

Ends with 77 (skipped) without spin or gcc. docs/design/mailbox.md says what the model covers.
"""
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

MODEL = Path(__file__).with_name("mailbox.pml")
PAIR, BOTH_WAYS, TWO_SOURCES, TWO_TARGETS, SOURCES_APART = 0b10, 0b110, 0b100100, 0b110, 0b10000010  # CONNECTIONS, of 2, 2 and 3 times 3 ranks

# Small, so that all takes two to three minutes with compiling. START: sequence numbers wrap around within a run.
BASE = dict(RANKS=2, PER_DEVICE=2, CONNECTIONS=PAIR, QUEUES=1, HEADERS=2, RING=2, MODULUS=8, START=6, CREDITS=4, OPERATIONS=2,
            PUTS=1, MASKS=1, DIRECT=1, NOTIFY=1, FLUSH=0, WAITS=0, BARRIERS=0, EVICT=0)
CONFIGURATIONS = {
    # One source: payload of 1 or 2 packets, by message or, where it does not fit, directly.
    "pair": dict(OPERATIONS=3, MASKS=2),
    # Flushes among all that; a flush waits for what went by message.
    "flushes": dict(OPERATIONS=3, MASKS=2, FLUSH=1),
    # Batches of up to 3 messages.
    "batches": dict(OPERATIONS=4, HEADERS=3, RING=3, FLUSH=1),
    # 2 packets of payload never fit, 1 does now and then: most go directly.
    "narrow": dict(OPERATIONS=4, RING=1, MASKS=2, DIRECT=0),
    # Notifications that find the queue full are counted, and those after them may come by message again.
    "full": dict(OPERATIONS=5, HEADERS=1, RING=1, DIRECT=0),
    # So many notifications after a put that positions have gone half around.
    "long": dict(OPERATIONS=5, MODULUS=4, START=3),
    # Two ranks put to each other: both queues may be full.
    "both_ways": dict(CONNECTIONS=BOTH_WAYS, RING=1, NOTIFY=0),
    # More sources than queues, and as many.
    "one_queue": dict(RANKS=3, PER_DEVICE=3, CONNECTIONS=TWO_SOURCES, DIRECT=0, NOTIFY=0),
    "two_queues": dict(RANKS=3, PER_DEVICE=3, CONNECTIONS=TWO_SOURCES, QUEUES=2, OPERATIONS=1, NOTIFY=0),
    # The same, and the target meets one of the sources in barriers of their device.
    "held_up": dict(RANKS=3, CONNECTIONS=SOURCES_APART, QUEUES=2, OPERATIONS=1, NOTIFY=0, BARRIERS=1),
    # One of two queues is far: its messages are announced. Targets wait for them; and some are counted.
    "far": dict(RANKS=3, PER_DEVICE=3, CONNECTIONS=TWO_SOURCES, QUEUES=2, NEAR=1, DIRECT=0, PUTS=0, WAITS=1),
    "far_barrier": dict(RANKS=3, PER_DEVICE=3, CONNECTIONS=TWO_SOURCES, QUEUES=2, NEAR=1, DIRECT=0, NOTIFY=0, OPERATIONS=1),
    # The only one is far, and full now and then.
    "far_and_full": dict(NEAR=0, HEADERS=1, RING=1, DIRECT=0, OPERATIONS=4, WAITS=1),
    # A source with a target on its own device and one on another; it keeps one connection near.
    "two_targets": dict(RANKS=3, CONNECTIONS=TWO_TARGETS, RING=1, OPERATIONS=3, EVICT=1, DIRECT=0, NOTIFY=0),
    "two_notified": dict(RANKS=3, CONNECTIONS=TWO_TARGETS, HEADERS=1, OPERATIONS=3, EVICT=1, PUTS=0),
    # The same with a barrier of the device in between.
    "barriers": dict(RANKS=3, CONNECTIONS=TWO_TARGETS, HEADERS=1, RING=1, BARRIERS=1, NOTIFY=0),
    # Each rank has a device of its own: that barrier does nothing.
    "two_devices": dict(PER_DEVICE=1, RING=1, OPERATIONS=3, BARRIERS=1),
}
# Each rule that is left out: in which configuration, and how spin's complaint begins.
DEADLOCK = "invalid end state"
OVERWRITTEN_PACKET = r"assertion violated \(+(stored|received|payload_received)"
STALE_PACKET = r"assertion violated \(+visible"
# Overwritten by an earlier put, or not there when its notification is: what spin meets first is a matter of its search.
WRONG_DATA = r"assertion violated \(+(window|known|placing)"
MISSING = r"assertion violated .*consumed.*==issued"
MUTATIONS = {
    "NO_CREDIT_CHECK": ("pair", OVERWRITTEN_PACKET),
    "NO_PAYLOAD_CHECK": ("pair", OVERWRITTEN_PACKET),
    "CREDIT_BEFORE_PLACING": ("pair", OVERWRITTEN_PACKET),
    "CREDITS_OF_A_RING": ("pair", OVERWRITTEN_PACKET),
    "SEQUENCES_OF_A_RING": ("pair", STALE_PACKET),
    "PAYLOAD_SEQUENCES_OF_A_RING": ("pair", STALE_PACKET),
    "NO_FENCE": ("pair", WRONG_DATA),
    "NO_ACQUIRE": ("pair", WRONG_DATA),
    "BATCH_ACQUIRES_FIRST_ONLY": ("batches", WRONG_DATA),
    "BATCH_ACQUIRES_LAST": ("batches", WRONG_DATA),
    "BATCH_IN_ANY_ORDER": ("batches", WRONG_DATA),
    "DIRECT_PUT_WITHOUT_RELEASING": ("pair", WRONG_DATA),
    "DIRECT_PUT_WITHOUT_FENCE": ("pair", WRONG_DATA),
    "NO_CROSS_WAIT": ("pair", WRONG_DATA),
    "FLUSH_FORGETS_MESSAGES": ("flushes", WRONG_DATA),
    "COUNTS_BEFORE_MESSAGES": ("full", WRONG_DATA),
    "NO_ANSWERS": ("flushes", DEADLOCK),
    "ASKS_ONCE": ("flushes", DEADLOCK),
    "NO_CREDIT_RELEASE": ("pair", WRONG_DATA),
    "NO_COUNTER_RELEASE": ("one_queue", WRONG_DATA),
    "NO_DRAIN": ("both_ways", DEADLOCK),
    "TICKETS_NOT_ATOMIC": ("two_queues", OVERWRITTEN_PACKET),
    "UNTOLD_QUEUE_HIDES_OTHERS": ("held_up", f"{WRONG_DATA}|{MISSING}"),
    "FAR_IS_NOT_ANNOUNCED": ("far", DEADLOCK),
    "ANNOUNCES_CONNECTION_ONLY": ("far", DEADLOCK),
    "NEAR_COUNTS_AS_FAR": ("far", DEADLOCK),
    "COUNTS_BEFORE_FAR_MESSAGES": ("far_and_full", WRONG_DATA),
    "BARRIER_TAKES_WHAT_IS_ANNOUNCED": ("far_barrier", f"{WRONG_DATA}|{MISSING}"),
    "CONNECTION_FORGETS_MESSAGES": ("two_targets", WRONG_DATA),
    "CONNECTION_FORGETS_POSITION": ("two_targets", f"{WRONG_DATA}|{DEADLOCK}"),
    "CONNECTION_FORGETS_PUTS": ("two_notified", WRONG_DATA),
    "NO_MESSAGES_AFTER_BARRIER": ("barriers", f"{WRONG_DATA}|{MISSING}"),
    "NO_SECOND_MEETING": ("barriers", WRONG_DATA),
    "BARRIER_RELEASES_DEVICE_ONLY": ("two_devices", f"{WRONG_DATA}|{MISSING}"),
    "DEVICE_BARRIER_COUNTS_ALL_MESSAGES": ("barriers", f"{WRONG_DATA}|{MISSING}"),
    "DEVICE_BARRIER_FORGETS_MESSAGES": ("two_devices", WRONG_DATA),
    "DEVICE_BARRIER_FORGETS_PUTS": ("barriers", WRONG_DATA),
}


def check(configuration, mutation=None, cycles=False):
    """Lets spin visit all states, or look for cycles; returns what it says."""
    settings = {**BASE, **CONFIGURATIONS[configuration]}
    if cycles:
        settings["OPERATIONS"] = 2 if settings["RANKS"] == 2 and settings["CONNECTIONS"] == PAIR else 1
    defines = [f"-D{name}={value}" for name, value in settings.items()]
    defines += [f"-D{mutation}"] if mutation else []
    mode = ["-DNP"] if cycles else ["-DSAFETY"]
    with tempfile.TemporaryDirectory() as directory:

        def run(*command):
            result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=200)
            output = result.stdout + result.stderr
            if result.returncode != 0:
                raise AssertionError(f"{command[0]} failed:\n{output}")
            return output

        shutil.copy(MODEL, directory)
        run("spin", "-a", *defines, MODEL.name)
        # Where something is soon found, compiling takes longer than running: clang compiles faster.
        compiler = [shutil.which("clang") or "gcc", "-O0"] if mutation or cycles else ["gcc", "-Og"]
        run(*compiler, "-w", *mode, "-DCOLLAPSE", "-DVECTORSZ=1024", "-DMEMLIM=1000", "pan.c", "-o", "pan")
        return run("./pan", "-m100000", "-w22", *(["-l", "-f"] if cycles else []))


class ModelTest(unittest.TestCase):
    def check(self, name, configuration, complaint=None, **how):
        begin = time.monotonic()
        output = check(configuration, **how)
        found = re.search(r"errors: (\d+)", output)
        states = re.search(r"(\d+) states, stored", output)
        self.assertTrue(found and states, output)
        said = re.search(r"pan:\d+: (.*) \(at depth", output)
        print(f"{name:28} {configuration:12} {int(states[1]):9} states {time.monotonic() - begin:5.1f} s  "
              f"{said[1][:60] if said else 'nothing wrong'}", flush=True)
        if complaint is None:
            self.assertEqual(found[1], "0", output)
            for incomplete in ("max search depth too small", "Search not completed", "out of memory"):
                self.assertNotIn(incomplete, output)
        else:
            self.assertTrue(said and re.match(complaint, said[1]), f"{name}: not found\n{output}")


def add_tests(names):
    def add(name, *arguments, **how):
        if not names or name in names:
            setattr(ModelTest, f"test_{name}", lambda self: self.check(name, *arguments, **how))

    for name in CONFIGURATIONS:
        add(name, name)
    for name in ("pair", "both_ways", "one_queue"):
        add(f"every_run_ends_{name}", name, cycles=True)
    for name, (configuration, complaint) in MUTATIONS.items():
        add(name, configuration, complaint, mutation=name)


if __name__ == "__main__":
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            sys.exit(77)
    add_tests(sys.argv[1:])
    unittest.main(argv=sys.argv[:1], verbosity=0)
