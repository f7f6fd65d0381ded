#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Starts the processes of a job on several hosts by environment variables alone, as docs/guide/running.md has them.
Usage: start_job.py RENDEZVOUS COUNT_PER_HOST JSON... -- COMMAND...

Each JSON text is the beginning of a command that runs what follows it on one of the hosts. Ends when all processes have, with
the exit code of one that failed.
"""
import json
import os
import secrets
import subprocess
import sys

end = sys.argv.index("--")
rendezvous, per_host, hosts, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:end], sys.argv[end + 1:]
job = {"DCUDA_PROCESS_COUNT": str(len(hosts) * per_host), "DCUDA_LOCAL_COUNT": str(per_host),
       "DCUDA_RENDEZVOUS": rendezvous, "DCUDA_JOB": secrets.token_hex(16)}
processes = []
for number, host in enumerate(hosts):
    for local in range(per_host):
        own = {"DCUDA_PROCESS_INDEX": str(number * per_host + local), "DCUDA_LOCAL_INDEX": str(local)}
        processes.append(subprocess.Popen([*json.loads(host), *command], env={**os.environ, **job, **own}))
codes = [process.wait() for process in processes]
sys.exit(max(128 - code if code < 0 else code for code in codes))
