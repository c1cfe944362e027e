"""What must fit together in a cluster file, beyond the shape of its values.

`check` takes the plain data of a file, also one whose shape is wrong in places: it skips what
it cannot read, so that a person sees all mistakes at once. Called by Cluster and by `read`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from springtide.spec import rendered
from springtide.spec.calendar import check_calendar
from springtide.spec.findings import (
    KEY,
    RESERVED,
    Data,
    Finding,
    Loc,
    names_of,
    readable,
    reserved,
    section,
    undefined,
    words,
)
from springtide.spec.fresh import check_fresh
from springtide.spec.images import check_images
from springtide.spec.markets import check_markets
from springtide.spec.pools import check_addresses
from springtide.spec.problems import folded
from springtide.spec.rebuilds import check_rebuilds
from springtide.spec.sharing import check_shared
from springtide.spec.values import parse_number, shown

PORTS = {"slurmctld": 6817, "slurmdbd": 6819}
"""Of those that a file does not tell the port of."""

QUEUED = ("torque", "openpbs", "gridengine")


def check(data: Data) -> list[Finding]:
    names = names_of(data)
    return [
        *_undefined_names(data),
        *_reserved_names(data),
        *_reserved_nodes(names),
        *_repeated_nodes(names),
        *_shared_nodes(names),
        *_too_many_up(data, names),
        *_second_defaults(data),
        *_rendered_parameters(data),
        *_shared_port(data),
        *_changed_host_image(data),
        *check_rebuilds(data),
        *check_fresh(data),
        *check_images(data),
        *check_markets(data),
        *check_shared(data),
        *check_addresses(data, names),
        *check_calendar(data, names),
        *_control_apart(data),
        *_attached(data),
        *_watched(data),
    ]


# What is defined, and what it may be called


def _undefined_names(data: Data) -> Iterator[Finding]:
    flavors = list(section(data, "flavors")) or ["default"]
    images = list({"host": None, **section(data, "images")})
    for _, name in words([data.get("image")]):
        yield from undefined(("image",), "the cluster", "image", name, images)
    for key, group in readable(data, "groups").items():
        who, loc = f"group {key!r}", ("groups", key)
        for i, name in words(group.get("flavors") or ["default"]):
            yield from undefined((*loc, "flavors", i), who, "flavor", name, flavors)
        for _, name in words([group.get("image")]):
            yield from undefined((*loc, "image"), who, "image", name, images)
    groups = list(section(data, "groups"))
    for key, partition in readable(data, "partitions").items():
        for i, name in words(partition.get("groups")):
            loc_of_name = ("partitions", key, "groups", i)
            yield from undefined(loc_of_name, f"partition {key!r}", "group", name, groups)


def _reserved_names(data: Data) -> Iterator[Finding]:
    for kind in ("groups", "partitions"):
        for key in section(data, kind):
            if key.upper() in RESERVED:
                yield Finding((kind, key), reserved(kind[:-1], key), KEY)


def _reserved_nodes(names: Mapping[str, list[str]]) -> Iterator[Finding]:
    for key, members in names.items():
        for name in members:
            if name.upper() in RESERVED:
                yield Finding(("groups", key, "nodes"), reserved("node", name))


def _changed_host_image(data: Data) -> Iterator[Finding]:
    image = readable(data, "images").get("host", {})
    if str(image.get("path", "/")) != "/":
        message = "the image 'host' is always this machine's own root; choose another name"
        yield Finding(("images", "host"), message, KEY)


# Nodes and their groups


def _repeated_nodes(names: Mapping[str, list[str]]) -> Iterator[Finding]:
    for key, members in names.items():
        if len(set(members)) < len(members):
            twice = [name for name, count in Counter(members).items() if count > 1]
            message = f"{_nodes(twice)} named twice in group {key!r}; name each once"
            yield Finding(("groups", key, "nodes"), message)


def _shared_nodes(names: Mapping[str, list[str]]) -> Iterator[Finding]:
    owner: dict[str, str] = {}
    for key, members in names.items():
        shared = defaultdict(list)
        for name in members:
            if name in owner:
                shared[owner[name]].append(name)
        for other, both in shared.items():
            where = f"in group {other!r} and in group {key!r}"
            message = f"{_nodes(both)} {where}; a node belongs to one group"
            yield Finding(("groups", key, "nodes"), message)
        owner = dict.fromkeys(members, key) | owner


def _nodes(names: Collection[str]) -> str:
    return f"node {folded(names)} is" if len(names) == 1 else f"nodes {folded(names)} are"


def _too_many_up(data: Data, names: Mapping[str, list[str]]) -> Iterator[Finding]:
    groups = readable(data, "groups")
    for key, members in names.items():
        wanted = parse_number(groups[key].get("min")) or 0
        if wanted > len(members):
            has = f"group {key!r} has {len(members) or 'no'} node{'s' * (len(members) != 1)}"
            yield Finding(("groups", key, "min"), f"min is {wanted:g}, but {has}")


# Slurm


def _second_defaults(data: Data) -> Iterator[Finding]:
    partitions = readable(data, "partitions")
    first, *others = [k for k, p in partitions.items() if p.get("default") in (True, "true")] or [
        ""
    ]
    for key in others:
        message = f"partitions {first!r} and {key!r} are both the default; only one can be"
        yield Finding(("partitions", key, "default"), message)


def _rendered_parameters(data: Data) -> Iterator[Finding]:
    batch = section(data, "batch")
    account = rendered.ACCOUNTING if batch.get("accounting") is not None else {}
    health = rendered.HEALTH if data.get("health") is not None else {}
    reasons = {**rendered.SLURM, **account, **health}
    yield from _rendered(("batch", "parameters"), section(batch, "parameters"), reasons)
    for key, partition in readable(data, "partitions").items():
        loc = ("partitions", key, "parameters")
        yield from _rendered(loc, section(partition, "parameters"), rendered.PARTITION)


def _rendered(loc: Loc, parameters: Data, reasons: Mapping[str, str]) -> Iterator[Finding]:
    written: dict[str, str] = {}
    for key in parameters:
        name = key.lower()
        if name in reasons:
            message = f"{key} is written by Springtide: {reasons[name]}"
            yield Finding((*loc, key), message, KEY)
        elif name in written:
            message = f"{key} and {written[name]} are the same parameter; give it once"
            yield Finding((*loc, key), message, KEY)
        written.setdefault(name, key)


def _shared_port(data: Data) -> Iterator[Finding]:
    batch = section(data, "batch")
    if batch.get("accounting") is None:
        return
    port = parse_number(section(batch, "accounting").get("port") or PORTS["slurmdbd"])
    if port is not None and port == parse_number(batch.get("port") or PORTS["slurmctld"]):
        message = f"slurmctld and slurmdbd cannot both have port {port:g}; choose another for one"
        yield Finding(("batch", "accounting"), message, KEY)


# Where things run


def _control_apart(data: Data) -> Iterator[Finding]:
    """A control host in a container reaches its nodes on the bridge of the containers."""
    if data.get("control") != "container":
        return
    providers = {("provider",): ("the cluster", data.get("provider"))} | {
        ("groups", key, "provider"): (f"group {key!r}", group.get("provider"))
        for key, group in readable(data, "groups").items()
    }
    for loc, (who, provider) in providers.items():
        kind = provider.get("kind", "containers") if isinstance(provider, dict) else "containers"
        if kind != "containers":
            message = f"{who} cannot have provider {shown(kind)} with `control: container`"
            yield Finding(loc, f"{message}; use containers, or set `control: here`")


def _watched(data: Data) -> Iterator[Finding]:
    """Batch systems other than Slurm are there without us, and know nothing of slurm.conf."""
    kind = section(data, "batch").get("kind", "slurm")
    if kind not in QUEUED:
        return
    if data.get("control") == "container":
        message = f"with batch.kind {kind}, the daemon runs beside its server; set `control: here`"
        yield Finding(("control",), message)
    if section(data, "ansible").get("control") in (True, "true"):
        message = f"ansible.control sets up a Slurm, and batch.kind is {kind}; leave it out"
        yield Finding(("ansible", "control"), message)
    for key, partition in readable(data, "partitions").items():
        if section(partition, "parameters"):
            message = f"parameters are for slurm.conf, and batch.kind is {kind}; leave them out"
            yield Finding(("partitions", key, "parameters"), message, KEY)
    yield from _unserving(data)


def _unserving(data: Data) -> Iterator[Finding]:
    """Nodes of no queue would serve none, or, with some batch systems, all."""
    serving = {
        name
        for one in readable(data, "partitions").values()
        for _, name in words(one.get("groups"))
    }
    for key, group in readable(data, "groups").items():
        provider = group.get("provider") or data.get("provider")
        made = not isinstance(provider, dict) or provider.get("kind") != "none"
        if made and key not in serving:
            message = f"group {key!r} serves no queue; name it in `partitions`"
            yield Finding(("groups", key), f"{message}, as `QUEUE: {{groups: [{key}]}}`", KEY)


def _attached(data: Data) -> Iterator[Finding]:
    """A Slurm that is there without us stays where it is and as it is."""
    batch = section(data, "batch")
    if batch.get("attach") is None:
        if batch.get("munge_key") is not None:
            message = "munge_key goes with batch.attach; a Slurm of our own has a key of its own"
            yield Finding(("batch", "munge_key"), message, KEY)
        if batch.get("kind", "slurm") == "slurm" and batch.get("polling") is not None:
            message = "polling watches a Slurm that is there; name its slurm.conf with batch.attach"
            yield Finding(("batch", "polling"), f"{message}, or leave polling out", KEY)
        return
    if batch.get("accounting") is not None:
        message = "with batch.attach, accounting is a matter of the Slurm that is there; leave it"
        yield Finding(("batch", "accounting"), f"{message} out", KEY)
    if data.get("control") == "container":
        message = "with batch.attach, the batch system is on this machine; set `control: here`"
        yield Finding(("control",), message)
