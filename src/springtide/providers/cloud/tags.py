"""How instances say whose they are. The keys are those that every cloud allows as they stand."""

from springtide.ports import Launch

CLUSTER = "springtide-cluster"
NODE = "springtide-node"
GENERATION = "springtide-generation"
GROUP = "springtide-group"
IMAGE = "springtide-image"
"""The image's name in the cluster file when the instance was made."""
FLAVOR = "springtide-flavor"
"""The same of its flavor."""
NODES = "springtide-nodes"
"""Instances made by one call share their tags: see `roster`."""


def shared(launch: Launch) -> dict[str, str]:
    """The tags of all instances that are made together."""
    return {
        CLUSTER: launch.cluster,
        GROUP: launch.group,
        IMAGE: launch.image,
        FLAVOR: launch.flavor,
    }


def own(launch: Launch) -> dict[str, str]:
    """All tags of one instance, where each can have its own."""
    return {**shared(launch), NODE: launch.node, GENERATION: str(launch.generation)}
