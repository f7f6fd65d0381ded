#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What cannot be written is said, and no job that has lost something ends with 0; and limits (ulimit) that are named.
Usage: losses_test.py PATH_OF_dcuda-run PATH_OF_02_ring PATH_OF_03_halo_exchange PATH_OF_trace_pattern
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

dcuda_run, ring, halo_exchange, pattern = (os.path.abspath(path) for path in sys.argv[1:5])
FULL = "No space left on device"
TIMEOUT = 60


def run(script, *arguments, **settings):
    """Of a shell, which sees the arguments as $1, $2, ..."""
    return subprocess.run(["bash", "-c", script, "bash", *arguments], capture_output=True, text=True, timeout=TIMEOUT,
                          stdin=subprocess.DEVNULL, **settings)


SMALL = 'unshare --user --map-root-user --mount sh -c \'mount -t tmpfs -o size=64k none "$0" && exec bash -c "$@"\''


def on_small_disk(script, *arguments):
    """The same with a file system of 64 KiB in the working directory."""
    with tempfile.TemporaryDirectory() as folder:
        return run(f'exec {SMALL} "$1" "cd \\"\\$PWD\\"; $2" bash "${{@:3}}"', folder, script, *arguments, cwd=folder)


small_disk = on_small_disk("true").returncode == 0
needs_small_disk = unittest.skipUnless(small_disk, "no file system can be mounted here")


class LossesTest(unittest.TestCase):
    def check_failed(self, result, *said):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for text in said:
            self.assertIn(text, result.stderr)

    # ---- standard output ----

    def test_logs_of_ranks(self):
        self.check_failed(run('"$1" > /dev/full', ring),
                          "what the ranks of process 0 log cannot be written to standard output: " + FULL)

    def test_what_the_program_prints(self):
        self.check_failed(run('"$1" > /dev/full', halo_exchange),
                          "what this program prints cannot be written to standard output: " + FULL)

    def test_output_of_a_job(self):
        self.check_failed(run('"$1" -n 2 "$2" > /dev/full', dcuda_run, ring), "process 0 log cannot be written",
                          "process 1 log cannot be written")

    def test_output_by_way_of_the_launcher(self):
        self.check_failed(run('"$1" --prefix -n 2 "$2" > /dev/full', dcuda_run, ring),
                          "dcuda-run: cannot write standard output: " + FULL)
        # Nobody can be told of this one.
        self.assertEqual(run('"$1" --prefix -n 2 sh -c "echo oh >&2" 2> /dev/full', dcuda_run).returncode, 1)

    def test_readers_that_have_enough(self):
        for script in ('"$1" | true; exit 0', '"$1" --prefix -n 2 "$2" | true; exit 0'):
            result = run(script, *([ring] if "prefix" not in script else [dcuda_run, ring]))
            self.assertNotIn("cannot be written", result.stderr)
            self.assertNotIn("cannot write", result.stderr)

    def test_output_that_is_closed(self):
        for arguments in ([ring], [dcuda_run, "-n", "2", ring]):
            result = run('"$@" >&-', *arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_warnings_that_cannot_be_written(self):
        for variable in ("DCUDA_NO_SUCH_VARIABLE=1", "DCUDA_TRANSPORT=foo"):
            result = run(variable + ' "$1" 2> /dev/full', ring)
            self.assertEqual(result.returncode, 0, result.stdout)

    # ---- files ----

    @needs_small_disk
    def test_output_folder(self):
        result = on_small_disk('head -c 70000 /dev/zero > rest 2> /dev/null; "$1" -n 2 --output-dir out "$2"', dcuda_run, ring)
        self.check_failed(result, "exited with code 1")

    @needs_small_disk
    def test_timeline(self):
        """It keeps the runs before the one that does not fit."""
        result = on_small_disk('"$1" -n 2 --ranks 3 --trace t.json "$2" pattern > /dev/null; status=$?; cat t.json; exit $status',
                               dcuda_run, pattern)
        self.check_failed(result, "writing the timeline t.json: " + FULL, "it ends before run 2")
        self.assertEqual({run["run"] for run in json.loads(result.stdout)["dcuda"]["runs"]}, {1})

    @needs_small_disk
    def test_statistics(self):
        script = 'head -c 70000 /dev/zero > rest 2> /dev/null; "$1" -n 2 --ranks 3 --stats=s.json "$2" pattern > /dev/null; ' \
                 'status=$?; wc -c < s.json; exit $status'
        result = on_small_disk(script, dcuda_run, pattern)
        self.check_failed(result, "the statistics s.json cannot be written: " + FULL)
        self.assertEqual(result.stdout, "0\n")

    # ---- limits ----

    def test_limit_of_files(self):
        """Device memory of the CPU backend is a file, as large as the machine's memory if it may be."""
        self.assertEqual(run('ulimit -f 1000000; "$1" -n 2 "$2"', dcuda_run, ring).returncode, 0)
        self.check_failed(run('ulimit -f 1; "$1"', ring), "the CPU backend gets no device memory: File too large", "ulimit -f")
        result = run('ulimit -f 200000; DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=shm "$1" -n 2 "$2"', dcuda_run, ring)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_limit_of_files_for_a_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.json")
            result = run('ulimit -f 100000; DCUDA_TRACE=$2 DCUDA_TRACE_EVENTS=100000 "$1" pattern', pattern, path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path) as file:
                self.assertEqual(len(json.load(file)["dcuda"]["runs"]), 2)

    def test_limit_of_address_space(self):
        self.assertEqual(run('ulimit -v 20000000; "$1" -n 2 "$2"', dcuda_run, ring).returncode, 0)
        self.check_failed(run('ulimit -v 20000000; "$1" -n 8 "$2"', dcuda_run, ring),
                          "address space is limited to 20000000 KiB (ulimit -v)")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
