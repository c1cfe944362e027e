"""A Slurm that somebody else runs: munged, slurmctld and a slurmd of this machine, by hand.

`existing(...)` starts one beside a cluster's file and takes both away again, whatever happens in
between; what is left of them after that is an error of its own.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from springtide.batch.slurm_service import account
from springtide.cli.client import Away
from tests.e2e.real import LIMIT_S, RealCluster, until
from tests.leftovers import place

Done = subprocess.CompletedProcess[str]

HOST = socket.gethostname().partition(".")[0]
CONF = """\
# Written by hand, long before anybody thought of elastic nodes.
ClusterName=site
SlurmctldHost=HOST
SlurmctldPort=PORT
SlurmdPort=NODE_PORT
SlurmUser=slurm
AuthInfo=socket=ROOT/munge/munge.socket
StateSaveLocation=ROOT/slurmctld
SlurmctldPidFile=ROOT/slurmctld/slurmctld.pid
SlurmctldLogFile=ROOT/slurmctld/slurmctld.log
SlurmdSpoolDir=/var/spool/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=batch_sched_delay=0,sched_interval=2
TreeWidth=3   # a small one will do
PrologSlurmctld=ROOT/etc/prolog
SlurmctldParameters=PARAMETERS
NodeName=static1 NodeHostname=HOST NodeAddr=127.0.0.1 CPUs=1
PartitionName=old Nodes=static1 Default=YES
"""
PROLOG = """\
#!/bin/sh
echo "$SLURM_JOB_ID" >>ROOT/slurmctld/prologs
"""
STATIC_NODE = """\
mount -t tmpfs none /var/spool
exec slurmd -D -N static1 -f "$1"
"""


class Existing(RealCluster):
    """That Slurm, and a cluster that is to be attached to it."""

    def __init__(self, root: Path, spec: str, port: int, parameters: str, lines: str = "") -> None:
        self.conf = root / "etc" / "slurm.conf"
        self.key = root / "key" / "munge.key"
        self._places = {"ROOT": str(root), "HOST": HOST, "NODE_PORT": str(port + 1)}
        self._places |= {"PORT": str(port), "PARAMETERS": parameters}
        self._lines = lines
        super().__init__(root, self._filled(spec))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def _filled(self, text: str) -> str:
        for mark, value in self._places.items():
            text = text.replace(mark, value)
        return text

    def rewrite(self, spec: str) -> None:
        self.write(self._filled(spec))

    # --- its files

    def make(self) -> None:
        for name, user, mode in (
            ("etc", "root", 0o755),
            ("key", "munge", 0o700),
            ("munge", "munge", 0o711),
            ("slurmctld", "slurm", 0o755),
        ):
            (self.root / name).mkdir()
            self._own(self.root / name, user, mode)
        self.conf.write_text(self._filled(CONF + self._lines))
        self.make_key(self.key)
        prolog = self.conf.with_name("prolog")
        prolog.write_text(self._filled(PROLOG))
        prolog.chmod(0o755)

    def make_key(self, path: Path) -> None:
        path.write_bytes(secrets.token_bytes(1024))
        self._own(path, "munge", 0o400)

    def _own(self, path: Path, user: str, mode: int) -> None:
        owner = account(user)
        os.chown(path, owner.pw_uid, owner.pw_gid)
        path.chmod(mode)

    # --- its processes

    def start(self) -> None:
        place = self.root / "munge"
        listening = place / "munge.socket"
        files = [f"--{key}-file={place / key}" for key in ("pid", "seed", "log")]
        munged = ["munged", "--foreground", f"--key-file={self.key}", f"--socket={listening}"]
        self._start("munged", *_as("munge"), *munged, *files)
        until(listening.is_socket)
        self.start_slurmctld()
        spaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        self._start("slurmd", *spaces, "sh", "-ec", STATIC_NODE, "sh", str(self.conf))
        until(lambda: self.node("static1")["State"] == "IDLE")

    def start_slurmctld(self) -> None:
        self._start("slurmctld", *_as("slurm"), "slurmctld", "-D", "-f", str(self.conf))
        until(lambda: self.try_slurm("scontrol", "ping").returncode == 0)

    def restart_slurmctld(self) -> None:
        """As its owner does."""
        self.stop("slurmctld")
        self.start_slurmctld()

    def _start(self, name: str, *command: str) -> None:
        with (self.root / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def is_running(self, name: str) -> bool:
        """As the very process that was started."""
        return self._running[name].poll() is None

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """A slurmd that has reread its files does not end with who started it."""
        process = self._running.pop(name)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(how)
        process.wait(timeout=LIMIT_S)
        for pid in children if name == "slurmd" else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    # --- its users

    def try_slurm(self, *command: str, user: str | None = None) -> Done:
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(
            command,
            env=environment,
            cwd=self.shared,
            text=True,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )

    def prologs(self) -> list[str]:
        """The jobs that its own prolog ran for."""
        return (self.root / "slurmctld" / "prologs").read_text().split()

    def attach(self, *options: str) -> Done:
        return self.tide("attach", str(self.file), *options)

    # --- the end

    def end(self) -> None:
        self.note_links()
        with suppress(Away, ProcessLookupError):
            os.kill(self.client.daemon_pid(), signal.SIGKILL)
        for name in tuple(self._running):
            self.stop(name, signal.SIGKILL)
        if self.state.exists() and self.conf.exists():
            self.sweep()
        shutil.rmtree(self.root, ignore_errors=True)


def _as(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--")


@contextmanager
def existing(
    spec: str, port: int, parameters: str = "max_dbd_msg_action=discard", lines: str = ""
) -> Iterator[Existing]:
    """A Slurm with one static node, and the file of a cluster for it.

    In the spec ROOT stands for a directory of both, and SHARED for one that nodes see. `lines` are
    further ones of slurm.conf.
    """
    with place() as root:
        site = Existing(root, spec, port, parameters, lines)
        try:
            site.make()
            site.start()
            yield site
        except BaseException:
            wanted = ("*.out", "slurmctld/*.log", "s/log/*", "s/boots/*")
            for path in (path for each in wanted for path in root.glob(each)):
                print(f"=== {path.name}", *path.read_text().splitlines()[-40:], sep="\n")
            raise
        finally:
            site.end()
        site.see_it_gone()  # before the directory goes, in which the last of it may write
    assert not root.exists()
