"""What Nova is asked for: launches as the bodies of requests; pure."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from springtide.ports import Launch
from springtide.providers.cloud import roster, script, tags
from springtide.providers.openstack.api import Json
from springtide.providers.openstack.identity import IMAGE_ID, INDEX, ZONE, bulk_name
from springtide.spec.clouds import OpenStack

HINTS = "os:scheduler_hints"
GIB = 1024


@dataclass(frozen=True, slots=True)
class Ids:
    """What OpenStack calls what a launch needs."""

    image: str
    flavor: str
    network: str
    server_group: str | None = None


def has_its_own(wanted: OpenStack, node: str) -> bool:
    """Whether a node has a port, an address or a host of its own, so that it is launched alone."""
    return node in wanted.ports or node in wanted.addresses or node in wanted.hosts


def create(wanted: OpenStack, launches: Sequence[Launch], ids: Ids) -> Json:
    """For launches that are alike; those of a bulk have to be in the order of the roster."""
    first = launches[0]
    server: Json = {
        "name": first.node if len(launches) == 1 else bulk_name(first),
        "flavorRef": ids.flavor,
        "networks": [_network(wanted, first.node, ids)],
        "config_drive": wanted.config_drive,
        "min_count": 1,
        "max_count": len(launches),
        "return_reservation_id": True,
        **_disk(wanted, ids),
        **_choices(wanted, first),
    }
    server |= {key: value for key, value in wanted.options.items() if key != HINTS}
    server["metadata"] = _metadata(wanted, launches, ids)
    server["user_data"] = _encoded(_user_data(launches))
    hints = {"group": ids.server_group} if ids.server_group else {}
    hints |= wanted.options.get(HINTS, {})
    return {"server": server, HINTS: hints} if hints else {"server": server}


def rebuild(launch: Launch, image: str, metadata: Json) -> Json:
    """A rebuilt server is one of its own: it leaves the roster of its launch."""
    kept = {key: value for key, value in metadata.items() if not key.startswith(tags.NODES)}
    return {
        "rebuild": {
            "imageRef": image,
            "metadata": {**kept, **tags.own(launch), IMAGE_ID: image},
            "user_data": _encoded(script.named(launch)),
        }
    }


def snapshot(name: str, cluster: str) -> Json:
    return {"createImage": {"name": name, "metadata": {tags.CLUSTER: cluster}}}


def _network(wanted: OpenStack, node: str, ids: Ids) -> Json:
    """Nova makes the port, and removes it with the server, unless the file names one."""
    if port := wanted.ports.get(node):
        return {"port": port}
    fixed = wanted.addresses.get(node)
    return {"uuid": ids.network, **({"fixed_ip": str(fixed)} if fixed else {})}


def _disk(wanted: OpenStack, ids: Ids) -> Json:
    """The flavor's, or a volume that goes with the server."""
    if wanted.volume is None:
        return {"imageRef": ids.image}
    volume = {
        "boot_index": 0,
        "uuid": ids.image,
        "source_type": "image",
        "destination_type": "volume",
        "volume_size": -(-wanted.volume // GIB),
        "delete_on_termination": True,
        **({"volume_type": wanted.volume_type} if wanted.volume_type else {}),
    }
    return {"block_device_mapping_v2": [volume]}


def _choices(wanted: OpenStack, launch: Launch) -> Json:
    """What is said only if the file says it; the names of hosts are those of hypervisors."""
    said = {
        "availability_zone": launch.zone,
        "hypervisor_hostname": wanted.hosts.get(launch.node),
        "key_name": wanted.key,
        "security_groups": [{"name": name} for name in wanted.security_groups],
    }
    if launch.node in wanted.ports:
        del said["security_groups"]
    return {key: value for key, value in said.items() if value}


def _metadata(wanted: OpenStack, launches: Sequence[Launch], ids: Ids) -> dict[str, str]:
    """The file's own, and ours."""
    first = launches[0]
    whose = tags.own(first) if len(launches) == 1 else tags.shared(first)
    members = [] if len(launches) == 1 else [(one.node, one.generation) for one in launches]
    return {
        **{key: str(value) for key, value in wanted.options.get("metadata", {}).items()},
        **whose,
        **(roster.write(members) if members else {}),
        **({ZONE: first.zone} if first.zone else {}),
        IMAGE_ID: ids.image,
    }


def _user_data(launches: Sequence[Launch]) -> str:
    if len(launches) == 1:
        return script.named(launches[0])
    return script.indexed(launches, INDEX)


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
