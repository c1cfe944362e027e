"""What `tide check` finds out about providers: by asking them, and from the file alone.

Clouds and machines are asked without the daemon, all at once, as the daemon would ask them: see
`asking`. What an image holds cannot be seen from outside, so nothing is said of it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

from springtide.cli.asking import Place, Unanswered, ask_check, places
from springtide.cli.subject import Check, Look, Subject
from springtide.ports import Rejected
from springtide.providers.containers import site
from springtide.providers.containers.addresses import MOST_PORTS
from springtide.spec import Cluster, Containers, NoProvider

OPEN_TO_OTHERS = 0o077
UNKNOWN = "cannot be found out"
"""What providers say of what they asked in vain."""
NOT_FOR_NODES = 3
"""Addresses of a subnet: its own, the bridge's, and the one for all."""


# --- clouds and machines -------------------------------------------------------------------


def look_at_providers(subject: Subject) -> Iterable[Check]:
    found = places(subject.spec)
    for place, said in zip(found, _answers(subject, found), strict=True):
        checks = [*said, *_look_at_credentials(place, said)]
        label = _label(place, found)
        yield from (replace(each, name=_name(label, each.name)) for each in checks)


def _answers(subject: Subject, found: Sequence[Place]) -> Iterable[Sequence[Check]]:
    """What each of them says; a thread each, for one may take its time."""
    if subject.offline or not found:
        return [[Check("", None, "was not asked, as you wish")] for _ in found]
    with ThreadPoolExecutor(len(found)) as threads:
        return list(threads.map(lambda place: _asked(subject.spec, place), found))


def _asked(spec: Cluster, place: Place) -> Sequence[Check]:
    try:
        silent = Check("", None, "tells nothing of itself before nodes are made")
        return _unreached(ask_check(spec, place)) or [silent]
    except Unanswered as error:
        return [Check("", False, str(error))]


def _unreached(checks: Sequence[Check]) -> Sequence[Check]:
    """If nothing at all could be found out, that is the trouble."""
    if any(each.ok is not None for each in checks):
        return checks
    return [replace(each, ok=False) if UNKNOWN in each.text else each for each in checks]


def _label(place: Place, others: Sequence[Place]) -> str:
    """Which provider, with its groups where several are of one kind."""
    kind = place.wanted.kind
    alike = [one for one in others if one.wanted.kind == kind]
    return kind if len(alike) == 1 else f"{kind} ({', '.join(place.groups) or 'no group'})"


def _name(label: str, name: str) -> str:
    return label if name in ("", label) else f"{label} {name}"


def _look_at_credentials(place: Place, said: Sequence[Check]) -> Iterator[Check]:
    """A file that only we may read, unless the provider itself has complained of it."""
    path = getattr(place.wanted, "credentials", None)
    if not isinstance(path, Path) or any(c.ok is False and str(path) in c.text for c in said):
        return
    if wrong := _exposure(path):
        yield Check("credentials", False, *wrong)


def _exposure(path: Path) -> tuple[str, str] | None:
    """What is wrong with a file that only we may read, and what to do."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return f"{path} is not there", "put the credentials there, or correct `credentials`"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}", "run it as root"
    if state.st_mode & OPEN_TO_OTHERS:
        return f"{path} can be read by others", f"run `chmod 600 {path}`"
    if state.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user", f"run `chown root {path}`"
    return None


# --- groups --------------------------------------------------------------------------------


def look_at_prices(subject: Subject) -> Iterable[Check]:
    """Flavors without a price are tried last, so the cheapest may not be."""
    spec = subject.spec
    for key, group in spec.groups.items():
        bare = [name for name in group.flavors if spec.flavor(name).price is None]
        if group.choose == "price" and bare and len(group.flavors) > 1:
            text = f"it chooses by price, but {_list('flavor', bare)} no price"
            todo = f"set flavors.{bare[0]}.price (`tide flavors` may know it), or `choose: order`"
            yield Check(f"group {key}", None, text, todo)


def look_at_ignored(subject: Subject) -> Iterable[Check]:
    """Keys that a group's provider has no use for."""
    spec = subject.spec
    for key, group in spec.groups.items():
        provider = spec.provider_of(key)
        if not isinstance(provider, Containers | NoProvider):
            continue
        for name in ("zones", "markets"):
            if getattr(group, name):
                text = f"{name} are ignored: provider {provider.kind} has none"
                yield Check(f"group {key}", None, text, f"take `{name}` out")


def look_at_room(subject: Subject) -> Iterable[Check]:
    """Whether all container nodes of the cluster, which share one bridge, find an address."""
    spec = subject.spec
    keys = [key for key in spec.groups if isinstance(spec.provider_of(key), Containers)]
    count = sum(len(spec.names(key)) for key in keys)
    subnet = _subnet(subject)
    room = subnet.num_addresses - NOT_FOR_NODES
    if count > room:
        text = f"{count} container nodes do not fit {subnet}, which has room for {room}"
        todo = f"name at most {room} nodes, or set `subnet` of the provider to a larger network"
        yield Check("subnet", False, text, todo)
    elif count > MOST_PORTS:
        text = f"of {count} container nodes only {MOST_PORTS} can be up at once, on one bridge"
        yield Check("subnet", None, text, "nothing, if that is enough")


def _subnet(subject: Subject) -> IPv4Network:
    """The site's, if there is one; else the file's, or as large as it will be chosen."""
    try:
        if ground := site.read_ground(subject.daemon.layout.instances):
            return ground.subnet
    except (Rejected, PermissionError):
        pass  # `look_at_subnet` tells
    spec = subject.spec
    providers = (spec.provider_of(key) for key in spec.groups)
    named = (one.subnet for one in providers if isinstance(one, Containers) and one.subnet)
    chosen = IPv4Network((site.POOL.network_address, site.BLOCK_PREFIX))
    return next(named, chosen)


def _list(kind: str, names: Sequence[str]) -> str:
    plural = len(names) > 1
    return f"{kind}{'s' * plural} {', '.join(names)} {'have' if plural else 'has'}"


ALL: Sequence[Look] = (look_at_prices, look_at_ignored, look_at_room, look_at_providers)
