"""The parts of a cluster file: batch system, providers, images, flavors, groups, partitions.

Attributes are called as their keys are. Times are seconds, memory is MiB.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from springtide import nodeset
from springtide.spec.values import (
    AbsolutePath,
    Account,
    Count,
    Cpus,
    Distinct,
    Host,
    Hosts,
    Mount,
    Name,
    Parameter,
    ParameterName,
    Port,
    PositiveSeconds,
    Price,
    Seconds,
    Size,
    Subnet,
    Switch,
    Word,
)


class Strict(BaseModel):
    """Refuses keys it does not know, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_default(cls, data: Any) -> Any:
        """A key with nothing after it stands for its default, as if it were not there."""
        if data is None:
            return {}
        if not isinstance(data, dict):
            return data
        return {k: v for k, v in data.items() if v is not None or k not in cls.model_fields}


def _kind(default: str) -> BeforeValidator:
    """The kind of a part that names none; `kind:` with nothing after it is a mistake."""

    def fill(data: Any) -> Any:
        return {"kind": default} | data if isinstance(data, dict) else data

    return BeforeValidator(fill)


class Batch(Strict):
    """What every batch system has."""

    user: Account = "slurm"
    """Who it runs as, and who may call our hook."""


class Slurm(Batch):
    kind: Literal["slurm"] = "slurm"
    port: Port = 6817
    node_port: Port = 6818
    host: Host | None = None
    """The control host's name; None is this machine's short host name."""
    prolog: AbsolutePath | None = None
    """The site's own PrologSlurmctld, which runs after ours."""
    resume_rate: Count = 0
    """Nodes in a minute, 0 is no limit."""
    suspend_rate: Count = 0
    hide_off: Switch = False
    """Whether Slurm's commands show no powered-down nodes, not even to root."""
    parameters: Mapping[ParameterName, Parameter] = Field(default_factory=dict)
    """Further lines of slurm.conf."""


class FakeBatch(Batch):
    """A batch system in memory, for tests."""

    kind: Literal["fake"] = "fake"


AnyBatch = Annotated[Slurm | FakeBatch, Field(discriminator="kind"), _kind("slurm")]


class Containers(Strict):
    """Nodes are containers on this machine."""

    kind: Literal["containers"] = "containers"
    subnet: Subnet | None = None
    """None is a free one, chosen when the site is made."""
    mounts: Annotated[tuple[Mount, ...], Distinct] = ()
    """Directories of this machine that every node sees at the same path."""


class NoProvider(Strict):
    """Machines that exist without us: never created, deleted or suspended."""

    kind: Literal["none"] = "none"


class FakeProvider(Strict):
    """A cloud in memory, for tests."""

    kind: Literal["fake"] = "fake"
    latency: Seconds = 0.0
    boot: Seconds = 0.0


Provider = Containers | NoProvider | FakeProvider
AnyProvider = Annotated[Provider, Field(discriminator="kind"), _kind("containers")]


class Image(Strict):
    """What a node's root is made of."""

    path: AbsolutePath


class Flavor(Strict):
    """How big a node is, and what an hour of it costs."""

    cpus: Cpus
    memory: Size
    """MiB."""
    price: Price | None = None
    features: Annotated[tuple[Word, ...], Distinct] = ()


class Group(Strict):
    """Nodes that are made alike."""

    nodes: Hosts = ""
    """All that may exist, as a host list; `names` are its names."""
    min: Count = 0
    """So many are always up, the first ones."""
    flavors: Annotated[tuple[Name, ...], Field(min_length=1), Distinct] = ("default",)
    """In the order to try."""
    zones: Annotated[tuple[Word, ...], Distinct] = ()
    image: Name = "host"
    provider: AnyProvider | None = None
    """None is the cluster's."""
    features: Annotated[tuple[Word, ...], Distinct] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(nodeset.expand(self.nodes)) if self.nodes else ()


class Partition(Strict):
    """A queue over groups."""

    groups: Annotated[tuple[Name, ...], Distinct]
    default: Switch = False
    parameters: Mapping[ParameterName, Parameter] = Field(default_factory=dict)
    """Further settings of its line in slurm.conf."""


class Timing(Strict):
    """All in seconds."""

    idle: Seconds = 600.0
    """A node without a job is given up after this."""
    start: PositiveSeconds = 600.0
    """A node that has not registered by then has failed."""
    stop: PositiveSeconds = 300.0
    """An instance is gone by then."""
    drain: PositiveSeconds = 86400.0
    """The jobs of a node that must go may run so long."""
    reconcile: PositiveSeconds = 30.0
    """Spec, record and world are compared so often."""
    lock: PositiveSeconds = 600.0
    """How long an operation may wait for what others must do first."""
    gather: Seconds = 0.020
    """Calls of the hook that come so close together are one operation."""
