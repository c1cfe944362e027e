"""A Slurm as `tide deploy` makes it, whose programs only note that they were called, with real
slurmds on machines of their own."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.batch.slurm import Slurm
from springtide.configure.slurm_node import ensure_munge_key
from springtide.hook import PROGRAMS
from springtide.layout import Layout
from springtide.ports import BatchNode, Site
from springtide.spec import Cluster
from tests.e2e.real import processes
from tests.leftovers import place
from tests.ports import free_ports
from tests.spaces import Network, cut, network, start

LIMIT_S = 100.0
PARAMETERS = {"MessageTimeout": "30"}
"""A busy machine may stand still for a while."""
NOTE_CALL = """\
#!/bin/sh
PATH=/usr/bin:/bin
echo "${0##*/} $1" >>{home}/calls
while [ "${0##*/}" = prolog ] && [ -e {home}/hold ]; do sleep 0.05; done
"""


def note_calls(programs: Path, home: Path) -> None:
    """Slurm's programs, which only note that they were called; a slurmctld may not start without
    those that it is to call."""
    programs.mkdir(exist_ok=True)
    calls = home / "calls"
    calls.touch()
    calls.chmod(0o666)
    for program in PROGRAMS:
        path = programs / program
        path.write_text(NOTE_CALL.replace("{home}", str(home)))
        path.chmod(0o755)


@dataclass
class Lab:
    """A cluster whose programs only note that they were called."""

    home: Path
    network: Network
    address: str
    port: int = 0
    node_port: int = 0
    opened: list[Slurm] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        return Layout(self.home / "state")

    def cluster(self, nodes: str = "c[1-8]", **more: Any) -> Cluster:
        parameters = {**PARAMETERS, **more.pop("parameters", {})}
        rates = {key: more.pop(key, 0) for key in ("resume_rate", "suspend_rate")}
        ports = {"port": self.port, "node_port": self.node_port}
        batch = {**ports, **rates, "parameters": parameters}
        groups = more.pop("groups", {"general": {"nodes": nodes}})
        base = {"cluster": "lab", "state": str(self.layout.state), "batch": batch}
        return Cluster.model_validate({**base, "groups": groups, **more})

    def adapter(self, cluster: Cluster, **options: Any) -> Slurm:
        slurm = Slurm(cluster, **options)
        self.opened.append(slurm)
        return slurm

    async def up(self, nodes: str = "c[1-8]", **more: Any) -> Slurm:
        self.install()
        slurm = self.adapter(self.cluster(nodes, **more))
        await slurm.reload(Site(self.address))
        return slurm

    def install(self) -> None:
        ensure_munge_key(self.layout.munge_key)
        note_calls(self.layout.programs, self.home)

    def calls(self) -> list[str]:
        return (self.home / "calls").read_text().splitlines()

    def pid(self, service: str = "slurmctld") -> int:
        return int(self.named(service).read_text())

    def named(self, service: str = "slurmctld") -> Path:
        return self.layout.run / f"{service}.pid"

    def run(self, *command: str, user: str | None = None) -> str:
        """A command of Slurm's, as a user would run it."""
        done = self.try_run(*command, user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_run(self, *command: str, user: str | None = None) -> "subprocess.CompletedProcess[str]":
        conf = str(self.layout.conf / "slurm.conf")
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": conf}
        return subprocess.run(
            command,
            env=env,
            cwd="/",
            capture_output=True,
            text=True,
            user=user,
            extra_groups=[] if user else None,
            check=False,
        )

    def submit(self, *options: str, seconds: float = 0) -> str:
        wrapped = f"--wrap=sleep {seconds}"
        return self.run("sbatch", "--parsable", "-o", "/dev/null", *options, wrapped).strip()

    def place(self, name: str) -> str:
        """The address of a node whose name is a letter and a number."""
        return self.network.address(int(name[1:]))

    def places(self, *names: str) -> dict[str, str]:
        return {name: self.place(name) for name in names}

    @contextmanager
    def slurmd(self, name: str) -> Iterator[None]:
        """A slurmd that takes everything of its jobs with it when it goes."""
        command = ("slurmd", "-D", "-b", "-N", name, "-f", self.layout.conf / "slurm.conf")
        with (self.home / f"{name}.log").open("w") as log:
            process = start(self.network, name, self.place(name), command, log)
        try:
            yield
        finally:
            cut(process)

    @asynccontextmanager
    async def joined(self, slurm: Slurm, *names: str) -> AsyncIterator[None]:
        """Slurmds that have registered. Slurm counts whole seconds since they booted: one that
        begins in the second of a reboot, or in the last part of one, might seem to have done so
        before it; and what asks for a reboot in the second of a boot might get that one."""
        now = int(time.time())
        await until(lambda: early_in_a_second(after=now))
        async with AsyncExitStack() as stack:
            for name in names:
                stack.enter_context(self.slurmd(name))
            for name in names:
                await seen(slurm, name, lambda node: node.registered)
            booted = int(time.time())
            await until(lambda: early_in_a_second(after=booted))
            yield

    async def is_forgotten(self) -> bool:
        """Programs that slurmctld has called may outlive it, and write here."""
        return not any(str(self.home) in line for line in processes())

    def admin_drains(self, names: str, reason: str = "disk") -> None:
        self.run("scontrol", "update", f"nodename={names}", "state=drain", f"reason={reason}")


@asynccontextmanager
async def made_lab() -> AsyncIterator[Lab]:
    """Everything below one directory that Slurm's user can reach, unlike pytest's own."""
    with place() as home, network(home) as net:
        port, node_port = free_ports(2)
        lab = Lab(home, net, net.control, port=port, node_port=node_port)
        try:
            yield lab
        finally:
            for slurm in lab.opened:
                await slurm.stop()
            await until(lab.is_forgotten)


async def until(condition: Callable[[], Awaitable[Any]], limit_s: float = LIMIT_S) -> Any:
    """Wait until the condition holds; answers what it did."""
    end = time.monotonic() + limit_s
    while not (answer := await condition()):
        assert time.monotonic() < end, f"not so within {limit_s} s"
        await asyncio.sleep(0.05)
    return answer


async def early_in_a_second(after: int) -> bool:
    now = time.time()
    return int(now) > after and now % 1 < 0.5


async def seen(slurm: Slurm, name: str, wanted: Callable[[BatchNode], bool]) -> BatchNode:
    """The node once it is as wanted."""

    async def look() -> BatchNode | None:
        node = (await slurm.nodes([name]))[name]
        return node if wanted(node) else None

    node: BatchNode = await until(look)
    return node


async def called(lab: Lab, program: str) -> list[str]:
    """What it was called with, once it was; slurmctld waits for none of them."""

    async def look() -> list[str]:
        return [call for call in lab.calls() if call.split()[0] == program]

    calls: list[str] = await until(look)
    return calls


async def job_in(slurm: Slurm, job: str, state: str) -> None:
    async def look() -> bool:
        return any(j.id == job and j.state == state for j in await slurm.jobs())

    await until(look)
