"""What jobs ask for, against the features that groups of ours have. Pure; called by adapters."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

from springtide.spec import Cluster

MOST_WAYS = 64
"""So many alternatives are followed; beyond that a job is taken for less choosy than it is."""

Ways = tuple[frozenset[str], ...]
"""Alternatives: a node must have all features of one of them."""


def known_features(spec: Cluster) -> frozenset[str]:
    """Of all groups."""
    own = (one for group in spec.groups.values() for one in group.features)
    flavors = (spec.flavor(name) for group in spec.groups.values() for name in group.flavors)
    return frozenset((*own, *(one for flavor in flavors for one in flavor.features)))


def divided(wanted: Iterable[frozenset[str]]) -> tuple[frozenset[str], Ways]:
    """One of each set is wanted: `Chunk.features`, and `Chunk.ways`."""
    sets = set(wanted)
    features = frozenset().union(*(one for one in sets if len(one) == 1))
    several = [tuple(frozenset({name}) for name in sorted(one)) for one in sets if len(one) > 1]
    return features, together(several)


def together(several: Sequence[Ways]) -> Ways:
    """A way of each at once."""
    if not several or prod(map(len, several)) > MOST_WAYS:
        return ()
    return tuple(dict.fromkeys(frozenset().union(*one) for one in product(*several)))
