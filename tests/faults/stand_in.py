#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Starts processes as a launcher does that is not here: stand_in.py torchrun|srun|pmi COUNT STARTED COMMAND...

Tells each of STARTED processes that it is one of COUNT. torchrun is the parent of its processes, PMI launchers have a proxy
between (here none), and srun a slurmstepd, which does not end with it: srun listens at a port instead. Prints the numbers of
its own processes, and waits.
"""
import os
import socket
import subprocess
import sys

kind, count, started, *command = sys.argv[1:]


def variables(process, port):
    number, of = str(process), str(count)
    if kind == "torchrun":
        return {"RANK": number, "WORLD_SIZE": of, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": of, "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}
    if kind == "srun":
        return {"SLURM_PROCID": number, "SLURM_NTASKS": of, "SLURM_LOCALID": number, "SLURM_STEP_TASKS_PER_NODE": of,
                "SLURM_JOB_ID": str(port), "SLURM_STEP_ID": "0", "SLURM_SRUN_COMM_PORT": str(port)}
    return {"PMI_RANK": number, "PMI_SIZE": of, "MPI_LOCALRANKID": number, "MPI_LOCALNRANKS": of}


def run_processes(port):
    children = [subprocess.Popen(command, env={**os.environ, **variables(process, port)}) for process in range(int(started))]
    codes = [child.wait() for child in children]
    return max(128 - code if code < 0 else code for code in codes)


with socket.create_server(("127.0.0.1", 0)) as listener:
    port = listener.getsockname()[1]
    print(f"launcher has pid {os.getpid()}", flush=True)
    if kind == "srun":
        daemon = os.fork()
        if daemon == 0:
            listener.close()
            os.setsid()
            print(f"daemon has pid {os.getpid()}", flush=True)
            os._exit(run_processes(port))
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(daemon, 0)[1]))
    sys.exit(run_processes(port))
