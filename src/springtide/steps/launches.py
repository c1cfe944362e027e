"""Launches as they are asked of a provider, from spec and record."""

from springtide import decide
from springtide.model import Node
from springtide.ports import Launch
from springtide.steps.work import Work


def describe(work: Work, node: Node, choice: int) -> Launch:
    """The launch of a node with its n-th choice of flavor and zone."""
    flavor, zone = decide.choices(work.parts.spec, node.group)[choice]
    assert node.image is not None
    assert work.parts.site is not None
    return Launch(
        cluster=work.cluster,
        node=node.name,
        generation=node.generation,
        group=node.group,
        image=node.image,
        flavor=flavor,
        zone=zone,
        user_data=work.parts.configurator.user_data(node, work.parts.site),
    )
