"""Which node a server is: by its metadata, and within a bulk launch by its number.

Servers of one request share their metadata, which then hold a roster. Nova numbers their names,
from 1 on, and numbers their launch indices, from 0 on, in the same order. Only admins are shown
the index, but the machine itself is told it, and everybody sees the name.
"""

import re
from collections.abc import Mapping

from springtide.ports import Launch
from springtide.providers.cloud import roster, tags
from springtide.providers.cloud.roster import Member
from springtide.providers.openstack.api import Json

IMAGE_ID = "springtide-image-id"
"""Glance's id of what it boots: servers that boot from a volume do not show it."""
ZONE = "springtide-zone"
"""The zone that was asked for; servers tell the one that they got."""

LONGEST = 40
"""Of what names begin with: host names made of them have to stay short."""

INDEX = """\
tide_own() { grep -o '"launch_index": *[0-9]*' | head -n 1 | grep -o '[0-9]*$'; }
tide_drive() { tide_at=$(mktemp -d) && mount -o ro /dev/disk/by-label/config-2 "$tide_at" &&
{ cat "$tide_at/openstack/latest/meta_data.json"; umount "$tide_at"; }; }
tide_told=http://169.254.169.254/openstack/latest/meta_data.json
{ cat /run/cloud-init/instance-data.json | tide_own || tide_drive | tide_own ||
curl -sf -m 30 "$tide_told" | tide_own || wget -qO - -T 30 "$tide_told" | tide_own
} 2>/dev/null"""
"""Prints the launch index: from what cloud-init has read, else the config drive, else the metadata
service, whichever is the first that has it; fails if none does."""

_NUMBERED = re.compile(r"-node(?:-(\d{1,6}))?")


def bulk_name(launch: Launch) -> str:
    """What the names of a bulk launch begin with."""
    return f"{launch.cluster}-{launch.group}"[:LONGEST] + "-node"


def member_of(server: Json) -> Member:
    """The node and its generation. One that cannot be told apart is known by its own name."""
    metadata: Mapping[str, str] = server.get("metadata", {})
    if node := metadata.get(tags.NODE):
        return node, _number(metadata.get(tags.GENERATION))
    members, index = roster.read(metadata), _index(server)
    if index is not None and index < len(members):
        return members[index]
    return str(server.get("name") or server["id"]), 0


def _index(server: Json) -> int | None:
    told = server.get("OS-EXT-SRV-ATTR:launch_index")
    if isinstance(told, int):
        return told
    for name in (server.get("OS-EXT-SRV-ATTR:hostname"), server.get("name")):
        found = list(_NUMBERED.finditer(name or ""))
        if found and found[-1].end() == len(name or ""):
            return int(found[-1][1] or 1) - 1
    return None


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
