"""Variables of a service's environment file, in place of what the cluster file says.

/etc/springtide/CLUSTER.env is the file that systemd reads for the daemon. Variables of a hybrid
cloud service that was there before mean the same here; others are not looked at. Whoever reads the
cluster file reads it, so that all commands agree with the daemon; secrets are in CLUSTER.secret,
which is for systemd alone. Called by `read`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.spec import variables
from springtide.spec.checks import QUEUED
from springtide.spec.findings import Finding, Loc, section
from springtide.spec.images import provider_of, takes_paths
from springtide.spec.problems import Problem
from springtide.spec.values import shown
from springtide.spec.variables import Variable

PLACE = Path("/etc/springtide")
LARGEST = 100_000
KEYS: Mapping[str, tuple[str, ...]] = {
    "CLEANUP_NODE_WAIT_TIME": ("timing", "idle"),
    "BATCH_SYSTEM": ("batch", "kind"),
    "PROVIDER_NAME": ("provider", "kind"),
}
"""Variables that stand for one key."""
INTERVAL, QUEUE, FLAVOR, IMAGE = "POLL_INTERVAL", "QUEUE_NAME", "FLAVOR_NAME", "IMAGE_NAME"
SOURCE, MOUNT = "NFS_MOUNT_POINT", "NFS_LOCAL_DIR"
AT = "/mnt"
"""Where that service mounted its filesystem, if nobody said otherwise."""
OWN_IMAGE = "environment"
"""What an image is called here whose name is no key of `images`."""
KNOWN = (*KEYS, INTERVAL, QUEUE, FLAVOR, IMAGE, SOURCE, MOUNT)
IDLE = ("VC_NAME", "VCP_ACCESSKEY", "VCP_SDK_CONTAINER_IMAGE")
"""Variables of that service which mean nothing here."""
_ELSEWHERE = re.compile(r"[^\s/]+:/.*")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a variable sets."""

    variable: Variable
    loc: Loc
    value: Any
    what: str = ""
    """What people call it, if not by its key."""

    @property
    def key(self) -> str:
        return ".".join(str(part) for part in self.loc)

    def __str__(self) -> str:
        return f"{self.what or self.key} is {shown(_text(self.value))} ({self.variable.name})"


@dataclass(slots=True)
class Applied:
    """The data of a cluster file with what its environment sets."""

    file: str
    data: Any
    settings: list[Setting] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    """Variables that mean nothing here."""
    passed: list[int] = field(default_factory=list)
    """Lines that are no variables."""
    problems: list[Problem] = field(default_factory=list)

    def placed(self, finding: Finding) -> Problem | None:
        """The problem that a finding is of a variable; None if it is one of the cluster file."""
        for one in self.settings:
            if finding.loc[: len(one.loc)] == one.loc:
                return self.problem(one.variable, finding.message)
        return next(filter(None, (self._unknown(one, finding) for one in self.settings)), None)

    def _unknown(self, one: Setting, finding: Finding) -> Problem | None:
        """A key of the cluster file that is unknown because a variable sets another kind."""
        beside = one.loc[-1] == "kind" and finding.loc[: len(one.loc) - 1] == one.loc[:-1]
        if not beside or not finding.message.startswith("unknown key"):
            return None
        advice = f"that is for another {one.key} than {one.value}; correct one of them"
        return self.problem(one.variable, f"{finding.message} of the cluster file: {advice}")

    def problem(self, variable: Variable, message: str) -> Problem:
        return Problem(self.file, variable.line, 1, f"{variable.name}: {message}")

    def setting(self, *loc: str | int) -> Setting | None:
        """What sets this key."""
        return next((one for one in self.settings if one.loc == loc), None)


def applied(data: Any, place: Path | None = None) -> Applied:
    """Reads the file of the cluster that the data is of, if there is one."""
    name = data.get("cluster") if isinstance(data, dict) else None
    if not isinstance(name, str) or not _CLUSTER.fullmatch(name):
        return Applied("", data)
    file = (place or PLACE) / f"{name}.env"
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Applied(str(file), data)
    except PermissionError:
        why = (
            f"it is not for you; move secrets to {file.with_suffix('.secret')}, and let all read it"
        )
        return Applied(str(file), data, problems=[_unread(file, why)])
    except (OSError, UnicodeDecodeError) as fault:
        why = (fault.strerror if isinstance(fault, OSError) else "") or "it is no text"
        return Applied(str(file), data, problems=[_unread(file, why)])
    if len(text) > LARGEST:
        return Applied(
            str(file), data, problems=[_unread(file, f"it has over {LARGEST} characters")]
        )
    return apply(data, text, str(file))


def _unread(file: Path, why: str) -> Problem:
    return Problem(str(file), None, None, f"the environment of the service cannot be read: {why}")


def apply(data: Any, text: str, file: str) -> Applied:
    """The same for a file with this text. Pure; the data stays as it is."""
    found = Applied(file, data)
    named = {one.name: one for one in _variables(text, found)}
    known = {name: one for name, one in named.items() if name in KNOWN and one.value}
    found.idle = [name for name in named if name in IDLE]
    if MOUNT in known and SOURCE not in known:
        found.idle.append(f"{MOUNT} without {SOURCE}")
    for name, loc in KEYS.items():
        if name in known:
            _set(found, known[name], loc, known[name].value)
    _set_interval(found, known.get(INTERVAL))
    _set_queue(found, known.get(QUEUE))
    _set_flavor(found, known.get(FLAVOR))
    _set_image(found, known.get(IMAGE))
    _set_shared(found, known.get(SOURCE), known.get(MOUNT))
    return found


def _variables(text: str, found: Applied) -> Iterator[Variable]:
    """Values are in no message, for they may be secrets."""
    for one in variables.read(text):
        if isinstance(one, Variable):
            yield one
        elif meant := sorted(one.words.intersection(KNOWN)):
            message = f"{', '.join(meant)}: this line is no NAME=VALUE, and systemd passes it over"
            advice = "take out `export`" if "export" in one.words else "correct it"
            said = f"{message}; {advice}, or begin it with #"
            found.problems.append(Problem(found.file, one.line, 1, said))
        else:
            found.passed.append(one.line)


def _set(found: Applied, variable: Variable, loc: tuple[str, ...], value: Any) -> None:
    found.data = _with(found.data, loc, value)
    found.settings.append(Setting(variable, loc, value))


def _set_own_image(found: Applied, variable: Variable, group: str) -> None:
    """An image that only the cloud knows: with its name as id, under a name of ours."""
    image, of_group = ("images", OWN_IMAGE, "id"), ("groups", group, "image")
    found.data = _with(_with(found.data, image, variable.value), of_group, OWN_IMAGE)
    found.settings += [
        Setting(variable, loc, variable.value, ".".join(of_group)) for loc in (image, of_group)
    ]


def _with(data: Any, loc: tuple[str, ...], value: Any) -> Any:
    """A copy with another value; what has the wrong shape is somebody else's to say."""
    if not loc:
        return value
    if data is not None and not isinstance(data, dict):
        return data
    here = data or {}
    return {**here, loc[0]: _with(here.get(loc[0]), loc[1:], value)}


def _set_interval(found: Applied, variable: Variable | None) -> None:
    """How often a batch system is looked at; that it is watched at all is for the cluster file."""
    if variable is None:
        return
    batch = section(found.data, "batch")
    if batch.get("kind") in QUEUED or batch.get("polling") is not None:
        _set(found, variable, ("batch", "polling", "every"), variable.value)
    else:
        message = "this Slurm is not watched: it asks for nodes by itself"
        advice = f"take {INTERVAL} out, or set batch.polling in the cluster file"
        found.problems.append(found.problem(variable, f"{message}; {advice}"))


def _set_queue(found: Applied, variable: Variable | None) -> None:
    """The name of the one queue that is served."""
    partitions = section(found.data, "partitions")
    if variable is None or variable.value in partitions:
        return
    if len(partitions) > 1:
        message = "the cluster file has several partitions; name its queues there"
        found.problems.append(found.problem(variable, message))
        return
    usual = {"groups": list(section(found.data, "groups")), "default": True}
    alone = next(iter(partitions.values()), usual)
    found.data = {**found.data, "partitions": {variable.value: alone}}
    loc = ("partitions", variable.value)
    found.settings.append(Setting(variable, loc, variable.value, "the partition"))


def _group(found: Applied, variable: Variable) -> str | None:
    """The one that a variable is about."""
    groups = list(section(found.data, "groups"))
    if len(groups) == 1:
        return groups[0]
    message = (
        f"the cluster file has {len(groups) or 'no'} groups, and this is for one; set it there"
    )
    found.problems.append(found.problem(variable, message))
    return None


def _set_flavor(found: Applied, variable: Variable | None) -> None:
    if variable and (group := _group(found, variable)):
        _set(found, variable, ("groups", group, "flavors"), [variable.value])


def _set_image(found: Applied, variable: Variable | None) -> None:
    """One of `images`, or else what the cloud calls it."""
    if variable is None or not (group := _group(found, variable)):
        return
    name = variable.value
    provider = provider_of(found.data, section(section(found.data, "groups"), group))
    if name == "host" or name in section(found.data, "images"):
        _set(found, variable, ("groups", group, "image"), name)
    elif takes_paths(provider):
        kind = provider.get("kind", "containers")
        message = f"{shown(name)} is none of the cluster file's `images`, and {kind} needs a path"
        advice = "add one there, such as `images: {base: {path: …}}`, and name it here"
        found.problems.append(found.problem(variable, f"{message}; {advice}"))
    else:
        _set_own_image(found, variable, group)


def _set_shared(found: Applied, source: Variable | None, mount: Variable | None) -> None:
    """A filesystem of a server elsewhere, besides those that the file has at other places."""
    if source is None:
        return
    if not _ELSEWHERE.fullmatch(source.value):
        found.problems.append(found.problem(source, "must be SERVER:/DIRECTORY"))
        return
    path = mount.value if mount else AT
    others = found.data.get("shared") or []
    if not isinstance(others, list):
        return
    kept = [one for one in others if not (isinstance(one, dict) and one.get("path") == path)]
    found.data = {**found.data, "shared": [*kept, {"path": path, "source": source.value}]}
    loc = ("shared", len(kept))
    found.settings.append(Setting(mount or source, (*loc, "path"), path, "a path of shared"))
    found.settings.append(Setting(source, loc, source.value, "its source"))


def hints(found: Applied) -> list[Problem]:
    """For a file that is refused: what a variable sets may be what the rest does not fit."""
    if not found.settings:
        return []
    message = f"it goes before the cluster file, and what is wrong may come of it: {render(found)}"
    return [Problem(found.file, None, None, message)]


def blamed(cluster: str, refusals: Sequence[str]) -> list[str]:
    """For changes that are refused: the variables that ask for them, if any do."""
    found = applied({"cluster": cluster})
    advice = "which goes before the cluster file; put it back here"
    return [
        str(found.problem(one.variable, f"it sets {one.key} to {one.value}, {advice}"))
        for one in found.settings
        if any(_asks(one, text) for text in refusals)
    ]


def _asks(one: Setting, refusal: str) -> bool:
    """Kinds are all that a variable sets which cannot change."""
    return one.loc[-1] == "kind" and f" to {one.value}" in refusal


def render(found: Applied) -> str:
    """What it sets, for people."""
    return ", ".join(dict.fromkeys(map(str, found.settings)))


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
