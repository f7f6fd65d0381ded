#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What device operations cost a kernel: registers, spills, stack and shared memory, with a bound for each.

    resources_test.py NVCC INCLUDE_DIRECTORY [ARCHITECTURE]

Compiles operations.cu and reads what ptxas says. The bounds hold for the compiler that they were found with and for
one architecture; a later compiler may need others. Ends with 77 (skipped) if there is no nvcc.
"""
import os
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
    "put_notify": 66,  # alone 64
    "notify": 64,
    "notify_each": 64,
    "release": 64,
    "wait_notifications": 66,  # alone 65
    "test_notifications": 64,
    "wait_any": 64,
    "wait_some": 64,
    "wait_notifications_from": 66,  # as wait_notifications
    "wait_notifications_for": 64,
    "pending_notifications": 64,
    "flush": 64,
    "barrier": 64,
    "windows": 64,
    "timer": 64,
    "log_line": 64,
    "halo_exchange": 67,  # beside a barrier of a communicator that is known only when it runs; alone 64
    "compute_alone": 74,
    "compute_and_exchange": 90,
}
# The same of collective operations, which are in a file of their own.
COLLECTIVE_REGISTERS = {
    "split": 66,
    "allreduce_value": 66,
    "start_and_finish": 66,
    "broadcast_value": 66,
    "scan_value": 106,
    "allreduce_array": 143,
    "start_and_finish_array": 144,
    "move_data": 106,
}
# The same of gets, atomic operations, accumulates and boxes.
ONE_SIDED_REGISTERS = {
    "get": 66,
    "fetch_add": 66,
    "accumulate": 66,
    "move_boxes": 72,  # as a thread has three units of 16 bytes under way
}
# The delivery kernel takes a rank's place, so it is smaller than any: no stack, and few registers.
DELIVERY_KERNEL_REGISTERS = 72
# Kernels that would take more than so many registers and are held to them (1024 threads need that) spill at most so many
# bytes themselves.
FEW_REGISTERS = 64
SPILLED_BYTES = 152
SHARED_BYTES = 7136  # of each rank: dcuda::state
# Of each thread: functions that are called rarely save there the registers that they use (exec::far). ptxas takes a
# function that is called by its address for any one with the same parameters: so it may find more than is needed, and
# where it believes that a function calls itself, less. needed_stack() tells what is needed.
STACK_BYTES = 1700  # create_window of ranks that split has joined meets by an exchange
COLLECTIVE_STACK_BYTES = 2560
# Compiled as relocatable device code each function has the registers that it likes, and kernels with launch bounds call none
# that takes more than these leave. Ranks need the option (docs/guide/programming.md); what short kernels call is small.
RELOCATABLE = {"triggers.cu": [], "relocatable.cu": ["--maxrregcount=64"]}


def read_calls(ptx):
    """Returns {function: those that it calls, or whose address it takes}, as the PTX says it."""
    heads = list(re.finditer(r"^(?:\.\w+ )*\.(func|entry)(?:\s+\([^)]*\))?\s+([\w$]+)", ptx, re.M))
    bodies = {}
    for head, after in zip(heads, heads[1:] + [None]):
        text = ptx[head.start(): after.start() if after else len(ptx)]
        if "{" in text:
            bodies[head[2]] = text[text.index("{"):]
    functions = {head[2] for head in heads if head[1] == "func"} & bodies.keys()
    return {name: set(re.findall(r"[\w$]+", body)) & functions for name, body in bodies.items()}


def needed_stack(kernel, calls, frames):
    """The stack of a kernel with all that it calls, which must not call themselves."""
    known = {}

    def with_calls(function):
        if function not in known:
            known[function] = None
            known[function] = frames.get(function, 0) + max(map(with_calls, calls.get(function, ())), default=0)
        if known[function] is None:
            sys.exit(f"{kernel}: {function} calls itself")
        return known[function]

    return with_calls(kernel)


def translate(nvcc, include, source, architecture, *options):
    """Returns the PTX of a source file, or ends with the compiler's complaints."""
    with tempfile.TemporaryDirectory() as directory:
        ptx = Path(directory) / "kernels.ptx"
        result = subprocess.run(
            [nvcc, "-std=c++20", f"-arch={architecture}", "-O3", "-ptx", *options, f"-I{include}",
             f"-I{Path(include).parent}/src", str(source), "-o", str(ptx)],
            capture_output=True, text=True,
        )
        if result.returncode != 0:
            sys.exit(result.stdout + result.stderr)
        return ptx.read_text()


def without_kernels(ptx, names):
    """The PTX without the kernels of those names."""
    for name in names:
        begin = re.search(rf"^(?:\.\w+ )*\.entry\s+{name}\(", ptx, re.M).start()
        ptx = ptx[:begin] + ptx[ptx.index("\n}\n", begin) + 3:]
    return ptx


def find_complaint(nvcc, include, source, architecture, *options):
    """What the compiler or the assembler says against a source file."""
    with tempfile.TemporaryDirectory() as directory:
        result = subprocess.run(
            [nvcc, "-std=c++20", f"-arch={architecture}", "-O3", "-cubin", *options, f"-I{include}", str(source), "-o",
             f"{directory}/kernels.cubin"], capture_output=True, text=True)
    return result.stdout + result.stderr if result.returncode != 0 else ""


def measure(nvcc, ptx, architecture, *options):
    """Returns {kernel: (registers, stack bytes, spilled bytes, shared bytes)}, or ends with the assembler's complaints."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "kernels.ptx"
        source.write_text(ptx)
        result = subprocess.run(
            [nvcc, f"-arch={architecture}", "-O3", "-cubin", "-Xptxas", "-v", *options, str(source), "-o",
             str(source.with_suffix(".cubin"))],
            capture_output=True, text=True,
        )
    output = result.stdout + result.stderr
    if result.returncode != 0:
        sys.exit(output)
    calls = read_calls(ptx)
    found = {}
    for part in output.split("Compiling entry function '")[1:]:
        name = part[: part.index("'")]
        # The kernel comes first; the functions that it calls have their own.
        spilled = int(re.search(r"(\d+) bytes spill stores", part)[1])
        stack = re.search(r"(\d+) bytes cumulative stack size", part) or re.search(r"(\d+) bytes stack frame", part)
        shared = re.search(r"(\d+) bytes smem", part)
        registers = re.search(r"Used (\d+) registers", part)
        frames = {function: int(size) for function, size in
                  re.findall(r"Function properties for (\S+)\n\s+(\d+) bytes stack frame", part)}
        if (needed := needed_stack(name, calls, frames)) > int(stack[1]):
            sys.exit(f"{name}: ptxas reserves {stack[1]} B of stack, but the functions that it calls need {needed}")
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
    directory = Path(__file__).parent
    operations = translate(nvcc, include, directory / "operations.cu", architecture)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        # The assembler takes most of the time. Those that take few registers anyway need not be held to that.
        as_liked = pool.submit(measure, nvcc, operations, architecture)
        few = [name for name, most in REGISTERS.items() if most <= FEW_REGISTERS]
        as_held = pool.submit(measure, nvcc, without_kernels(operations, few), architecture, f"--maxrregcount={FEW_REGISTERS}")

        def measure_part(part):
            ptx = translate(nvcc, include, directory / "collectives.cu", architecture, f"-DPART={part}")
            return measure(nvcc, ptx, architecture)

        one_sided = pool.submit(
            lambda: measure(nvcc, translate(nvcc, include, directory / "one_sided.cu", architecture), architecture))
        others = [one_sided.result(), *pool.map(measure_part, (1, 2, 3, 4))]
        found, held = as_liked.result(), as_held.result()
    for part in others:
        found |= part
    problems = []
    source = Path(include).parent / "src" / "device" / "delivery_kernel.cu"
    delivery = measure(nvcc, translate(nvcc, include, source, architecture), architecture)
    if not delivery:
        problems.append("the delivery kernel was not compiled")
    for registers, stack, _, shared in delivery.values():
        print(f"delivery kernel: {registers} registers, at most {DELIVERY_KERNEL_REGISTERS}; {stack} B of stack, {shared} B of shared memory")
        if registers > DELIVERY_KERNEL_REGISTERS or stack > 0 or shared > 1024:
            problems.append("the delivery kernel takes more than a rank may leave it")
    bounds = REGISTERS | COLLECTIVE_REGISTERS | ONE_SIDED_REGISTERS
    for source, options in RELOCATABLE.items():
        if complaint := find_complaint(nvcc, include, directory / source, architecture, "-rdc=true", *options):
            problems.append(f"{source}, as relocatable device code:\n{complaint}")
    problems += [f"{name}: no bound" for name in found.keys() - bounds.keys()]
    problems += [f"{name}: not compiled" for name in bounds.keys() - found.keys()]
    print(f"{architecture:24}  registers  at most  stack B  spilled B  shared B  spilled B with {FEW_REGISTERS} registers")
    for name, most in bounds.items():
        registers, stack, spilled, shared = found.get(name, (0, 0, 0, 0))
        spilled_held = held[name][2] if name in held else 0
        print(f"{name:24}  {registers:9}  {most:7}  {stack:7}  {spilled:9}  {shared:8}  {spilled_held if name in held else '-':>9}")
        if spilled_held > SPILLED_BYTES:
            problems.append(f"{name}: {spilled_held} B spilled with {FEW_REGISTERS} registers, at most {SPILLED_BYTES}")
        most_stack = COLLECTIVE_STACK_BYTES if name in COLLECTIVE_REGISTERS else STACK_BYTES
        if registers > most:
            problems.append(f"{name}: {registers} registers, at most {most}")
        if shared > SHARED_BYTES:
            problems.append(f"{name}: {shared} B of shared memory, at most {SHARED_BYTES}")
        if stack > most_stack or spilled > 0:
            problems.append(f"{name}: {stack} B of stack (at most {most_stack}) and {spilled} B spilled (none)")
    if problems and architecture == BOUND_FOR:
        sys.exit("\n".join(problems))


main()
