#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command that needs a number of GPUs; ends with 77 (skipped), and says why, where there are fewer.
#   scripts/needs_gpus.sh COUNT COMMAND...
set -euo pipefail
needed=$1
shift
present=$("$(dirname "$0")/gpus.sh" | wc -l)
if [ "$present" -lt "$needed" ]; then
    echo "skipped: needs $needed GPUs, here are $present"
    exit 77
fi
exec "$@"
