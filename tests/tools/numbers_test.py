#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/check_numbers.py, on small repositories that are made here: no wrong number passes, and old ones are marked.

    numbers_test.py
"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/check_numbers.py"
SOURCES = """document = README.md
near = run/latency.json benchmark=latency path="same device"
programs = run/programs.txt code=benchmarks/case_studies/stencil
table = run/latency.txt
"""
ROWS = [
    {"benchmark": "latency", "path": "same device", "operation": "put_notify", "bytes": 4, "threads": 128, "unit": "us",
     "value": 0.8018, "rivals": [{"name": "NVSHMEM put", "value": 2.02}]},
    {"benchmark": "latency", "path": "same device", "operation": "put_notify", "bytes": 64, "threads": 128, "unit": "us", "value": 0.9},
]
PROGRAMS = """Commit {commit}, 2 NVIDIA H200 with peer access.

$ dcuda-run -n 1 stencil
time: 3.13 ms, 15.64 us per iteration (median of 20 runs)

$ dcuda-run -n 2 stencil
time: 46.59 ms, 2.33 ms per iteration (median of 5 runs), rows -0.25
"""
TABLE = """2 x NVIDIA H100 80GB HBM3, CUDA 13.0, cuda backend, Intel(R) Xeon(R) Processor (64 cores), 2026-11-26T16:17:46Z, commit
        {commit}
1 process

latency     operation         bytes threads   value unit interval
same device notify                -     128   0.851 us   0.851 to 0.852
    rivals: raw flag 0.3709 (0.44x); a rival with
        a long name 1.5 (1.76x)
same device put, 16 ranks  16777216     128 646.434 GB/s 646.197 to 647.144
"""


class Repository:
    def __init__(self, folder):
        self.root = Path(folder)
        self.put("include/dcuda/detail/put.hpp", "first\n")
        self.put("benchmarks/suite/latency.cu", "first\n")
        self.put("benchmarks/rivals/nvshmem.cu", "first\n")
        self.put("benchmarks/case_studies/stencil/stencil.cu", "first\n")
        self.put("scripts/check_numbers.py", SCRIPT.read_text())
        self.git("init", "--quiet")
        self.commit()
        self.first = self.git("rev-parse", "--short=7", "HEAD").strip()
        self.record()
        self.put("benchmarks/results/run/programs.txt", PROGRAMS.format(commit=self.first))
        self.put("benchmarks/results/run/latency.txt", TABLE.format(commit=self.first))
        self.describe("A put takes {near put_notify bytes=4 .2} us.")

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *arguments):
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", "-C", self.root, *who, *arguments], check=True, capture_output=True, text=True).stdout

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def record(self, **machine):
        machine = {"commit": self.first, "gpus": ["NVIDIA H200", "NVIDIA H200"]} | machine
        self.put("benchmarks/results/run/latency.json", json.dumps({"machine": machine, "rows": ROWS}))

    def describe(self, text, sources=SOURCES):
        self.put("benchmarks/numbers/readme.txt", f"{sources}\n=== put\n\n{text}\n")
        self.put("README.md", "Before.\n\n<!-- numbers: put -->\n\nx\n\n<!-- numbers: end -->\n\nBehind.\n")

    def run(self, *arguments):
        done = subprocess.run([sys.executable, self.root / "scripts/check_numbers.py", *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def document(self):
        return (self.root / "README.md").read_text()


class Numbers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repository = Repository(folder.name)

    def passes(self, *arguments):
        code, output = self.repository.run(*arguments)
        self.assertEqual(code, 0, output)
        return output

    def fails(self, reason, *arguments):
        code, output = self.repository.run(*arguments)
        self.assertEqual(code, 1, output)
        self.assertIn(reason, output)

    def written(self, text):
        """What stands in the document for this text of a description."""
        self.repository.describe(text)
        self.passes("--write")
        self.passes()
        return self.repository.document().split("-->\n\n")[1].split("\n\nRecord")[0]

    def test_a_number_is_as_in_its_record(self):
        self.assertEqual(self.written("A put takes {near put_notify bytes=4 .2} us."), "A put takes 0.80 us.")
        document = self.repository.document()
        self.assertIn(f"Record: [run](benchmarks/results/run/) (2 H200, {self.repository.first}).\n", document)
        self.repository.put("README.md", document.replace("0.80", "0.70"))
        self.fails("-A put takes 0.70 us.\n+A put takes 0.80 us.")
        self.passes("--write")
        self.assertEqual(self.repository.document(), document)

    def test_a_record_that_changes_fails(self):
        self.passes("--write")
        path = self.repository.root / "benchmarks/results/run/latency.json"
        path.write_text(path.read_text().replace("0.8018", "0.9018"))
        self.fails("+A put takes 0.90 us.")

    def test_what_a_cell_can_name(self):
        text = "{near put_notify bytes=4 rival='NVSHMEM put' .1} {near put_notify bytes=4 / near put_notify bytes=4 rival='NVSHMEM put' .2}"
        self.assertEqual(self.written(text), "2.0 0.40")
        self.assertEqual(self.written("{near put_notify bytes=4 / near put_notify bytes=4 + near put_notify bytes=64 .2}"), "0.47")
        text = "{programs command='dcuda-run -n 1 stencil' .1} {programs command='dcuda-run -n 2 stencil' unit=ms .2}"
        self.assertEqual(self.written(text), "15.6 2.33")
        self.assertEqual(self.written(r"{programs match='time: ([\d.]+) ms, 2' .1}"), "46.6")
        text = "{table notify .2} {table notify rival='a rival with a long name' .1} {table put, 16 ranks bytes=16777216}"
        self.assertEqual(self.written(text), "0.85 1.5 646")
        self.assertEqual(self.written("{programs command='dcuda-run -n 1 stencil' match='time: (3.13)' .1} {programs match='rows ([-\\d.]+)' .1}"),
                         "3.1 -0.3")

    def test_a_cell_names_one_number(self):
        for cell, reason in (
            ("near put_notify", "2 rows fit"),
            ("near put_notify bytes=8", "0 rows fit"),
            ("near put_notify bytes=4 rival=NCCL", "0 rivals"),
            ("far put_notify", "no source"),
            ("run/none.json put_notify", "no record"),
            ("programs command=stencil", "0 commands"),
            (r"programs match='([\d.]+) ms'", "fits 3 times"),
            ("run/programs.txt match='(15.64)'", "which code"),
            ("near put_notify bytes=4 code=src/none", "not in src/none"),
            ("near put_notify bytes=4 + near put_notify bytes=64", "one by a sum"),
            ("near put_notify bytes=4 / near put_notify bytes=64 / near put_notify bytes=64", "one by a sum"),
        ):
            self.repository.describe(f"{{{cell}}}")
            self.fails(reason)
            self.fails(reason, "--write")
        self.repository.describe("0.80")
        self.fails("no cell")

    def test_a_record_says_its_commit_and_machine(self):
        self.repository.record(commit="unknown")
        self.fails("no commit")
        self.repository.record(gpus=[])
        self.fails("no machine")
        self.repository.record(commit="0123456")
        self.fails("there is no commit 0123456")

    def test_the_notes_beside_a_record_may_say_its_commit(self):
        self.repository.record(commit="unknown")
        self.repository.describe(f"{{near put_notify bytes=4 commit={self.repository.first}}}")
        self.fails("no README beside the record says commit")
        self.repository.put("benchmarks/results/run/README.md", f"Two H200, {self.repository.first}.\n")
        self.passes("--write")
        self.repository.describe("{near put_notify bytes=4 commit=added}")
        self.fails("no README beside the record says commit")
        self.repository.put("benchmarks/results/run/README.md", "The commit\nthat adds this record.\n")
        self.passes("--write")
        self.repository.commit()
        self.passes()
        self.repository.put("include/dcuda/detail/put.hpp", "second\n")
        self.fails("+Record: [run](benchmarks/results/run/) (2 H200, the commit that adds it). The code")

    def test_what_is_older_than_its_code_is_marked(self):
        self.repository.describe("{near put_notify bytes=4 .2}; {near put_notify bytes=4 rival='NVSHMEM put' .2}")
        self.passes("--write")
        self.assertNotIn("†", self.repository.document())
        self.repository.put("benchmarks/case_studies/stencil/stencil.cu", "second\n")  # measured by neither
        self.repository.commit()
        self.assertIn("0 are marked", self.passes())
        self.repository.put("benchmarks/suite/latency.cu", "second\n")
        self.fails("+0.80†; 2.02")
        self.repository.commit()
        self.fails("+0.80†; 2.02")
        self.passes("--write")
        self.assertIn("† The code that this figure measures has changed", self.repository.document())
        self.assertIn("1 are marked", self.passes())
        self.repository.put("benchmarks/rivals/nvshmem.cu", "second\n")
        self.passes("--write")
        self.assertIn("\n0.80; 2.02\n", self.repository.document())
        self.assertIn("The code that these figures measure has changed since.", " ".join(self.repository.document().split()))

    def test_without_history_the_numbers_are_still_checked(self):
        self.repository.describe("{near put_notify bytes=4 .2}; {near put_notify bytes=4 rival='NVSHMEM put' .2}")
        self.repository.put("benchmarks/suite/latency.cu", "second\n")
        self.passes("--write")
        self.repository.commit()
        with tempfile.TemporaryDirectory() as folder:
            whole, shallow = self.repository.root, Path(folder, "shallow")
            subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{whole}", shallow], check=True)
            for root, reason in ((shallow, "the clone is shallow"), (whole, "no git repository is here")):
                self.repository.root = root
                if root == whole:
                    shutil.rmtree(whole / ".git")
                self.assertIn(reason, self.passes())
                self.fails(reason, "--write")
                self.repository.put("README.md", self.repository.document().replace("2.02", "2.03"))
                self.fails("-0.80†; 2.03\n")

    def test_markers_and_descriptions_belong_together(self):
        self.passes("--write")
        document = self.repository.document()
        for wrong in ("", document + document, document.replace("<!-- numbers: end -->", ""), document.replace(": put", ": get"),
                      document.replace("\n\n<!-- numbers: end", "\n<!-- numbers: end")):
            self.repository.put("README.md", wrong)
            self.fails("README.md: ")
        self.repository.put("README.md", document)
        self.repository.put("docs/page.md", document)
        self.fails("docs/page.md: ")
        (self.repository.root / "docs/page.md").unlink()
        self.passes()
        (self.repository.root / "benchmarks/numbers/readme.txt").unlink()
        self.fails("README.md: ")

    def test_rows_are_shown_as_cells_name_them(self):
        output = self.passes("--rows", "benchmarks/results/run/latency.json")
        self.assertIn("put_notify benchmark=latency path='same device' bytes=4 threads=128: 0.8018\n", output)
        self.assertIn("    rival='NVSHMEM put': 2.02\n", output)


if __name__ == "__main__":
    unittest.main()
