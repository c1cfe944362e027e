"""What reaches a node only when it boots, and is not in its user data. Pure.

`Parts.config_of` counts it, so that nodes which run without it are found and updated. What nodes
see live, or fetch as they run, is none of it.
"""

import json

from springtide.configure.mounts import bound_in, mounts_of
from springtide.spec import Cluster, Containers


def boot_only(spec: Cluster, group: str) -> str:
    """A text that is another one if nodes of the group would boot otherwise; empty if nothing is.

    Nodes mount what is new as they run, but check and leave only what they knew when they booted.
    """
    if group not in spec.groups:
        return ""
    if isinstance(spec.provider_of(group), Containers):
        bound = [[str(one.source), str(one.path), one.read_only] for one in bound_in(spec)]
        return json.dumps(bound) if bound else ""
    gets = spec.gets(group)
    mounts = mounts_of(spec, "") if "mounts" in gets else []
    health = str(spec.health) if spec.health and "health" in gets else ""
    return json.dumps([mounts, health]) if mounts or health else ""
