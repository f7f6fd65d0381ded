#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of dcuda-run --hosts. Usage: hosts_test.py PATH_OF_dcuda-run PATH_OF_show_job

Scripts play the launchers that dcuda-run calls: they tell a version, or keep the command line and the variables that they get.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import TIMEOUT, launcher, show_job

VERSIONS = {"openmpi": "mpirun (Open MPI) 4.1.4", "hydra": "HYDRA build details:\n    Version:  4.0.2",
            "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.14", "slurm": "slurm 22.05.8",
            "other": "mpirun of somebody else 1.0"}

STAND_IN = """#!/bin/sh
if [ "$*" = --version ]; then printf '%s\\n' "VERSION"; exit 0; fi
printf '%s\\0' "$0" "$@" > "FOLDER/arguments"
env -0 > "FOLDER/environment"
echo $$ > "FOLDER/pid"
cat
exit 7
"""


class HostsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.mkdir(self.path("bin"))
        for tool in ("sh", "cat", "env", "true", "printf", "bash"):
            os.symlink(shutil.which(tool), self.path("bin", tool))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def play(self, name, kind):
        """A program `name` in PATH that is a launcher of this kind."""
        with open(self.path("bin", name), "w") as file:
            file.write(STAND_IN.replace("FOLDER", self.folder).replace("VERSION", VERSIONS[kind]))
        os.chmod(self.path("bin", name), 0o755)

    def run_it(self, *arguments, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DCUDA_", "SLURM_"))}
        return subprocess.run([launcher, *map(str, arguments)], env={**kept, "PATH": self.path("bin"), **variables},
                              capture_output=True, text=True, timeout=TIMEOUT, input="input of process 0\n")

    def kept(self, name):
        with open(self.path(name)) as file:
            return file.read().split("\0")[:-1]

    def called(self, *arguments, **variables):
        """The command line that the launcher gets."""
        result = self.run_it(*arguments, **variables)
        self.assertEqual((result.returncode, result.stdout), (7, "input of process 0\n"), result.stderr)
        words = self.kept("arguments")
        self.assertEqual(result.stderr, f"dcuda-run: calls {shlex.join(words)}\n")
        return [os.path.basename(words[0]), *words[1:]]

    def check_refused(self, code, text, *arguments, **variables):
        result = self.run_it(*arguments, **variables)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertIn(text, result.stderr)
        self.assertFalse(os.path.exists(self.path("arguments")), "a launcher was called")

    # ---- command lines ----

    def test_open_mpi(self):
        self.play("mpirun", "openmpi")
        self.assertEqual(self.called("--hosts", "a:2,b:1", "./program", "-n", "an argument"),
                         ["mpirun", "--map-by", "slot", "--bind-to", "none", "--host", "a:2,b:1", "-n", "3", "./program", "-n",
                          "an argument"])
        self.assertEqual(self.called("--hosts", "a,b", "-np", 5, "--prefix", "--ranks", 4, "--env", "OWN=1", "--trace", "t.json",
                                     "--", "./program", DCUDA_TAGS="7", OTHER="1"),
                         ["mpirun", "--map-by", "slot", "--bind-to", "none", "--tag-output", "--host", "a:3,b:2", "-n", "5",
                          "-x", "DCUDA_RANKS_PER_DEVICE", "-x", "DCUDA_TAGS", "-x", "DCUDA_TRACE", "-x", "OWN", "./program"])
        self.assertLessEqual({"DCUDA_RANKS_PER_DEVICE=4", "DCUDA_TAGS=7", "DCUDA_TRACE=t.json", "OWN=1"},
                             set(self.kept("environment")))

    def test_hydra(self):
        for kind in ("hydra", "intel"):
            self.play("mpiexec", kind)
            self.assertEqual(self.called("--hosts", "a:2,b:1", "--prefix", "./program", DCUDA_TAGS="7"),
                             ["mpiexec", "-prepend-rank", "-hosts", "a:2,b:1", "-n", "3", "-genvall", "./program"])
            self.assertIn("DCUDA_TAGS=7", self.kept("environment"))

    def test_slurm(self):
        self.play("srun", "slurm")
        options = ["--export=ALL", "--kill-on-bad-exit=1", "--cpu-bind=none"]
        self.assertEqual(self.called("--hosts", "a:2,b:2", "./program", SLURM_JOB_ID="1"),
                         ["srun", *options, "--mpi=pmi2", "--ntasks=4", "--distribution=block", "--nodes=2",
                          "--ntasks-per-node=2", "--nodelist=a,b", "./program"])
        self.assertEqual(self.called("--hosts", "a,b", "-n", 3, "--prefix", "./program", SLURM_JOB_ID="1", SLURM_MPI_TYPE="pmix"),
                         ["srun", *options, "--label", "--ntasks=3", "--distribution=arbitrary", "--nodelist=a,a,b", "./program"])

    def test_launcher_without_hosts(self):
        """It knows them itself, as inside an allocation."""
        self.play("srun", "slurm")
        self.assertEqual(self.called("--launcher", "srun", "-n", 4, "./program")[-2:], ["--ntasks=4", "./program"])
        self.assertNotIn("--ntasks", " ".join(self.called("--launcher", "srun", "./program")))
        self.play("mpirun", "openmpi")
        self.assertEqual(self.called("--launcher", "mpirun", "./program"),
                         ["mpirun", "--map-by", "slot", "--bind-to", "none", "./program"])

    def hosts(self, *arguments):
        result = self.run_it(*arguments, "--dry-run", "./program")
        return re.search(r" --host (\S+) ", result.stdout)[1] if result.returncode == 0 else result.stderr

    def test_layout(self):
        self.play("mpirun", "openmpi")
        for expected, *arguments in (("a:3,b:2,c:2", "--hosts", "a,b,c", "-n", "7"),
                                     ("a:3,b:2,c:3", "--hosts", "a,b:2,c", "-n", "8"),
                                     ("a:1,b:2", "--hosts", "a:1,b:2"),
                                     ("a:2,b:1", "--hosts", "a:2,b:2", "-n", "3"),
                                     ("a:2", "--hosts", "a:2,b", "-n", "2"),
                                     ("10.0.0.1:1,b:2", "--hosts", "10.0.0.1,b:2"),
                                     ("a:2,b:1", "--hosts", "a,b,a")):
            self.assertEqual(self.hosts(*arguments), expected, arguments)
        path = self.path("hosts")
        with open(path, "w") as file:
            file.write("# ours\na slots=2  # two\n\nb:1\nc\nc\n")
        self.assertEqual(self.hosts("--hostfile", path), "a:2,b:1,c:2")
        with open(path, "a") as file:
            file.write("d sluts=2\n")
        self.assertIn("hosts:7: expected host[:N] or host slots=N, not 'sluts=2'", self.hosts("--hostfile", path))

    # ---- which launcher ----

    def test_choice(self):
        self.play("srun", "slurm")
        self.play("mpiexec", "hydra")
        self.assertEqual(self.called("--hosts", "a,b", "./program")[0], "mpiexec")  # srun would wait for an allocation
        self.play("mpirun", "openmpi")
        self.assertEqual(self.called("--hosts", "a,b", "./program")[0], "mpirun")
        self.assertEqual(self.called("--hosts", "a,b", "./program", SLURM_JOB_ID="1")[0], "srun")
        self.assertEqual(self.called("--hosts", "a,b", "--launcher", "mpiexec", "./program", SLURM_JOB_ID="1")[0], "mpiexec")
        self.assertEqual(self.called("--hosts", "a,b", "--launcher", self.path("bin", "mpiexec"), "./program")[0], "mpiexec")
        self.play("mpirun", "other")
        self.assertEqual(self.called("--hosts", "a,b", "./program")[0], "mpiexec")

    def test_there_is_none(self):
        self.check_refused(127, "there is no mpirun or mpiexec in PATH that dcuda-run knows: install Open MPI "
                                "(Debian: openmpi-bin) or MPICH, or name a launcher by --launcher", "--hosts", "a,b", "./program")
        self.play("mpirun", "other")
        self.check_refused(127, "there is no srun, mpirun or mpiexec in PATH", "--hosts", "a,b", "./program", SLURM_JOB_ID="1")
        self.check_refused(2, "--launcher mpirun: by what ", "--hosts", "a,b", "--launcher", "mpirun", "./program")
        self.check_refused(127, "no program aprun in PATH", "--hosts", "a,b", "--launcher", "aprun", "./program")

    def test_this_host_alone_needs_none(self):
        self.play("mpirun", "openmpi")
        for hosts in ("localhost:2", "127.0.0.1:2", os.uname().nodename + ":2", "localhost,localhost"):
            result = self.run_it("--hosts", hosts, "--prefix", "--grace", 3, "bash", "-c", "echo $DCUDA_PROCESS_COUNT")
            self.assertEqual((sorted(result.stdout.splitlines()), result.stderr), (["[0] 2", "[1] 2"], ""))
        self.check_refused(2, "dcuda-run would start this job itself", "--hosts", "localhost:2", "--dry-run", "true")
        self.check_refused(2, "3 processes, but the hosts have 2 slots", "--hosts", "localhost:2", "-n", 3, "true")

    # ---- what is passed on ----

    def test_dcuda_run_becomes_the_launcher(self):
        """So signals, input, output and the exit code need no way of their own."""
        self.play("mpirun", "openmpi")
        command = [launcher, "--hosts", "a,b", "./program"]
        with subprocess.Popen(command, env={**os.environ, "PATH": self.path("bin")}, stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as job:
            self.assertEqual(job.wait(TIMEOUT), 7)
        with open(self.path("pid")) as file:
            self.assertEqual(int(file.read()), job.pid)

    def test_dry_run_calls_nothing(self):
        self.play("mpirun", "openmpi")
        result = self.run_it("--hosts", "a,b", "--dry-run", "./program", "it's")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(shlex.split(result.stdout)[-2:], ["./program", "it's"])
        self.assertFalse(os.path.exists(self.path("arguments")), "a launcher was called")

    def test_what_another_job_has_told(self):
        """Of the job that dcuda-run is a process of; the user's own variables stay, and no value is on a command line."""
        self.play("mpirun", "openmpi")
        told = {f"DCUDA_{name}": "3" for name in ("PROCESS_INDEX", "PROCESS_COUNT", "LOCAL_INDEX", "LOCAL_COUNT", "BLAME_FD")}
        words = self.called("--hosts", "a,b", "./program", DCUDA_JOB="5e5a0e" * 5 + "00", **told)
        names = {variable.split("=")[0] for variable in self.kept("environment")}
        self.assertEqual({name for name in (*words, *names) if name.startswith("DCUDA_")}, {"DCUDA_JOB"})
        self.assertNotIn("5e5a0e", " ".join(words))

    def test_what_cannot_be_passed_on(self):
        self.play("mpirun", "openmpi")
        for option, value in (("--output-dir", "out"), ("--grace", "1")):
            self.check_refused(2, f"{option} works on this host only", "--hosts", "a,b", option, value, "./program")
            self.check_refused(2, f"{option} works on this host only", "--launcher", "mpirun", option, value, "./program")
        self.check_refused(2, "would take this program for an option", "--hosts", "a,b", "--", "-program")
        self.check_refused(2, "the argument ':' cannot be passed on", "--hosts", "a,b", "./program", ":")
        for option in ("--ssh", "--interface", "--remote-path"):
            self.check_refused(2, f"unknown option {option}", "--hosts", "a,b", option, "x", "./program")

    def test_wrong_lists(self):
        self.play("mpirun", "openmpi")
        for error, *arguments in (("8 processes, but the hosts have 3 slots; give them more, as in a:6",
                                   "--hosts", "a:1,b:2", "-n", "8"),
                                  ("number of slots from 1", "--hosts", "a:0"),
                                  ("number of slots from 1", "--hosts", "a:x"),
                                  ("number of slots from 1", "--hosts", "fe80::1"),
                                  ("is no host[:slots]", "--hosts", "a,,b"),
                                  ("is no host[:slots]", "--hosts", "-oProxyCommand=x"),
                                  ("is no host[:slots]", "--hosts", "me@there"),
                                  ("is no host[:slots]", "--hosts", "[fe80::1]:2"),
                                  ("no host given", "--hosts", ""),
                                  ("No such file", "--hostfile", "/missing"),
                                  ("there is no host in it", "--hostfile", "/dev/null"),
                                  ("excludes", "--hostfile", "/dev/null", "--hosts", "a")):
            self.check_refused(2, error, *arguments, "true")

    # ---- with a launcher that is here ----

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no Open MPI")
    def test_processes_meet_under_open_mpi(self):
        result = self.run_it("--launcher", "mpirun.openmpi", "--hosts", "localhost:3", show_job, PATH=os.environ["PATH"],
                             OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), [f"openmpi {i}/3 {i}/3 met" for i in range(3)])

    @unittest.skipUnless(shutil.which("mpiexec.hydra"), "no MPICH")
    def test_processes_meet_under_hydra(self):
        result = self.run_it("--launcher", "mpiexec.hydra", "--hosts", "localhost:3", show_job, PATH=os.environ["PATH"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), [f"pmi {i}/3 {i}/3 met" for i in range(3)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
