#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a program in which the last process reaches the others over a network only, and these each other directly, as on two
# hosts. Use, by dcuda-run: last_apart.sh PROGRAM [ARGUMENT...]
if [ "$((DCUDA_PROCESS_INDEX + 1))" = "$DCUDA_PROCESS_COUNT" ]; then
    export DCUDA_DISABLE_PEER=1
fi
exec "$@"
