"""The parts of a cluster file: batch system, providers, images, flavors, groups, partitions.

Attributes are called as their keys are. Times are seconds, memory is MiB.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from springtide import nodeset
from springtide.spec.clouds import (
    Aws,
    Azure,
    Command,
    Google,
    Libvirt,
    Oci,
    OpenStack,
    Terraform,
)
from springtide.spec.joining import Build, Feature
from springtide.spec.queues import GridEngine, OpenPbs, Polling, Torque
from springtide.spec.strict import Strict
from springtide.spec.values import (
    AbsolutePath,
    Account,
    Address,
    Arch,
    Count,
    Cpus,
    Distinct,
    Host,
    Hosts,
    Hours,
    Id,
    Label,
    Mount,
    Name,
    Parameter,
    ParameterName,
    Port,
    PositiveSeconds,
    Price,
    Seconds,
    Share,
    Size,
    Subnet,
    Switch,
    Type,
    Word,
)


def _kind(default: str) -> BeforeValidator:
    """The kind of a part that names none; `kind:` with nothing after it is a mistake."""

    def fill(data: Any) -> Any:
        return {"kind": default} | data if isinstance(data, dict) else data

    return BeforeValidator(fill)


class Batch(Strict):
    """What every batch system has."""

    user: Account = "slurm"
    """Who it runs as (SlurmUser), and who besides root may call our hook."""


class Accounting(Strict):
    """A slurmdbd and a MariaDB of the cluster's own, beside its slurmctld."""

    port: Port = 6819
    """slurmdbd's, on the control address only."""


class Slurm(Batch):
    """A slurmctld and a munged of the cluster's own, on this machine; or one that is there."""

    kind: Literal["slurm"] = "slurm"
    """Which batch system; the keys beside it depend on it."""
    port: Port = 6817
    """slurmctld's, on the control address only: clusters side by side can have the same."""
    node_port: Port = 6818
    """slurmd's, on every node."""
    host: Host | None = None
    """The control host's name; left out, this machine's short host name."""
    prolog: AbsolutePath | None = None
    """The site's own PrologSlurmctld, which runs after ours."""
    resume_rate: Count = 0
    """ResumeRate: so many nodes in a minute may start, 0 is no limit."""
    suspend_rate: Count = 0
    """SuspendRate: so many nodes in a minute may go, 0 is no limit."""
    accounting: Accounting | None = None
    """`{}` keeps an account of all jobs, for sacct; left out, none is kept."""
    attach: AbsolutePath | None = None
    """The slurm.conf of a Slurm that is there without us; left out, the cluster has its own."""
    munge_key: AbsolutePath | None = None
    """The key of that Slurm's munge, for nodes; left out, /etc/munge/munge.key."""
    polling: Polling | None = None
    """`{}` watches a Slurm that is there and stays as it is, instead of having its programs call
    us; its slurm.conf has our nodes and partitions already."""
    hide_off: Switch = False
    """Whether Slurm's commands show no powered-down nodes, not even to root. Slurm 23.02 and newer
    always show them."""
    actions: Switch | None = None
    """Whether Slurm 26.05 and newer get power actions, for `scontrol reboot action=rebuild` or
    `action=reboot`; all its machines must be as new. Left out, a Slurm that is there gets none."""
    parameters: Mapping[ParameterName, Parameter] = Field(default_factory=dict)
    """Further lines of slurm.conf, or other values for ours; lists such as
    SchedulerParameters are added to."""


class FakeBatch(Batch):
    """A batch system in memory, for tests."""

    kind: Literal["fake"] = "fake"
    """The daemon refuses it."""


AnyBatch = Annotated[
    Slurm | Torque | OpenPbs | GridEngine | FakeBatch,
    Field(discriminator="kind"),
    _kind("slurm"),
]


class Containers(Strict):
    """Nodes are containers on this machine."""

    kind: Literal["containers"] = "containers"
    """Where nodes come from; the keys beside it depend on it."""
    subnet: Subnet | None = None
    """The network of nodes and control host, which has its first address; left out, a free
    /20 of 10.77.0.0/16, chosen when the site is made."""
    mounts: Annotated[tuple[Mount, ...], Distinct] = ()
    """Directories of this machine that every node sees at the same path, to read and write."""


class NoProvider(Strict):
    """Machines that exist without us: never created, deleted or suspended."""

    kind: Literal["none"] = "none"
    """Slurm gets their node lines, and never suspends them."""


class FakeProvider(Strict):
    """A cloud in memory, for tests."""

    kind: Literal["fake"] = "fake"
    """The daemon refuses it."""
    latency: Seconds = 0.0
    """How long a call takes."""
    boot: Seconds = 0.0
    """How long an instance takes to boot."""


Provider = (
    Containers
    | OpenStack
    | Aws
    | Oci
    | Azure
    | Google
    | Libvirt
    | Terraform
    | Command
    | NoProvider
    | FakeProvider
)
AnyProvider = Annotated[Provider, Field(discriminator="kind"), _kind("containers")]


class Image(Strict):
    """What a node's root is made of."""

    path: AbsolutePath | None = None
    """Of containers: a root directory of this machine, which nodes see, but what they write to it
    goes with them. Of libvirt: a disk image."""
    id: Mapping[Arch, Id] | Id | None = None
    """A cloud's own id or name of it; where it has one for each architecture,
    `{x86_64: …, aarch64: …}`."""
    build: Build | None = None
    """Instead of both: a family of images that `tide image build` makes. New nodes get the newest
    of it that fits their architecture."""

    def id_for(self, arch: str) -> str | None:
        """An id that is one for all is taken to fit."""
        return self.id.get(arch) if isinstance(self.id, Mapping) else self.id

    @property
    def all_ids(self) -> tuple[str, ...]:
        if self.id is None:
            return ()
        return tuple(self.id.values()) if isinstance(self.id, Mapping) else (self.id,)


class Flavor(Strict):
    """How big a node is, and what an hour of it costs."""

    type: Type | None = None
    """What a cloud calls it, such as `c7i.xlarge`; left out, its name here. On AWS it may be one
    of several, `c7i.xlarge|c7a.xlarge`."""
    cpus: Cpus
    """What Slurm is told; a container is not held to it."""
    memory: Size
    """What Slurm is told; a container is not held to it. Less than a machine has: its kernel
    takes some."""
    sockets: Cpus | None = None
    """What Slurm is told of the sockets of a node; left out, nothing."""
    threads: Cpus | None = None
    """The threads of a core, which `cpus` counts; left out, Slurm is told nothing of cores."""
    gres: Annotated[tuple[Word, ...], Distinct] = ()
    """Slurm's generic resources, such as `gpu:2`."""
    arch: Arch = "x86_64"
    """Which of an image's ids it needs."""
    price: Price | None = None
    """Of an hour, in whatever currency; `tide plan` adds it up."""
    features: Annotated[tuple[Label, ...], Distinct] = ()
    """Features of its nodes in Slurm, where all flavors of the group have them."""


class Group(Strict):
    """Nodes that are made alike."""

    nodes: Hosts = ""
    """All that may exist, as a host list."""
    min: Count = 0
    """So many are always up, the first ones; the others come and go with the jobs."""
    flavors: Annotated[tuple[Name, ...], Field(min_length=1), Distinct] = ("default",)
    """In the order to try when the provider has no room; Slurm is told what all of them have."""
    zones: Annotated[tuple[Word, ...], Distinct] = ()
    """Zones of the provider, in the order to try; containers have none."""
    choose: Literal["order", "price"] = "order"
    """Which flavor is tried first: the first one named, or the cheapest."""
    markets: Annotated[tuple[Word, ...], Distinct] = ()
    """Ways to buy, such as `spot`, in the order to try; containers have none."""
    start: Literal["whole", "any"] = "whole"
    """If not all nodes of a job can be made: `whole` gives up those that no waiting job could
    use, `any` lets them all start."""
    fresh: Switch = False
    """Whether every job gets nodes that no other job has used."""
    image: Name | None = None
    """One of `images`; left out, that of the whole cluster."""
    provider: AnyProvider | None = None
    """Where its nodes come from; left out, as for the whole cluster."""
    features: Annotated[tuple[Label, ...], Distinct] = ()
    """Features of its nodes in Slurm."""
    weight: Cpus | None = None
    """Slurm gives jobs the nodes of least weight that will do; left out, its own default, 1."""
    cloud_config: AbsolutePath | None = None
    """A `#cloud-config` of the site's own, which cloud-init of its nodes applies besides."""
    without: Annotated[tuple[Feature, ...], Distinct] = ()
    """What its nodes do not get when they join, because their image has it or they need it not;
    `join` is all of it."""
    addresses: Mapping[Host, Address] = Field(default_factory=dict)
    """Where its nodes are, if that is known before: taken where the provider tells no address, and
    names that nodes know also of those that are off."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(nodeset.expand(self.nodes)) if self.nodes else ()


class Partition(Strict):
    """A queue over groups."""

    groups: Annotated[tuple[Name, ...], Distinct]
    """Whose nodes it has."""
    default: Switch = False
    """Whether jobs that name no partition go there."""
    parameters: Mapping[ParameterName, Parameter] = Field(default_factory=dict)
    """Further settings of its line in slurm.conf."""


class Rebuild(Strict):
    """How nodes get a new image."""

    batch: Count = 0
    """So many nodes at once; 0 is as many as have no jobs."""
    pause: Seconds = 0.0
    """Between two batches."""
    partitions: Mapping[Name, Annotated[tuple[Name, ...], Distinct]] = Field(default_factory=dict)
    """Partitions for rebuild jobs, each with the partitions whose nodes it has; left out, one
    called `rebuild` with all nodes."""
    max_time: PositiveSeconds = 3600.0
    """A rebuild job may take so long."""


class Drift(Strict):
    """Nodes that are not as the file says: another image, flavor or configuration."""

    replace: Switch = False
    """Whether they are replaced by themselves; if not, `tide rebuild` and `tide update` do it."""
    at_once: Share = "10%"
    """So many nodes, or such a part of those that are up, but at least one; those first that
    have no jobs."""
    hours: Annotated[tuple[Hours, ...], Distinct] = ()
    """When, such as `22:00-06:00` of this machine's clock; left out, always."""


class Timing(Strict):
    """How long things may take; a number without a unit is seconds."""

    idle: Seconds = 600.0
    """A node without a job is given up after this (SuspendTime)."""
    start: PositiveSeconds = 600.0
    """A node that has not registered by then has failed; ResumeTimeout is 30 s longer."""
    stop: PositiveSeconds = 300.0
    """An instance is gone by then (SuspendTimeout)."""
    drain: PositiveSeconds = 86400.0
    """The jobs of a node that must go may run so long."""
    reconcile: PositiveSeconds = 30.0
    """How often all is compared with what should be."""
    grace: Seconds = 60.0
    """How long something may look wrong before it is repaired: lists of clouds lag behind."""
    lock: PositiveSeconds = 600.0
    """How long an operation may wait for others on its nodes, and for a slurmctld that is away."""
    keep: PositiveSeconds = 7_776_000.0
    """Events and finished operations older than this are deleted; the last of each node stay."""
    gather: Seconds = 0.005
    """Calls of the hook that come so close together are one operation."""
