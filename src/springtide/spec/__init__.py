"""cluster.yaml: what a person wants, read with messages for people. Every layer above reads it.

`load` and `parse` give a Cluster, whole and consistent, or a SpecError with every problem of
the file. Inside: `source` reads YAML with places, `values` and `parts` are the schema,
`checks` is what must fit together, `messages` turns errors into sentences.
"""

from springtide.spec.cluster import Cluster, schema
from springtide.spec.parts import (
    Accounting,
    Containers,
    FakeBatch,
    FakeProvider,
    Flavor,
    Group,
    Image,
    NoProvider,
    Partition,
    Provider,
    Rebuild,
    Slurm,
    Timing,
)
from springtide.spec.problems import Problem, SpecError, UnknownGroup, UnknownNodes
from springtide.spec.queues import GridEngine, OpenPbs, Polling, Queued, Torque
from springtide.spec.read import load, parse
from springtide.spec.rewrite import reimaged, resized

__all__ = [
    "Accounting",
    "Cluster",
    "Containers",
    "FakeBatch",
    "FakeProvider",
    "Flavor",
    "GridEngine",
    "Group",
    "Image",
    "NoProvider",
    "OpenPbs",
    "Partition",
    "Polling",
    "Problem",
    "Provider",
    "Queued",
    "Rebuild",
    "Slurm",
    "SpecError",
    "Timing",
    "Torque",
    "UnknownGroup",
    "UnknownNodes",
    "load",
    "parse",
    "reimaged",
    "resized",
    "schema",
]
