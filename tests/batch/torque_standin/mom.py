"""pbs_mom: what runs on a node."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time

from tests.batch.torque_standin.calls import VERSION, Call, say
from tests.batch.torque_standin.server import Server, opened


def pbs_mom(call: Call) -> int:
    """Holds a lock while it lives, and runs the jobs whose first node it is on."""
    if "--version" in call.arguments:
        return say(VERSION)
    name = socket.gethostname().partition(".")[0]
    trace = call.place / "moms" / name
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        with trace.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            print(os.getpid(), os.environ.get("TIDE_ADDRESS", ""), file=held, flush=True)
            while True:
                with opened(call.place) as server:
                    _tend(server, name, running)
                time.sleep(0.2)
    finally:
        trace.unlink(missing_ok=True)
        for child in running.values():
            child.kill()


def _tend(server: Server, name: str, running: dict[str, "subprocess.Popen[bytes]"]) -> None:
    for id, child in list(running.items()):
        job = server.jobs.get(id)
        if child.poll() is not None or job is None or job["state"] != "R":
            child.kill()
            child.wait()
            del running[id]
            if job is not None and job["state"] == "R":
                server.end(job)
    for job in server.jobs.values():
        if job["state"] == "R" and next(iter(job["slots"])) == name and not job.get("begun"):
            job["begun"] = True
            environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "PBS_JOBID": job["id"]}
            running[job["id"]] = subprocess.Popen(
                ["/bin/sh", "-c", job["script"]], env=environment, stdin=subprocess.DEVNULL
            )
