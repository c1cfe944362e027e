"""A real Slurm that somebody else runs: munged, slurmctld, and a machine with a slurmd per node.

Every daemon is a process of its own group, and nodes are machines of their own: killing it takes
all that it started along, as if a machine lost its power.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from springtide.batch.slurm_polled_nodes import KEPT
from springtide.batch.slurm_service import account
from tests.e2e.real import LIMIT_S, until
from tests.e2e.saving import holds
from tests.ports import free_ports
from tests.spaces import Network, cut, start

HOST = socket.gethostname().partition(".")[0]
USER = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--")
OTHER = ("setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups", "--")
"""Who submit jobs, and may change nothing but their own."""
CONF = """\
ClusterName=psite
SlurmctldHost=HOST(CONTROL)
SlurmctldPort=PORT
SlurmdPort=REACHED
SlurmUser=slurm
AuthInfo=socket=ROOT/munge/munge.socket,cred_expire=60
StateSaveLocation=ROOT/slurmctld
SlurmctldPidFile=ROOT/slurmctld/slurmctld.pid
SlurmctldLogFile=ROOT/slurmctld/slurmctld.log
SlurmdLogFile=ROOT/slurmd-%n.log
SlurmdPidFile=ROOT/slurmd-%n.pid
SlurmdSpoolDir=ROOT/spool-%n
SlurmdTimeout=60
MessageTimeout=20
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=50
MailProg=/bin/true
SchedulerParameters=batch_sched_delay=0,sched_interval=1
"""
NODE = "NodeName={} NodeAddr={} CPUs=4 RealMemory=1000 Feature={}"
STATIC = "static1"


class SlurmBed:
    """One Slurm with nodes of ours that are off, and a node of its own that is up."""

    def __init__(self, root: Path, network: Network, nodes: Sequence[str]) -> None:
        self.root = root
        self.conf = self.root / "slurm.conf"
        self.network = network
        names = (STATIC, *nodes)
        self.addresses = {name: network.address(at) for at, name in enumerate(names, start=1)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.conf.write_text(self._render(nodes))

    def _render(self, nodes: Sequence[str]) -> str:
        lines = [NODE.format(name, self.addresses[name], "big") for name in nodes]
        own = NODE.format(STATIC, self.addresses[STATIC], "house")
        old = f"PartitionName=old Nodes={STATIC} Default=YES"
        cloud = f"PartitionName=cloud Nodes={','.join(nodes)}\n"
        text = "\n".join([CONF, own, *lines, old, cloud])
        port, reached = map(str, free_ports(2))
        known = {"ROOT": str(self.root), "HOST": HOST, "CONTROL": self.network.control}
        for mark, value in {**known, "PORT": port, "REACHED": reached}.items():
            text = text.replace(mark, value)
        return text

    # --- daemons

    def start(self) -> None:
        for name, user, mode in (
            ("munge", "munge", 0o711),
            ("slurmctld", "slurm", 0o755),
            ("out", "nobody", 0o755),
        ):
            self._make(name, user, mode)
        key = self.root / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        self._own(key, "munge", 0o400)
        place = self.root / "munge"
        listening = place / "munge.socket"
        files = [f"--{one}-file={place / one}" for one in ("pid", "seed", "log")]
        munged = ["munged", "--foreground", f"--key-file={key}", f"--socket={listening}"]
        self._start("munged", *_as("munge"), *munged, *files)
        until(listening.is_socket)
        self.start_slurmctld()
        self.boot(STATIC)
        self._wait_for_static()

    def start_slurmctld(self) -> None:
        self._start("slurmctld", *_as("slurm"), "slurmctld", "-D", "-f", str(self.conf))
        until(lambda: self.run("scontrol", "ping").returncode == 0)

    def boot(self, name: str) -> None:
        command = ("slurmd", "-D", "-N", name, "-f", self.conf)
        with (self.root / f"{name}.out").open("ab") as out:
            self._running[name] = start(self.network, name, self.addresses[name], command, out)

    def _make(self, name: str, user: str, mode: int) -> None:
        (self.root / name).mkdir()
        self._own(self.root / name, user, mode)

    def _own(self, path: Path, user: str, mode: int) -> None:
        owner = account(user)
        os.chown(path, owner.pw_uid, owner.pw_gid)
        path.chmod(mode)

    def _start(self, name: str, *command: str) -> None:
        with (self.root / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self._running.pop(name)
        os.killpg(process.pid, how)
        process.wait(timeout=LIMIT_S)

    def cut(self, name: str) -> None:
        """A node loses its power."""
        cut(self._running.pop(name))

    def await_saved(self, reason: str) -> None:
        """Until it has written down a drain, and so all that was before it."""
        until(lambda: holds(self.root / "slurmctld" / "node_state", reason))

    def stop_slurmctld(self) -> None:
        """It writes down what it knows, which it otherwise does only every few seconds. A job that
        it calls running, but that has not reached its node, would wait again when it starts."""
        until(self._have_begun)
        self.kill("slurmctld", signal.SIGTERM)

    def _have_begun(self) -> bool:
        """Whether the output is there of all jobs that run."""
        listed = self.told("squeue", "--noheader", "--states=RUNNING", "-o", "%A").split()
        return all((self.root / "out" / job).exists() for job in listed)

    def reset(self, nodes: Sequence[str]) -> None:
        """No jobs, and nodes as somebody resumed them that are off. A slurmctld that has just
        started takes seconds until it starts a job, so it stays; that our mark does too is because
        it sometimes takes a node that was resumed after its slurmd died for one that responds,
        until it next asks for it."""
        for name in nodes:
            if name in self._running:
                self.cut(name)
        if "slurmctld" not in self._running:
            self.start_slurmctld()
        # Not by their owner: 26.05 takes `nobody` for no user.
        if jobs := self.told("squeue", "--noheader", "-o", "%A").split():
            self.told("scancel", "--quiet", *jobs)
        listed = f"nodename={','.join(nodes)}"
        self.told("scontrol", "update", listed, "state=down", "reason=reset")
        until(lambda: not self.told("squeue", "--noheader"))
        self.told("scontrol", "update", listed, "state=resume", f"comment={KEPT}")
        until(lambda: all("NOT_RESPONDING" in self.state(name) for name in nodes))
        self._wait_for_static()

    def forget(self) -> None:
        """As if slurmctld had never run before."""
        self.stop_slurmctld()
        shutil.rmtree(self.root / "slurmctld")
        self._make("slurmctld", "slurm", 0o755)
        self.start_slurmctld()
        self._wait_for_static()

    def _wait_for_static(self) -> None:
        until(lambda: self.state(STATIC) == "IDLE")

    def end(self) -> None:
        for name in tuple(self._running):
            self.kill(name)

    # --- its people

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            cwd="/",
            text=True,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )

    def told(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sbatch(self, *options: str) -> str:
        fixed = ("sbatch", "--parsable", f"--output={self.root}/out/%j", "--wrap=sleep 600")
        return self.told(*USER, *fixed, *options)

    def state(self, name: str) -> str:
        return self.field("node", name, "State")

    def field(self, kind: str, name: str, key: str) -> str:
        text = self.told("scontrol", "-o", "show", kind, name)
        return text.partition(f" {key}=")[2].partition(" ")[0]


def _as(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--")
