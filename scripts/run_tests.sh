#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the tests of a build directory with CTest and closes with "N passed, N failed, N skipped". A test that was
# skipped, wholly or in part, is named with its reason.
#
#   scripts/run_tests.sh <build directory> [CTest's arguments]
set -euo pipefail
if [ $# -lt 1 ] || [ ! -e "$1/CTestTestfile.cmake" ]; then
    echo "Use: $0 <build directory> [CTest's arguments]; the directory must be configured with tests." >&2
    exit 2
fi
build=$(realpath "$1")
shift
results="$build/test-results.xml"
rm -f "$results"
status=0
# Twice as many at a time as there are cores: many tests wait for something. What needs two cores says so.
ctest --test-dir "$build" --output-on-failure --parallel "$((2 * $(nproc)))" --timeout 300 --test-output-size-passed 200000 \
    --output-junit "$results" "$@" </dev/null || status=$?
[ -e "$results" ] || { echo "CTest wrote no results." >&2; exit 1; }

python3 - "$results" "$status" <<'PYTHON'
import re
import sys
import xml.etree.ElementTree as xml

cases = xml.parse(sys.argv[1]).getroot().findall("testcase")
passed = failed = skipped = 0
notes = []
for case in cases:
    name, status = case.get("name"), case.get("status")
    output = re.sub(r"\x1b\[[0-9;]*m", "", case.findtext("system-out") or "")
    if status == "run":
        passed += 1
    elif status in ("notrun", "disabled") and case.find("skipped") is not None and "SKIP_" in case.find("skipped").get("message", ""):
        skipped += 1
        reasons = [line.strip() for line in output.splitlines() if line.strip()]
        notes.append(f"skipped: {name}: {reasons[-1] if reasons else 'no reason given'}")
    else:
        failed += 1
        notes.append(f"failed: {name}")
    # GoogleTest prints a skipped case as "file:line: Skipped" and then its reason.
    for reason in sorted(set(re.findall(r"Skipped\n(.+)", output))):
        notes.append(f"skipped in {name}: {reason}")
print("\n".join(notes))
print(f"{passed} passed, {failed} failed, {skipped} skipped")
# Nothing tested is no success.
sys.exit(1 if failed or not passed or int(sys.argv[2]) != 0 else 0)
PYTHON
