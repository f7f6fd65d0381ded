#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command that needs a number of GPUs; ends with 77 (skipped), and says why, where there are fewer.
#   scripts/needs_gpus.sh COUNT COMMAND...
set -euo pipefail
needed=$1
shift
present=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
if [ "${present:-0}" -lt "$needed" ]; then
    echo "skipped: needs $needed GPUs, here are ${present:-0}"
    exit 77
fi
exec "$@"
