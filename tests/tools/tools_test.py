#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What all tools have in common: --version, an error with status 2 for options that they do not know, and lines for terminals.
Usage: tools_test.py PATH_OF_config.hpp PATH_OF_TOOL...
"""
import os
import re
import subprocess
import sys
import unittest

config, *tools = sys.argv[1:]
COLUMNS = 120


def run(tool, *arguments):
    return subprocess.run([tool, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "COLUMNS": str(COLUMNS)})


class ToolsTest(unittest.TestCase):
    def test_version(self):
        with open(config) as file:
            version = re.search(r'DCUDA_VERSION_STRING "(.*)"', file.read())[1]
        for tool in tools:
            result = run(tool, "--version")
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (0, f"{os.path.basename(tool)} {version}\n", ""))

    def test_unknown_options(self):
        for tool in tools:
            for option in ("--no-such-option", "-q", "--no-such=3"):
                with self.subTest(tool=tool, option=option):
                    result = run(tool, option)
                    self.assertEqual((result.returncode, result.stdout), (2, ""))
                    self.assertIn(option, result.stderr)

    def test_help_fits_a_terminal(self):
        for tool in tools:
            result = run(tool, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual([line for line in result.stdout.splitlines() if len(line) > COLUMNS], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
