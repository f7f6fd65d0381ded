#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the shape of the tree: which file may include which, where atomics may be, how many files and how long, and
names that say nothing.

    scripts/check_layering.py [--self-test]

The rules are the tables below. A rule that must be broken gets an exception here, with its reason.
"""
import re
import sys
import tempfile
from pathlib import Path

MAX_UNITS = 12  # in a folder of include/ or src/; a header and its source file are one
MORE_UNITS = {"include/dcuda": 14}  # the public headers, which users look for in one place
MAX_LINES = 600  # without the docstrings of public declarations
MANY_LINES = 450  # a warning from here on

# What a file is part of: the first pattern that matches its path.
PARTS = [
    (r"include/dcuda/config\.hpp", "config"),
    (r"include/dcuda/(types|error|statistics|energy|operators)\.hpp", "types"),
    (r"include/dcuda/cpu/", "cpu headers"),
    (r"include/dcuda/detail/exec/", "exec"),
    (r"include/dcuda/detail/protocol/", "protocol"),
    (r"include/dcuda/detail/ops/", "ops"),
    (r"include/dcuda/detail/", "detail"),
    (r"include/dcuda/(host|stream)\.hpp", "host"),
    (r"include/dcuda/(device|windows|collectives|trigger)\.hpp", "device"),
    (r"include/", "umbrella"),
    (r"src/support/", "support"),
    (r"src/cpu/", "cpu"),
    (r"src/bootstrap/", "bootstrap"),
    (r"src/transport/", "transport"),
    (r"src/device/", "device state"),
    (r"src/energy/", "energy"),
    (r"src/trace/", "trace"),
    (r"src/network/", "network"),
    (r"src/checker/", "checker"),
    (r"src/runtime/(live_view|hang_report)\.", "view of waits"),  # what a client may see of a running process
    (r"src/runtime/", "runtime"),
    (r"src/stream/", "stream"),
    (r"tools/dcuda_run/", "dcuda-run"),
    (r"tools/dcuda_top/", "dcuda-top"),
    (r"tools/", "tools"),
    (r"benchmarks/transport\.cpp", "transport benchmark"),  # measures below the runtime
    (r"benchmarks/case_studies/[^/]+/models/(?!model\.hpp)", "baselines"),  # use the library's transports without its kernels
    (r"(examples|benchmarks)/", "users"),
    (r"tests/", "tests"),
]

# What a part may include of others. Its own files it may always include.
DETAIL = {"exec", "protocol", "ops", "detail"}
PUBLIC = DETAIL | {"config", "types", "cpu headers", "host", "device", "umbrella"}
BASE = PUBLIC | {"support"}
STATE = BASE | {"transport", "bootstrap", "cpu", "device state"}
LIBRARY = STATE | {"energy", "trace", "network", "checker", "view of waits", "runtime", "stream"}
MAY_INCLUDE = {
    "config": set(),
    "types": {"config"},
    "cpu headers": {"config", "types"},
    "exec": {"types", "config", "cpu headers"},
    "protocol": {"exec", "types", "config", "cpu headers"},
    "ops": {"protocol", "exec", "types", "config", "cpu headers"},
    "detail": {"ops", "protocol", "exec", "types", "config", "cpu headers"},
    "host": DETAIL | {"types", "config"},
    "device": DETAIL | {"types", "config"},
    "umbrella": {"host", "device", "types", "config"},
    "support": PUBLIC,
    "cpu": BASE,
    "bootstrap": BASE,
    "transport": BASE,
    "device state": STATE,
    "energy": STATE,
    "trace": STATE | {"energy"},
    "network": STATE | {"trace"},
    "checker": STATE,
    "view of waits": BASE | {"bootstrap"},
    "runtime": STATE | {"energy", "trace", "network", "checker", "view of waits"},
    "stream": STATE | {"network", "runtime"},
    "dcuda-run": {"support", "config"},
    "dcuda-top": BASE | {"bootstrap", "view of waits"},
    "tools": LIBRARY,
    "transport benchmark": BASE | {"transport", "bootstrap", "users"},
    "baselines": BASE | {"transport", "bootstrap", "device state", "energy", "users"},
    "users": {"umbrella", "host", "device", "types", "config"},
    "tests": LIBRARY | {"users"},
}

# Headers that one file only, under this directory, may include.
SINGLE_USER = {
    r"mpi\.h": "src/transport/",
    r"rdma/.*": "src/transport/",
    r"infiniband/(?!mlx5dv).*": "src/transport/",
    r"infiniband/mlx5dv\.h": "src/transport/",
    r"pmix\.h": "src/bootstrap/",
    r"sodium\.h": "src/bootstrap/",
}

# Memory order has one home, what it says of atomic operations on windows another, and how the CPU backend sleeps a third. Others are listed by how their path
# begins, with the reason.
ORDER_HOME = "include/dcuda/detail/protocol/memory.hpp"
ORDER_HOMES = {ORDER_HOME, "include/dcuda/detail/protocol/atomics.hpp", "include/dcuda/detail/protocol/sleep.hpp"}
ORDER = re.compile(
    r"std::atomic|atomic_ref|atomic_flag|cuda::atomic|<atomic>|<cuda/atomic>|\basm\b|__asm__|\bvolatile\b|\b__threadfence"
    r"|\batomic(Add|Sub|Exch|Min|Max|Inc|Dec|CAS|And|Or|Xor)\b|__atomic_|__sync_(?!threads)(?:\w+_and_|lock|synchronize)"
    r"|_mm_pause|__builtin_ia32_pause|__nanosleep|SYS_futex"
)
ORDER_EXCEPTIONS = {
    "include/dcuda/cpu/": "the CPU stand-in for CUDA's own atomics, which user kernels may call",
    "include/dcuda/detail/exec/bulk_copy.cuh": "the copy engine's instructions, with their own proxy and completion rules",
    "include/dcuda/detail/exec/exec_cuda.cuh": "ends a thread, and has the barriers at which a part of a block meets",
    "examples/13_": "its warps hand over to each other by counts of their own, as users' kernels do",
    "examples/14_": "the same",
    "examples/15_": "its threads count in memory of their block",
    "src/checker/": "sees the atomics of programs, and its processes share memory; the protocol's order is not made there",
    "src/cpu/": "switches fibers and threads; the order of the protocol is not made there",
}
ORDER_CHECKED = ("include/", "src/", "tools/", "examples/")

# Which threads execute an operation, the rank's state says (rank_state::group); how, detail/exec.
OF_THE_BLOCK = re.compile(r"\b(?:__syncthreads\w*|(?:thread|block)Idx|blockDim|exec::(?:sync_block|is_leader|thread_index|block_threads))\b")
OPERATIONS = "include/dcuda/detail/ops/"
CUTS_THE_BLOCK = "include/dcuda/detail/ops/parts.hpp"  # into ranks, before they have groups

# Names that say nothing of what they stand for. Records keep their programs as they ran.
EMPTY_NAME = re.compile(r"\b(?:what(?!\(\))|with|mine|to)\b")
RECORDS = "benchmarks/results/"
LITERAL = re.compile(r"'(?:\\.|[^'\\])'|\"(?:\\.|[^\"\\])*\"")

SUFFIXES = {".hpp", ".cpp", ".h", ".cuh", ".cu"}
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def part_of(path):
    return next((part for pattern, part in PARTS if re.match(pattern, path)), None)


def without_comments(text):
    """Strings stay: they hold the names of included files."""
    blank = lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])
    return COMMENT.sub(blank, text)


def resolve(root, path, name):
    """The file of the tree that `path` means by including `name`, or None if it is none of ours."""
    for base in (Path(path).parent, Path("include"), Path("src"), Path("tests")):
        candidate = root / base / name
        if candidate.is_file():
            return candidate.resolve().relative_to(root).as_posix()
    return None


def check(root):
    """Returns (errors, warnings) of the tree at `root`."""
    root = root.resolve()
    errors, warnings = [], []
    files = sorted(
        file.relative_to(root).as_posix()
        for top in ("include", "src", "tools", "examples", "benchmarks", "tests")
        for file in (root / top).rglob("*")
        if file.suffix in SUFFIXES and file.is_file()
    )
    library = [path for path in files if path.startswith(("include/", "src/"))]
    folders = {}
    for path in library:
        folder, name = path.rsplit("/", 1)
        folders.setdefault(folder, set()).add(name.split(".", 1)[0])
    for folder, units in folders.items():
        if len(units) > MORE_UNITS.get(str(folder), MAX_UNITS):
            errors.append(f"{folder}/ holds {len(units)} units; at most {MORE_UNITS.get(str(folder), MAX_UNITS)}")

    single_users = {}
    for path in files:
        text = (root / path).read_text()
        lines = sum(not line.lstrip().startswith("///") for line in text.splitlines())
        if path in library and lines > MAX_LINES:
            errors.append(f"{path}: {lines} lines; at most {MAX_LINES}: think again about what it does")
        elif path in library and lines > MANY_LINES:
            warnings.append(f"{path}: {lines} lines; at most {MAX_LINES}")

        part = part_of(path)
        if part is None:
            errors.append(f"{path}: part of nothing that {Path(__file__).name} knows")
            continue
        for number, line in enumerate(without_comments(text).split("\n"), 1):
            where = f"{path}:{number}"
            include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if include:
                name = include[1]
                target = resolve(root, path, name)
                if ".." in Path(name).parts:
                    errors.append(f"{where}: includes {name}; name it from the root of include/ or src/")
                elif target and part_of(target) not in MAY_INCLUDE[part] | {part}:
                    errors.append(f"{where}: {part} includes {name} ({part_of(target)}), which is not below it")
                for pattern in SINGLE_USER:
                    if path in library and re.fullmatch(pattern, name):
                        single_users.setdefault(pattern, {})[path] = where
            if (
                path not in ORDER_HOMES
                and path.startswith(ORDER_CHECKED)
                and not path.startswith(tuple(ORDER_EXCEPTIONS))
                and (found := ORDER.search(re.sub(r'"(?:\\.|[^"\\])*"', '""', line)))
            ):
                errors.append(f"{where}: '{found[0]}' belongs into {ORDER_HOME}")

            if not include and not path.startswith(RECORDS) and (found := EMPTY_NAME.search(LITERAL.sub("", line))):
                errors.append(f"{where}: '{found[0]}' as a name says nothing; name what it stands for")

            if path.startswith(OPERATIONS) and path != CUTS_THE_BLOCK and (found := OF_THE_BLOCK.search(line)):
                errors.append(f"{where}: '{found[0]}' assumes that the block executes the operation; ask rank_state::group()")

    for pattern, users in single_users.items():
        for path, where in users.items():
            if not path.startswith(SINGLE_USER[pattern]):
                errors.append(f"{where}: {pattern} may be included under {SINGLE_USER[pattern]} only")
        if len(users) > 1:
            errors.append(f"{pattern} is included by several files: {', '.join(users.values())}")
    return errors, warnings


def self_test():
    """Each tree of files must raise the error beside it, and the last one none."""
    cases = [
        ({"include/dcuda/types.hpp": '#include "dcuda/host.hpp"\n', "include/dcuda/host.hpp": ""}, "not below it"),
        ({"include/dcuda/host.hpp": '#include "support/log.hpp"\n', "src/support/log.hpp": ""}, "not below it"),
        ({"src/support/a.cpp": '#include "runtime/b.hpp"\n', "src/runtime/b.hpp": ""}, "not below it"),
        ({"src/cpu/a.cpp": '#include "transport/b.hpp"\n', "src/transport/b.hpp": ""}, "not below it"),
        ({"examples/a.cu": '#include "dcuda/detail/b.hpp"\n', "include/dcuda/detail/b.hpp": ""}, "not below it"),
        ({"src/cpu/a.cpp": '#include "../support/b.hpp"\n', "src/support/b.hpp": ""}, "from the root"),
        ({"src/runtime/a.cpp": "#include <mpi.h>\n"}, "under src/transport/ only"),
        ({"src/transport/a.cpp": "#include <mpi.h>\n", "src/transport/b.cpp": "#include <mpi.h>\n"}, "several files"),
        ({"src/runtime/a.cpp": "std::atomic<int> count;\n"}, "'std::atomic' belongs"),
        ({"include/dcuda/device.hpp": "__threadfence_system();\n"}, "'__threadfence' belongs"),
        ({"src/runtime/a.cpp": "int volatile* flag;\n"}, "'volatile' belongs"),
        ({"include/dcuda/detail/ops/a.hpp": 'asm volatile("membar.gl;");\n'}, "'asm' belongs"),
        ({"include/dcuda/detail/ops/a.hpp": "exec::sync_block();\n"}, "assumes that the block"),
        ({"src/network/a.cpp": '#include "runtime/b.hpp"\n', "src/runtime/b.hpp": ""}, "not below it"),
        ({"tools/dcuda_top/a.cpp": '#include "runtime/b.hpp"\n', "src/runtime/b.hpp": ""}, "not below it"),
        ({"tools/dcuda_run/a.cpp": '#include "bootstrap/b.hpp"\n', "src/bootstrap/b.hpp": ""}, "not below it"),
        (
            {"include/dcuda/detail/exec/a.hpp": '#include "dcuda/detail/ops/b.hpp"\n', "include/dcuda/detail/ops/b.hpp": ""},
            "not below it",
        ),
        ({"src/cpu/a.cpp": "int mine = 1;\n"}, "says nothing"),
        ({"benchmarks/common/a.hpp": "void send(int to);\n"}, "says nothing"),
        ({"src/odd/a.cpp": ""}, "part of nothing"),
        ({"src/cpu/a.cpp": "\n" * 601}, "601 lines"),
        ({f"src/cpu/{i}.cpp": "" for i in range(MAX_UNITS + 1)}, f"{MAX_UNITS + 1} units"),
        (
            {
                "include/dcuda/host.hpp": '#include "dcuda/types.hpp"\n// volatile, std::atomic\n',
                "include/dcuda/types.hpp": '#include "dcuda/config.hpp"\n',
                "include/dcuda/config.hpp": "",
                "include/dcuda/detail/protocol/memory.hpp": "#include <atomic>\n",
                "src/runtime/a.cpp": '#include "dcuda/host.hpp"\nlog("volatile, mine"); __syncthreads(); // to\n',
                "src/support/a.cpp": "log(problem.what());\n",
                "benchmarks/results/x/a.cu": "int to;\n",
                "src/transport/mpi.cpp": "#include <mpi.h>\n",
                "src/cpu/fiber.cpp": "std::atomic<int> x;\n",
            },
            None,
        ),
    ]
    for tree, expected in cases:
        with tempfile.TemporaryDirectory() as directory:
            for path, text in tree.items():
                file = Path(directory, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            errors, _ = check(Path(directory))
        right = not errors if expected is None else len(errors) == 1 and expected in errors[0]
        if not right:
            sys.exit(f"self-test: expected {expected!r}, got {errors} for {list(tree)[:3]}")
    print(f"layering: self-test of {len(cases)} trees is fine")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    errors, warnings = check(Path(__file__).parent.parent)
    for warning in warnings:
        print(f"warning: {warning}")
    for error in errors:
        print(f"error: {error}")
    if errors:
        sys.exit(1)
    print("layering: fine")


main()
