#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A link between two network namespaces that is slow and loses packets, for kernels without netem.
Usage: relay.py DEVICE DELAY_SECONDS LOSS SEED NAMESPACE NAMESPACE

Each namespace gets a tap device of that name. What one sends comes out of the other one after the delay, or never.
Prints "ready", then works until its input ends, and prints how many frames came through and how many were lost.
"""
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454ca, 0x0002, 0x1000
MOST_BYTES = 65536


def open_tap(namespace, device):
    """It belongs to the namespace in which it was opened, and ends with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as place:
        if libc.setns(place.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22s", device.encode(), IFF_TAP | IFF_NO_PI, b""))
    return tap


def main():
    device, delay, loss, seed = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    taps = [open_tap(namespace, device) for namespace in sys.argv[5:7]]
    chance = random.Random(seed)
    under_way = deque()  # when, to which, what; the delay is the same for all
    passed = lost = 0
    print("ready", flush=True)
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable = select.select([sys.stdin, *taps], [], [], wait)[0]
        if sys.stdin in readable:
            break
        for tap in readable:
            frame = os.read(tap, MOST_BYTES)
            if chance.random() < loss:
                lost += 1
            else:
                under_way.append((time.monotonic() + delay, taps[1] if tap == taps[0] else taps[0], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, target, frame = under_way.popleft()
            try:
                os.write(target, frame)
                passed += 1
            except OSError:  # the device is down, or its queue is full
                lost += 1
    print(passed, lost, flush=True)


main()
