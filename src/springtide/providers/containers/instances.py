"""What is known of an instance: its intent on disk, its process, and the state they amount to.

An instance is a directory `instances/NODE`. `instance.json` is there before anything else;
`process` is written by the instance's own first process; `deleting` once it has to go. When it
is gone, the directory gets a hidden name before it is removed, so that it never looks half-way.
"""

import errno
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from springtide.nodeset import NodeNameError, validate_name
from springtide.ports import Instance, InstanceState, Launch, Rejected
from springtide.providers.containers.files import replace_text

MAX_HOST_NAME = 63

START_LIMIT_S = 30.0
"""A start that takes longer has failed."""

CLAIM_LIMIT_S = 10.0
"""Between making the file `process` and filling it; who takes longer is dead.

It takes a shell a moment, but on a busy machine that may be long; and one that is taken for dead
goes on to run beside the next."""

_NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""Nobody has the pid, or a thread of somebody else; the kernel's answer to that has changed."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STARTED = 19  # field 22 of /proc/PID/stat, counted from the state after the name


class Damaged(Rejected):
    """The intent of an instance cannot be read."""


@dataclass(frozen=True, slots=True)
class Process:
    """The first process of an instance; pids are used again, so its start belongs to it."""

    boot: str
    pid: int
    started: int
    ready: bool

    @property
    def key(self) -> str:
        return f"{self.boot} {self.pid} {self.started}"


@dataclass(frozen=True, slots=True)
class Intent:
    """An instance as it is to be, and what of it only this provider knows."""

    instance: Instance
    image_path: Path | None = None
    """The directory it was made from; None if it was made before that was recorded."""
    former: str = ""
    """The key of the process that a reboot ends, which counts as gone from then on."""

    def shown(self, images: Mapping[str, Path]) -> Instance:
        """A name that means another directory by now would say that it has another image."""
        if self.image_path in (None, images.get(self.instance.image or "")):
            return self.instance
        return replace(self.instance, image=str(self.image_path))


def homes(directory: Path) -> Path:
    return directory / "instances"


def instance_id(cluster: str, node: str, generation: int) -> str:
    return f"{cluster}.{node}.{generation}"


def refuse_name(node: str) -> None:
    try:
        validate_name(node)
    except NodeNameError as error:
        raise Rejected(str(error)) from None
    if len(node) > MAX_HOST_NAME:
        raise Rejected(f"node name {node}: a host name has at most {MAX_HOST_NAME} characters")


def intend(launch: Launch, address: str, now: float) -> Instance:
    return Instance(
        id=instance_id(launch.cluster, launch.node, launch.generation),
        cluster=launch.cluster,
        node=launch.node,
        generation=launch.generation,
        state=InstanceState.PENDING,
        address=address,
        image=launch.image,
        flavor=launch.flavor,
        zone=launch.zone,
        created_at=now,
        booted_at=now,
    )


# Files


def write_intent(
    home: Path, instance: Instance, image_path: Path | None = None, former: str = ""
) -> None:
    ours = {"image_path": str(image_path) if image_path else None, "former": former}
    replace_text(home / "instance.json", json.dumps(asdict(instance) | ours))


def read_intent(home: Path) -> Intent | None:
    path = home / "instance.json"
    try:
        return parse_intent(home.name, path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, RecursionError, IsADirectoryError) as error:
        raise Damaged(f"{path} is damaged ({error}): suspend {home.name} to remove it") from None


def parse_intent(node: str, text: str) -> Intent:
    """Also of before there were reboots."""
    data = {"booted_at": 0.0} | json.loads(text)
    path, former = data.pop("image_path", None), data.pop("former", "")
    instance = Instance(**data | {"state": InstanceState(data["state"])})
    if instance.id != instance_id(instance.cluster, node, instance.generation):
        raise ValueError(f"it is not about {node}")
    if not all(isinstance(at, int | float) for at in (instance.created_at, instance.booted_at)):
        raise TypeError("it does not say since when")
    instance = replace(instance, booted_at=instance.booted_at or instance.created_at)
    return Intent(instance, Path(path) if path else None, former)


def nameless(home: Path, cluster: str) -> Instance:
    """An instance of which only the place is known: it can be listed and deleted."""
    id = instance_id(cluster, home.name, 0)
    return Instance(id, cluster, home.name, generation=0, state=InstanceState.BROKEN)


def mark_deleting(home: Path) -> None:
    (home / "deleting").touch()


def is_deleting(home: Path) -> bool:
    return (home / "deleting").exists()


def read_process(home: Path) -> Process | None:
    """None if none began here, or it has not said yet who it is."""
    try:
        return parse_process((home / "process").read_text(errors="replace"))
    except FileNotFoundError:
        return None


def has_process(home: Path) -> bool:
    """A process began here, or somebody claimed the node so that none does."""
    return (home / "process").exists()


def await_process(home: Path) -> Process | None:
    """As `read_process`, but one that has just begun to say who it is may finish."""
    end = time.monotonic() + CLAIM_LIMIT_S
    while not (found := read_process(home)):
        age_s = _claim_age_s(home)
        if age_s is None or age_s > CLAIM_LIMIT_S or time.monotonic() > end:
            return None
        time.sleep(0.002)
    return found


def _claim_age_s(home: Path) -> float | None:
    """Since when the node is claimed; None if it is not. One left by a crash is old at once."""
    try:
        return time.time() - (home / "process").stat().st_mtime
    except FileNotFoundError:
        return None


def parse_process(text: str) -> Process | None:
    """None if it is not whole: a process that has only begun, or a disk that lost some of it."""
    lines = text.splitlines()
    boot, space, named = lines[0].partition(" ") if lines else ("", "", "")
    if not space or not text.endswith("\n"):
        return None
    try:
        pid, started = _parse_named(named)
    except (ValueError, IndexError):
        return None
    return Process(boot, pid, started, ready="ready" in lines[1:])


def _parse_named(text: str) -> tuple[int, int]:
    """Pid and start: nothing else is there that kill would take for a process.

    One that runs since long ago has left all of its /proc/PID/stat, -1 included.
    """
    if " started=" not in text:
        pid, _, started = parse_stat(text)
        return pid, started
    named, _, start = text.partition(" started=")
    return int(named), int(start)


def parse_stat(line: str) -> tuple[int, str, int]:
    """Pid, state and start of a process; its name may hold anything, so look behind it."""
    head, _, rest = line.rpartition(")")
    fields = rest.split()
    return int(head.partition(" ")[0]), fields[0], int(fields[_STARTED])


# The world


def is_alive(process: Process) -> bool:
    """A zombie is dead, and so is whoever else got the pid since."""
    if process.boot != _BOOT_ID.read_text().strip():
        return False
    try:
        _, state, started = parse_stat(Path(f"/proc/{process.pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False
    return started == process.started and state not in "ZX"


def open_process(process: Process) -> int | None:
    """A descriptor that stays this process whatever becomes of its pid; None if it is dead."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno in _NO_PROCESS:
            return None
        raise
    if is_alive(process):
        return descriptor
    os.close(descriptor)
    return None


def observe(home: Path, now: float) -> Intent | None:
    """The instance as it is now. What is seen of it counts if its intent stayed meanwhile.

    A delete takes the intent away first, and a reboot writes another before it ends anything.
    """
    intent = read_intent(home)
    while intent is not None:
        state = _state(home, intent, now)
        before, intent = intent, read_intent(home)
        if intent == before:
            return replace(intent, instance=replace(intent.instance, state=state))
    return None


def _state(home: Path, intent: Intent, now: float) -> InstanceState:
    process = read_process(home)
    if process and process.key == intent.former:
        process = None
    alive = process is not None and is_alive(process)
    young = now - intent.instance.booted_at < START_LIMIT_S
    return decide_state(process, alive, young, is_deleting(home))


def decide_state(
    process: Process | None, alive: bool, young: bool, deleting: bool
) -> InstanceState:
    if deleting:
        return InstanceState.DELETING
    if process and alive and process.ready:
        return InstanceState.RUNNING
    if young and (process is None or alive):
        return InstanceState.PENDING
    return InstanceState.BROKEN


def observe_all(directory: Path, cluster: str, now: float) -> Sequence[Intent]:
    found = []
    with suppress(FileNotFoundError):
        for home in sorted(homes(directory).iterdir()):
            seen = None if home.name.startswith(".") else _observe(home, cluster, now)
            if seen and seen.instance.cluster == cluster:
                found.append(seen)
    return found


def _observe(home: Path, cluster: str, now: float) -> Intent | None:
    try:
        return observe(home, now)
    except Damaged:
        return Intent(nameless(home, cluster))
