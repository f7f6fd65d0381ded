#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What device operations cost a kernel: registers, spills, stack and shared memory, with a bound for each.

    resources_test.py NVCC INCLUDE_DIRECTORY [ARCHITECTURE]

Compiles operations.cu and reads what ptxas says. The bounds hold for the compiler that they were found with and for
one architecture; a later compiler may need others. Ends with 77 (skipped) if there is no nvcc.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BOUND_FOR = "sm_90"

# Registers per thread, as the compiler likes. With 64, sixteen ranks of 64 threads share a multiprocessor.
REGISTERS = {
    "nothing": 64,
    "put": 64,
    "put_notify": 64,
    "notify": 64,
    "wait_notifications": 66,  # alone 65
    "test_notifications": 64,
    "wait_any": 64,
    "wait_some": 64,
    "wait_notifications_for": 64,
    "pending_notifications": 64,
    "flush": 64,
    "barrier": 64,
    "windows": 64,
    "timer": 64,
    "log_line": 64,
    "halo_exchange": 66,  # beside a barrier of a communicator that is known only when it runs; alone 64
    "compute_alone": 74,
    "compute_and_exchange": 89,
}
# The same of collective operations, which are in a file of their own.
COLLECTIVE_REGISTERS = {
    "split": 66,
    "allreduce_value": 66,
    "broadcast_value": 66,
    "scan_value": 106,
    "allreduce_array": 143,
    "move_data": 106,
}
# The delivery kernel takes a rank's place, so it is smaller than any: no stack, and few registers.
DELIVERY_KERNEL_REGISTERS = 72
# Kernels that are held to so many registers (1024 threads need that) spill at most so many bytes themselves.
FEW_REGISTERS = 64
SPILLED_BYTES = 136
SHARED_BYTES = 5120  # of each rank: dcuda::state
# Of each thread: functions that are called rarely save there the registers that they use (exec::far). No rank takes less
# than the least: where ptxas takes two functions for one, it believes that this one calls itself, and does not count it.
LEAST_STACK_BYTES = 512
STACK_BYTES = 1600
COLLECTIVE_STACK_BYTES = 2400


def measure(nvcc, include, source, architecture, *options):
    """Returns {kernel: (registers, stack bytes, spilled bytes, shared bytes)}, or the compiler's complaints."""
    with tempfile.TemporaryDirectory() as directory:
        result = subprocess.run(
            [nvcc, "-std=c++20", f"-arch={architecture}", "-O3", "-cubin", "-Xptxas", "-v", *options, f"-I{include}",
             f"-I{Path(include).parent}/src", str(source), "-o", str(Path(directory, "kernels.cubin"))],
            capture_output=True, text=True,
        )
    output = result.stdout + result.stderr
    if result.returncode != 0:
        sys.exit(output)
    found = {}
    for part in output.split("Compiling entry function '")[1:]:
        name = part[: part.index("'")]
        # The kernel comes first; the functions that it calls have their own.
        spilled = int(re.search(r"(\d+) bytes spill stores", part)[1])
        stack = re.search(r"(\d+) bytes cumulative stack size", part) or re.search(r"(\d+) bytes stack frame", part)
        shared = re.search(r"(\d+) bytes smem", part)
        registers = re.search(r"Used (\d+) registers", part)
        # A kernel that may use any of the 16 has room for four blocks on a multiprocessor (DCUDA_PARTS).
        if re.search(r"used (\d+) barriers", part)[1] != "1":
            sys.exit(f"{name}: more than one hardware barrier\n{output}")
        found[name] = (int(registers[1]), int(stack[1]), spilled, int(shared[1]) if shared else 0)
    return found


def main():
    nvcc, include = sys.argv[1:3]
    architecture = sys.argv[3] if len(sys.argv) > 3 else BOUND_FOR
    if shutil.which(nvcc) is None:
        print(f"skipped: there is no {nvcc}")
        sys.exit(77)
    collectives = {}
    with ThreadPoolExecutor() as pool:
        operations = Path(__file__).with_name("operations.cu")
        as_liked = pool.submit(measure, nvcc, include, operations, architecture)
        held = measure(nvcc, include, operations, architecture, f"--maxrregcount={FEW_REGISTERS}")
        found = as_liked.result()
        source = Path(__file__).with_name("collectives.cu")
        for part in (1, 2, 3):
            collectives |= measure(nvcc, include, source, architecture, f"-DPART={part}")
    problems = []
    delivery = measure(nvcc, include, Path(include).parent / "src" / "device" / "delivery_kernel.cu", architecture)
    if not delivery:
        problems.append("the delivery kernel was not compiled")
    for registers, stack, _, shared in delivery.values():
        print(f"delivery kernel: {registers} registers, at most {DELIVERY_KERNEL_REGISTERS}; {stack} B of stack, {shared} B of shared memory")
        if registers > DELIVERY_KERNEL_REGISTERS or stack > 0 or shared > 1024:
            problems.append("the delivery kernel takes more than a rank may leave it")
    bounds = REGISTERS | COLLECTIVE_REGISTERS
    found |= collectives
    problems += [f"{name}: no bound" for name in found.keys() - bounds.keys()]
    problems += [f"{name}: not compiled" for name in bounds.keys() - found.keys()]
    print(f"{architecture:22}  registers  at most  stack B  spilled B  shared B  spilled B with {FEW_REGISTERS} registers")
    for name, most in bounds.items():
        registers, stack, spilled, shared = found.get(name, (0, 0, 0, 0))
        spilled_held = held.get(name, (0, 0, 0, 0))[2]
        print(f"{name:22}  {registers:9}  {most:7}  {stack:7}  {spilled:9}  {shared:8}  {spilled_held:9}")
        if spilled_held > SPILLED_BYTES:
            problems.append(f"{name}: {spilled_held} B spilled with {FEW_REGISTERS} registers, at most {SPILLED_BYTES}")
        most_stack = COLLECTIVE_STACK_BYTES if name in COLLECTIVE_REGISTERS else STACK_BYTES
        if stack < LEAST_STACK_BYTES:
            problems.append(f"{name}: ptxas cannot tell the stack, since a function seems to call itself")
        if registers > most:
            problems.append(f"{name}: {registers} registers, at most {most}")
        if shared > SHARED_BYTES:
            problems.append(f"{name}: {shared} B of shared memory, at most {SHARED_BYTES}")
        if stack > most_stack or spilled > 0:
            problems.append(f"{name}: {stack} B of stack (at most {most_stack}) and {spilled} B spilled (none)")
    if problems and architecture == BOUND_FOR:
        sys.exit("\n".join(problems))


main()
