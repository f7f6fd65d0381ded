#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compiles what a build directory that is configured for the CUDA backend compiles otherwise than the CPU backend does.

    scripts/compile_cuda.py BUILD_DIRECTORY [JOBS]

For a machine without a GPU, which can run none of it: so nothing is linked, and tests of the host's code are left to the CPU
backend. The compiler reads the same headers for each .cu file, which takes most of its time. So those that are compiled with
the same options are compiled as one, each in a namespace of its own, after all headers that they include. Needs Ninja and the
compile commands (CMAKE_EXPORT_COMPILE_COMMANDS).
"""
import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MOST_FILES = 12  # in one: the compiler's jobs end at about the same time
# They define members of classes that a header declares, or use names that other files' headers have.
ALONE = ("common/neighbour_memory.cu", "mpi/plate.cu", "stencil/models/two_model.cu", "sparse/models/spmv.cu")


def headers_of(file, folders):
    """Yields the lines that include a file's headers, with the conditions that they stand under."""
    for line in re.findall(r"^#(?:include|if|ifdef|ifndef|elif|else|endif)\b.*", file.read_text(), re.M):
        if quoted := re.match(r'#include "(.*)"', line):
            paths = [folder / quoted[1] for folder in (file.parent, *folders)]
            line = f'#include "{next(path for path in paths if path.exists())}"'
        yield line


def write_together(files, folders, together):
    """Writes a file that includes those: their headers first, then each in a namespace."""
    lines = [line for file in files for line in headers_of(file, folders)]
    for number, file in enumerate(files):
        # What headers declare in the namespaces that the file continues is found there, too.
        continued = dict.fromkeys(re.findall(r"^namespace ([\w:]+) {", file.read_text(), re.M))
        lines += [f"namespace {name} {{}}" for name in continued]
        lines += [f"namespace file_{number} {{", *(f"namespace {name} {{ using namespace ::{name}; }}" for name in continued),
                  f'#include "{file}"', "}"]
    together.write_text("\n".join(lines) + "\n")


def main():
    build = Path(sys.argv[1]).resolve()
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    groups, objects = defaultdict(list), []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if entry["file"].endswith(".cu"):
            options = tuple(words[:words.index("-c")])
            alone = entry["file"] if entry["file"].endswith(ALONE) else None
            groups[options, alone].append(Path(entry["file"]))
        elif "-DDCUDA_BACKEND_CUDA=1" in words and "/tests/" not in entry["command"]:
            objects.append(words[words.index("-o") + 1])
    folder = build / "together"
    folder.mkdir(exist_ok=True)
    work = []
    for (options, _), files in groups.items():
        folders = [Path(word[2:]) for word in options if word.startswith("-I")]
        for first in range(0, len(files), MOST_FILES):
            some = files[first:first + MOST_FILES]
            source = some[0]
            if len(some) > 1:
                source = folder / f"{len(work)}.cu"
                write_together(some, folders, source)
            work.append((options, source, folder / f"{len(work)}.o", some))

    def compile_one(item):
        options, source, target, files = item
        result = subprocess.run([*options, "-c", str(source), "-o", str(target)], cwd=build, capture_output=True, text=True)
        print(f"{'compiled' if result.returncode == 0 else 'FAILED'}: {' '.join(file.name for file in files)}\n"
              f"{result.stdout}{result.stderr}", end="", flush=True)
        return result.returncode == 0

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        results = list(pool.map(compile_one, sorted(work, key=lambda item: -len(item[3]))))
    print(f"{sum(len(files) for *_, files in work)} .cu files in {len(work)}")
    sys.exit(not all(results) or subprocess.run(["cmake", "--build", build, "--parallel", str(jobs), "--target", *objects]).returncode)


main()
