"""Launches as Google's requests; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any
from uuid import UUID, uuid5

from springtide.ports import Launch
from springtide.providers.cloud import tags
from springtide.providers.cloud.script import named, rest, tokens, whole
from springtide.providers.google import names
from springtide.spec.clouds import Google

SCRIPT = "startup-script"
"""Google's agent in the guest runs it at every boot, as it is in the metadata by then. User data
of cloud-init runs once in an instance's life, and not all of Google's images have it."""
_SPACE = UUID("6f1c1d3e-0d0b-5b59-9a52-9f6f3b1d7a10")
_MIB_PER_GIB = 1024
_WHO = """\
#!/bin/sh
# Instances of one launch share this script; which node it is, the instance's name tells.
tide_url=http://metadata.google.internal/computeMetadata/v1/instance/name
tide_name=$(curl -sf --retry 20 --retry-connrefused -H 'Metadata-Flavor: Google' "$tide_url" ||
    wget -qO- --header='Metadata-Flavor: Google' "$tide_url") || exit 1
"""
_PLAIN = """\
TIDE_NODE=${{tide_name#{prefix}}}
TIDE_GENERATION=${{TIDE_NODE##*-}}
TIDE_NODE=${{TIDE_NODE%-*}}
"""
_ODD = """\
case $tide_name in
{cases}
*) exit 1 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a launch means at Google."""

    machine: str
    image: str
    """Never a family: what a family leads to may be another image tomorrow."""
    zone: str


def bulk(wanted: Google, launches: Sequence[Launch], kind: Kind) -> dict[str, Any]:
    """The body of a bulkInsert. Google may make fewer than all."""
    return {
        "count": str(len(launches)),
        "minCount": "1",
        "perInstanceProperties": {name_of(launch): {} for launch in launches},
        "instanceProperties": _properties(wanted, launches, kind),
    }


def name_of(launch: Launch) -> str:
    return names.instance_name(launch.cluster, launch.node, launch.generation)


def labels(launch: Launch) -> dict[str, str]:
    return {key: names.label(value) for key, value in tags.shared(launch).items()}


def request_id(launches: Sequence[Launch], kind: Kind, attempt: int) -> str:
    """The same for the same instances, so that a call whose answer was lost is not made twice.

    Google remembers how a request ended, so an attempt after a failure needs another one.
    """
    market = launches[0].market
    parts = [kind.zone, kind.machine, kind.image, market, *sorted(map(name_of, launches)), attempt]
    return str(uuid5(_SPACE, "\n".join(map(str, parts))))


def _properties(wanted: Google, launches: Sequence[Launch], kind: Kind) -> dict[str, Any]:
    first = launches[0]
    ours = labels(first)
    properties: dict[str, Any] = {
        "machineType": kind.machine,
        "disks": [_disk(wanted, kind, ours)],
        "networkInterfaces": [{"subnetwork": subnetwork(wanted)}],
    }
    if wanted.tags:
        properties["tags"] = {"items": [*wanted.tags]}
    if first.market == "spot":
        properties["scheduling"] = _spot()
    properties = merge(properties, wanted.options)
    theirs = {key: str(value) for key, value in properties.get("labels", {}).items()}
    return properties | {
        "labels": {**theirs, **ours},
        "description": names.describe(first, kind.image, members(launches)),
        "metadata": {"items": _with_script(properties.get("metadata", {}), script(launches))},
    }


def _disk(wanted: Google, kind: Kind, ours: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "sourceImage": kind.image,
        "diskType": wanted.disk_type,
        "labels": dict(ours),
    }
    if wanted.disk is not None:
        made["diskSizeGb"] = str(-(-wanted.disk // _MIB_PER_GIB))
    return {"boot": True, "autoDelete": True, "initializeParams": made}


def _spot() -> dict[str, Any]:
    return {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
    }


def subnetwork(wanted: Google) -> str:
    whole = wanted.subnetwork
    return whole if whole.startswith("projects/") else f"projects/{wanted.project}/{whole}"


def merge(ours: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are joined, anything else is replaced."""
    joined = dict(ours)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(joined.get(key), Mapping)
        joined[key] = merge(joined[key], value) if both else value
    return joined


def members(launches: Sequence[Launch]) -> list[tuple[str, int]]:
    """None if the names tell."""
    if all(names.is_plain(one.cluster, one.node, one.generation) for one in launches):
        return []
    return [(one.node, one.generation) for one in launches]


def script(launches: Sequence[Launch]) -> str:
    first = launches[0]
    if members(launches):
        cases = "\n".join(
            f"{name_of(one)}) TIDE_NODE={quote(one.node)} TIDE_GENERATION={one.generation} ;;"
            for one in launches
        )
        who = _ODD.format(cases=cases)
    else:
        who = _PLAIN.format(prefix=f"{first.cluster}-")
    return whole(first, _WHO + who + tokens(launches) + rest(first))


def metadata(present: Mapping[str, Any], launch: Launch) -> dict[str, Any]:
    """What an instance has, with another script; the fingerprint says what it was made from."""
    answer: dict[str, Any] = {"items": _with_script(present, named(launch))}
    if "fingerprint" in present:
        answer["fingerprint"] = present["fingerprint"]
    return answer


def _with_script(present: Mapping[str, Any], text: str) -> list[dict[str, str]]:
    kept = [
        {"key": str(item["key"]), "value": str(item["value"])}
        for item in present.get("items") or ()
        if item.get("key") != SCRIPT
    ]
    return [*kept, {"key": SCRIPT, "value": text}]


def image(cluster: str, name: str, disk: str) -> dict[str, Any]:
    return {
        "name": image_resource(cluster, name),
        "sourceDisk": disk,
        "labels": {tags.CLUSTER: names.label(cluster)},
        "description": names.describe_image(cluster, name),
    }


def image_resource(cluster: str, name: str) -> str:
    """Images are all of the project's: two clusters may call theirs the same."""
    return names.fit(f"{cluster}-{name}")


def cluster_filter(cluster: str) -> str:
    return f'labels.{tags.CLUSTER} = "{names.label(cluster)}"'
