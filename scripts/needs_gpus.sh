#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command that needs a number of GPUs; ends with 77 (skipped), and says why, where there are fewer. Where CTest has
# given it GPUs (a resource specification: scripts/gpu_check.sh), the command sees only those.
#   scripts/needs_gpus.sh COUNT COMMAND...
set -euo pipefail
needed=$1
shift
mapfile -t present < <("$(dirname "$0")/gpus.sh")
if [ "${#present[@]}" -lt "$needed" ]; then
    echo "skipped: needs $needed GPUs, here are ${#present[@]}"
    exit 77
fi
if [ -n "${CTEST_RESOURCE_GROUP_COUNT:-}" ]; then
    order=()
    for ((group = 0; group < CTEST_RESOURCE_GROUP_COUNT; group++)); do
        given=CTEST_RESOURCE_GROUP_${group}_GPUS # such as id:0,slots:1
        given=${!given#id:}
        order+=("${given%%,*}")
    done
    # CTest may give one GPU twice while another is busy: then the command shares that one, too.
    order+=("${!present[@]}")
    visible=()
    for index in "${order[@]}"; do
        [ "${#visible[@]}" -lt "$CTEST_RESOURCE_GROUP_COUNT" ] || break
        [[ " ${visible[*]} " == *" ${present[index]} "* ]] || visible+=("${present[index]}")
    done
    CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${visible[*]}")
    export CUDA_VISIBLE_DEVICES
fi
exec "$@"
