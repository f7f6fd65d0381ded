#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Prints the GPUs that a CUDA program sees here, one a line: all that nvidia-smi lists, or those that CUDA_VISIBLE_DEVICES
# names, up to the first that is not here, as CUDA does it.
set -euo pipefail
present=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
[ "${present:-0}" -gt 0 ] || exit 0
if [ -z "${CUDA_VISIBLE_DEVICES+set}" ]; then
    seq 0 $((present - 1))
    exit
fi
IFS=, read -ra names <<<"$CUDA_VISIBLE_DEVICES"
for name in "${names[@]}"; do
    # A number, or the first letters of a UUID.
    if [[ $name =~ ^[0-9]+$ ]]; then
        [ "$name" -lt "$present" ] || break
    else
        nvidia-smi -L | grep -qF "(UUID: $name" || break
    fi
    echo "$name"
done
