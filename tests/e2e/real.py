"""A real cluster for tests: its daemon as a process of its own, a real slurmctld, container nodes.

`cluster(...)` deploys one and takes it away again, whatever happens in between; what is left of
it after that is an error of its own.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from springtide.cli.client import Away, Client
from springtide.compose import compose
from springtide.layout import Layout
from springtide.ports import Unavailable
from springtide.spec import load
from springtide.steps.work import insist
from tests.as_user import as_user
from tests.leftovers import owned

T = TypeVar("T")
Json = dict[str, Any]

LIMIT_S = 200.0
"""How long a busy machine may take for anything: who waits for a condition loses nothing by it.

Longer than the `timing.start` of most: a node that did not come up is given back by then."""
MOST_REST_S = 0.5
DEPLOY_S = 300.0
"""For a whole deploy: databases, images and Ansible may be part of it."""
COMMAND_S = 600.0
"""For a command that waits for what it began: machines without help of the processor may boot."""


def until(look: Callable[[], T], limit_s: float = LIMIT_S, pause_s: float = 0.05) -> T:
    """What `look` says once it says something true; fails with its last word.

    It rests for as long as it looked: most looks are commands, and others need the machine.
    """
    end = time.monotonic() + limit_s
    began_at = time.monotonic()
    while not (said := look()):
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"not within {limit_s} s; the last look said {said!r}")
        time.sleep(min(max(pause_s, now - began_at), MOST_REST_S))
        began_at = time.monotonic()
    return said


def remains(holds: Callable[[], bool], for_s: float, pause_s: float = 0.5) -> None:
    """Fails at the first look at which it does not hold any more."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < for_s:
        assert holds(), f"no longer so after {passed:.0f} s"
        time.sleep(pause_s)


class RealCluster:
    """One deployed cluster."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        self.file = root / "cluster.yaml"
        self.state = root / "s"
        self.shared = root / "shared"
        self.shared.mkdir(mode=0o777, exist_ok=True)
        self.shared.chmod(0o777)
        self.write(text)
        self.client = Client(self.state)
        self.daemon: subprocess.Popen[bytes] | None = None
        self.links: set[str] = set()

    def write(self, text: str) -> None:
        self.file.write_text(f"state: {self.state}\n" + text.replace("SHARED", str(self.shared)))

    # --- the daemon

    def start_daemon(self) -> None:
        with (self.root / "daemon.out").open("ab") as out:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "springtide.cli.main", "daemon", str(self.file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        until(self._answers)

    def _answers(self) -> bool:
        assert self.daemon is not None
        if self.daemon.poll() is not None:
            raise AssertionError((self.root / "daemon.out").read_text())
        try:
            self.client.get("/plan")
        except Away:
            return False
        return True

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()

    def restart_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.terminate()
        self.daemon.wait(timeout=LIMIT_S)
        self.start_daemon()

    def tide(
        self, *arguments: str, user: str | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "springtide.cli.main", *arguments]
        command = as_user(user, *command) if user else command
        env = {**os.environ, "TIDE_STATE": str(self.state), "COLUMNS": "200"}
        options = {"timeout": COMMAND_S, **options}
        return subprocess.run(
            command, env=env, text=True, capture_output=True, check=False, **options
        )

    def deploy(self) -> Json:
        answer = self.client.post("/operations", {"operation": "deploy"})
        return self.ended(answer["operations"][0]["id"], DEPLOY_S)

    def ended(self, id: int, limit_s: float = LIMIT_S) -> Json:
        def over() -> Json | None:
            operation = self.client.get(f"/operations/{id}")
            return operation if operation["ended_at"] is not None else None

        return until(over, limit_s) or {}

    def record(self, names: str | None = None) -> dict[str, Json]:
        rows = self.client.get("/nodes", names=names, world=0)["nodes"]
        return {row["name"]: row for row in rows}

    def states(self, names: str) -> set[str]:
        return {row["state"] for row in self.record(names).values()}

    def events(self, **which: Any) -> list[Json]:
        return list(self.client.lines("/events", limit=100_000, **which))

    # --- Slurm

    def slurm(self, *command: str, user: str | None = None) -> str:
        done = self.try_slurm(*command, user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_slurm(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "SLURM_CONF": str(self.state / "conf" / "slurm.conf")}
        return subprocess.run(
            command,
            env=env,
            text=True,
            capture_output=True,
            cwd=self.shared,
            timeout=LIMIT_S,
            user=user,
            extra_groups=[] if user else None,
            check=False,
        )

    def sbatch(self, script: str, *options: str) -> str:
        """Submit; answers the job's id. Output goes to shared/<id>.out."""
        command = ["sbatch", "--parsable", "-o", f"{self.shared}/%A.%a.out", *options]
        return self.slurm(*command, "--wrap", script).strip()

    def job(self, id: str) -> Json:
        """What Slurm shows of it; nothing, while slurmctld does not answer."""
        shown = self.try_slurm("scontrol", "-o", "show", "job", id).stdout.split("\n")[0]
        found = (word.partition("=")[::2] for word in shown.split() if "=" in word)
        return defaultdict(str, found)

    def finished(self, id: str, limit_s: float = LIMIT_S) -> Json:
        """The job once it is over (all its tasks), which must be well."""

        def over() -> bool:
            listed = self.try_slurm("squeue", "-h", "--job", id)
            return listed.returncode == 0 and not listed.stdout.strip()

        until(over, limit_s)
        job = until(lambda: (seen := self.job(id))["JobState"] and seen)
        assert job["JobState"] == "COMPLETED", job
        return job

    def output(self, id: str) -> list[str]:
        """All lines that the job and its tasks wrote, sorted."""
        files = self.shared.glob(f"{id}.*.out")
        return sorted(line for file in files for line in file.read_text().split())

    def node(self, name: str) -> Json:
        """What Slurm shows of it; nothing, while slurmctld does not answer."""
        shown = self.try_slurm("scontrol", "-o", "show", "node", name).stdout
        return defaultdict(str, (word.partition("=")[::2] for word in shown.split() if "=" in word))

    def all_off(self, names: str, limit_s: float = LIMIT_S) -> None:
        until(lambda: self.states(names) == {"off"}, limit_s)

    # --- the end

    def sweep(self) -> None:
        """Take everything away, with or without a daemon; the record does not matter any more."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.kill_daemon()
        self.note_links()
        if self.state.exists():
            # In a thread of its own: the loop of the test run is not ours to replace.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, _remove(self.file)).result()
        shutil.rmtree(self.root, ignore_errors=True)

    def note_links(self) -> None:
        """The bridge and its ports, as long as there is a site to ask."""
        site = self.state / "containers" / "site.json"
        if site.exists():
            bridge = json.loads(site.read_text())["bridge"]
            ports = Path("/sys/class/net", bridge, "brif")
            self.links |= {bridge, *(p.name for p in ports.glob("*"))}

    def left_behind(self) -> list[str]:
        """Processes, mounts and links that still know the cluster."""
        mark = str(self.root)
        links = [f"link {name}" for name in self.links if Path("/sys/class/net", name).exists()]
        return [
            *links,
            *(f"process {line}" for line in processes() if mark in line),
            *(
                f"mount {line}"
                for line in Path("/proc/mounts").read_text().split("\n")
                if mark in line
            ),
        ]

    def see_it_gone(self) -> None:
        """Programs that slurmctld called end by themselves when nobody answers them."""
        end = time.monotonic() + LIMIT_S
        while (left := self.left_behind()) and time.monotonic() < end:
            time.sleep(0.1)
        assert left == [], left


async def _remove(file: Path) -> None:
    daemon = compose(load(file))
    with suppress(Unavailable):  # one of somebody else's may be gone by now
        await daemon.parts.batch.stop()
    await daemon.parts.configurator.stop()
    for provider in daemon.parts.distinct_providers():
        # A container that is slow to end is waited for less long than a busy machine may take.
        await insist(partial(provider.remove, daemon.spec.cluster), LIMIT_S)
        await provider.close()
    await daemon.parts.record.store.close()


def processes() -> Iterator[str]:
    """Those of this machine but for this one: the id of each, and its command."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if int(path.parent.name) != os.getpid():
            yield f"{path.parent.name} {b' '.join(words).decode(errors='replace')}"


@contextmanager
def cluster(text: str, *, deployed: bool = True) -> Iterator[RealCluster]:
    """A cluster from a spec (SHARED stands for its shared directory), deployed and removed."""
    root = Path(tempfile.mkdtemp(prefix="tide-", dir="/var/tmp"))
    root.chmod(0o755)
    with owned(root):
        real = RealCluster(root, text)
        try:
            real.start_daemon()
            if deployed:
                done = real.deploy()
                assert done["state"] == "done", done
            yield real
        except BaseException:
            _show(real)
            raise
        finally:
            real.sweep()
    real.see_it_gone()
    shutil.rmtree(root, ignore_errors=True)  # the last of them may have written something there
    assert not root.exists()


def _show(real: RealCluster) -> None:
    """What a failed test leaves to read."""
    layout = Layout(real.state)
    logs = [*sorted(layout.log.glob("*.log")), *sorted(layout.boots.glob("*"))]
    for path in (real.root / "daemon.out", *logs):
        if path.exists():
            print(f"=== {path.name}", *path.read_text().splitlines()[-60:], sep="\n")
