"""This machine as tests of the containers provider use and inspect it."""

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from pathlib import Path

from springtide.ports import CloudError, Instance, Launch
from springtide.providers.containers import Containers, Mount, links
from springtide.providers.containers.instances import read_process
from tests.providers.world import BLUE, instances, remove_until_gone

LIMIT_S = 200.0
FOREVER = "exec sleep 1000\n"
CLOSED_PORT = 9
TOTAL_RETRANS = 100
"""Where Linux's `struct tcp_info` has it."""
PER_NODE = 3
"""Processes of a node that only sleeps."""
SUBNET = IPv4Network(f"10.{80 + os.getpid() // 256 % 15}.{os.getpid() % 256}.0/24")
"""Our own, for runs side by side. What begins with 10.95 is for links to a libvirtd of tests."""


@dataclass
class Machine:
    """This machine as far as a test uses it: everything lies below `root`."""

    root: Path
    images: dict[str, Path] = field(default_factory=dict)
    opened: list[tuple[str, Containers]] = field(default_factory=list)

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def directory(self, cluster: str) -> Path:
        return self.root / cluster

    def open(
        self,
        cluster: str,
        *,
        mounts: Sequence[Mount] = (),
        hidden: Sequence[Path] = (),
        subnet: IPv4Network | None = None,
    ) -> Containers:
        shared = Mount(self.shared, self.shared, read_only=False)
        containers = Containers(
            self.directory(cluster), dict(self.images), [shared, *mounts], hidden, subnet
        )
        self.opened.append((cluster, containers))
        return containers

    async def prepared(self, cluster: str = BLUE) -> Containers:
        containers = self.open(cluster)
        await containers.prepare(cluster)
        return containers

    async def clean_up(self) -> None:
        for cluster in sorted({cluster for cluster, _ in self.opened}):
            await remove_until_gone(self.open(cluster), cluster)
        for _, containers in self.opened:
            await containers.close()


def traces(machine: Machine) -> list[str]:
    """What clusters of this test have on this machine: links, mounts, processes, files."""
    clusters = {cluster for cluster, _ in machine.opened}
    names = {links.bridge_name(cluster) for cluster in clusters}
    names |= {links.port_name(cluster, node) for cluster in clusters for node in nodes(100)}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return [
        *(f"link {name}" for name in names if links.exists(name)),
        *(f"mount {mount}" for mount in mounts if str(machine.root) in mount),
        *(f"process {pid}" for cluster in clusters for pid in processes(cluster)),
        *(str(machine.directory(one)) for one in clusters if machine.directory(one).exists()),
    ]


def processes(cluster: str) -> list[int]:
    """All processes of a cluster's nodes, told by their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"TIDE_CLUSTER={cluster}\0".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def nodes(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def launch(node: str = "n0", user_data: str = FOREVER, **changes: str | int) -> Launch:
    plain = Launch(BLUE, node, 1, "general", "host", "default", user_data=user_data)
    return replace(plain, **changes)  # type: ignore[arg-type]


async def eventually(holds: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT_S
    while not holds():
        assert loop.time() < end, f"not within {LIMIT_S:.0f} s"
        await asyncio.sleep(0.01)


def knocks(instance: Instance) -> int:
    """How often its network was asked again until it answered: it does, though nobody listens.

    Counted by TCP, which waits for a second or more each time: so it does not matter how busy
    this machine is.
    """
    with socket.socket() as caller:
        caller.settimeout(LIMIT_S)
        with suppress(ConnectionRefusedError):
            caller.connect((str(instance.address), CLOSED_PORT))
        info = caller.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TOTAL_RETRANS + 4)
    return int(struct.unpack_from("I", info, TOTAL_RETRANS)[0])


async def read(path: Path) -> str:
    """A file that a node writes whole, by renaming it."""
    await eventually(path.exists)
    return path.read_text()


def say(path: Path, command: str) -> str:
    """A boot script that lets the command write to the file."""
    return f"{{ {command}\n}} >{path}.new 2>&1; mv {path}.new {path}\n{FOREVER}"


async def said(machine: Machine, command: str, containers: Containers | None = None) -> str:
    """What a command prints in a new node."""
    containers = containers or await machine.prepared()
    path = machine.shared / "said"
    answers = await containers.create([launch("n0", say(path, command))])
    assert len(instances(answers)) == 1, answers
    return await read(path)


def process_of(machine: Machine, node: str = "n0") -> int:
    process = read_process(machine.directory(BLUE) / "instances" / node)
    assert process is not None
    return process.pid


async def rebooted(containers: Containers, *launches: Launch) -> list[Instance]:
    """All of these, or n0."""
    answers = await containers.reboot(launches or [launch()])
    made = instances(answers)
    assert len(made) == len(answers), answers
    return made


async def error_of(containers: Containers, one: Launch) -> CloudError:
    answer = (await containers.create([one]))[one.node]
    assert isinstance(answer, CloudError), answer
    return answer


def image_from_host(image: Path, programs: Sequence[str]) -> Path:
    """A root directory with a few programs of this machine and their libraries."""
    for program in programs:
        source = shutil.which(program)
        assert source
        found = subprocess.run(["ldd", source], capture_output=True, text=True, check=True)
        words = [word for word in found.stdout.split() if word.startswith("/")]
        for path in (f"/bin/{program}", *words):
            target = image / path[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source if path.startswith("/bin") else path, target)
    (image / "etc").mkdir()
    return image


def contents(directory: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in directory.rglob("*"))


DAEMON = """
import asyncio, sys
from pathlib import Path
from springtide.ports import Launch
from springtide.providers.containers import Containers

async def main(directory, cluster, call, script):
    containers = Containers(Path(directory), {}, [], [], None)
    print("begun", flush=True)
    await getattr(containers, call)([
        Launch(cluster, f"n{i}", 1, "general", "host", "default", user_data=script)
        for i in range(8)
    ])

asyncio.run(main(*sys.argv[1:]))
"""


async def cut_off(machine: Machine, call: str, script: str, after_s: float) -> None:
    """A daemon that makes this call for eight nodes, and is killed so long after it began."""
    arguments = ["-c", DAEMON, str(machine.directory(BLUE)), BLUE, call, script]
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE
    )
    assert daemon.stdout
    await daemon.stdout.readline()
    await asyncio.sleep(after_s)
    with suppress(ProcessLookupError):  # it was done already
        daemon.kill()
    await daemon.wait()
