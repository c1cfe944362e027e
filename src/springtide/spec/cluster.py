"""The cluster as its file describes it, whole and consistent: what the rest of Springtide reads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from string import digits
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from springtide.spec import lookup
from springtide.spec.calendar import Calendar, amount_of
from springtide.spec.checks import check
from springtide.spec.clouds import Remote
from springtide.spec.images import image_name
from springtide.spec.joining import (
    FEATURES,
    OF_OTHERS,
    OF_SLURM,
    Ansible,
    Join,
    Naming,
    Nfs,
    Shared,
    Users,
)
from springtide.spec.parts import (
    AnyBatch,
    AnyProvider,
    Containers,
    Drift,
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
from springtide.spec.queues import Queued
from springtide.spec.strict import Strict
from springtide.spec.values import (
    AbsolutePath,
    Account,
    ClusterName,
    Distinct,
    Host,
    Name,
    Switch,
)

STATE = Path("/var/lib/springtide")
HOST_IMAGE = Image(path=Path("/"))
DEFAULT_FLAVOR = Flavor(cpus=1, memory=256)


def _with_host(images: Mapping[str, Image]) -> Mapping[str, Image]:
    return {"host": HOST_IMAGE, **images}


def _or_default(flavors: Mapping[str, Flavor]) -> Mapping[str, Flavor]:
    return flavors or {"default": DEFAULT_FLAVOR}


class Cluster(Strict):
    """One cluster.yaml. Consistent, however it was made: see `checks`."""

    cluster: ClusterName
    state: AbsolutePath = Field(default_factory=lambda data: STATE / data.get("cluster", ""))
    protected: Switch = False
    admin_group: Account | None = None
    """The Unix group whose members may change things."""
    control: Literal["here", "container"] = "here"
    """Where daemon and batch system run: on this machine itself, or in a container of their own."""
    batch: AnyBatch = Slurm()
    provider: AnyProvider = Containers()
    images: Annotated[Mapping[Name, Image], AfterValidator(_with_host)] = Field(
        default_factory=dict, validate_default=True
    )
    image: Name = "host"
    """One of `images`, for all groups that name none; `host` is this machine's own root."""
    flavors: Annotated[Mapping[Name, Flavor], AfterValidator(_or_default)] = Field(
        default_factory=dict, validate_default=True
    )
    groups: Mapping[Name, Group] = Field(default_factory=dict)
    partitions: Mapping[Name, Partition] = Field(default_factory=dict, validate_default=True)
    rebuild: Rebuild = Rebuild()
    drift: Drift = Drift()
    health: AbsolutePath | None = None
    """A program of the site that nodes must pass before they take jobs; in a Slurm of the
    cluster's own also while they do, but not in one that is attached to or watched, nor with
    Torque, OpenPBS or Grid Engine."""
    join: Join = Join()
    shared: tuple[Shared, ...] = ()
    """Filesystems that every node has before it takes jobs."""
    nfs: Nfs = Nfs()
    naming: Naming = Naming()
    users: Users = Users()
    certificates: Annotated[tuple[AbsolutePath, ...], Distinct] = ()
    """Files with certificates of authorities that nodes trust."""
    time: Annotated[tuple[Host, ...], Distinct] = ()
    """Time servers of nodes; left out, whatever their image has."""
    ansible: Ansible | None = None
    """Software of nodes that are always up; left out, it is all in their images."""
    calendar: Calendar = Calendar()
    """How many nodes are up when; left out, the same at all times."""
    timing: Timing = Timing()

    @field_validator("partitions")
    @classmethod
    def _or_main(
        cls, partitions: Mapping[str, Partition], info: ValidationInfo
    ) -> Mapping[str, Partition]:
        groups = tuple(info.data.get("groups", ()))
        if isinstance(info.data.get("batch"), Queued):
            return partitions  # which queues are served is not for us to guess
        return partitions or {"main": Partition(groups=groups, default=True)}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if findings := check(self.model_dump()):
            details = [finding.detail for finding in findings]
            raise ValidationError.from_exception_data("Cluster", details)
        return self

    @cached_property
    def node_group(self) -> Mapping[str, str]:
        """The group of every node, in the order of the file."""
        return {name: key for key, group in self.groups.items() for name in group.names}

    @cached_property
    def addresses(self) -> Mapping[str, str]:
        """Where nodes are, as far as the file says it."""
        groups = self.groups.values()
        return {name: address for one in groups for name, address in one.addresses.items()}

    @cached_property
    def managed(self) -> tuple[str, ...]:
        """The nodes that we make and remove."""
        return tuple(name for group in self._managed_groups for name in self.names(group))

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """What the names of these look like; every node that joins is told."""
        return tuple(sorted({f"{name.rstrip(digits)}*" for name in self.managed}))

    @cached_property
    def always_up(self) -> tuple[str, ...]:
        """The first `min` nodes of each group that we manage."""
        return tuple(
            name
            for group in self._managed_groups
            for name in self.names(group)[: self.groups[group].min]
        )

    @cached_property
    def sometimes_up(self) -> tuple[str, ...]:
        """The nodes that are always up, and those that the calendar keeps up at times."""
        return tuple(
            name for group in self._managed_groups for name in self.names(group)[: self.most(group)]
        )

    def most(self, group: str) -> int:
        """The largest minimum that a group has at any time."""
        entries = (one for one in self.calendar.entries if one.is_for(group))
        total = len(self.names(group))
        wanted = (amount_of(one.min, total) for one in entries if one.min is not None)
        return max((self.groups[group].min, *wanted))

    @property
    def _managed_groups(self) -> list[str]:
        return [key for key in self.groups if not isinstance(self.provider_of(key), NoProvider)]

    @cached_property
    def remote(self) -> tuple[str, ...]:
        """The groups whose nodes have a kernel and files of their own."""
        return tuple(key for key in self.groups if isinstance(self.provider_of(key), Remote))

    @property
    def attached(self) -> bool:
        """Whether our part is in the configuration of a Slurm that is there without us."""
        batch = self.batch
        return isinstance(batch, Slurm) and batch.attach is not None and batch.polling is None

    @property
    def polled(self) -> bool:
        """Whether the batch system is read, and does not ask for nodes."""
        batch = self.batch
        return isinstance(batch, Queued) or (isinstance(batch, Slurm) and batch.polling is not None)

    def gets(self, group: str) -> tuple[str, ...]:
        """The features that nodes of a group get when they join, in order; none if they do not."""
        without = self.groups[group].without
        if group not in self.remote or "join" in without:
            return ()
        return tuple(one for one in self.features if one not in without)

    def applies(self, role: str, group: str) -> bool:
        """Whether Ansible gives nodes of a group a role of ours."""
        wanted = self.ansible
        served = "ansible" not in self.groups[group].without
        return wanted is not None and served and role in wanted.roles

    @property
    def features(self) -> tuple[str, ...]:
        """All that nodes of such a batch system may get."""
        others = OF_SLURM if isinstance(self.batch, Queued) else OF_OTHERS
        return tuple(one for one in FEATURES if one not in others)

    def names(self, group: str) -> tuple[str, ...]:
        return self.groups[group].names

    def provider_of(self, group: str) -> Provider:
        return self.groups[group].provider or self.provider

    def image_of(self, group: str) -> str:
        """Its own, or the cluster's, which machines that exist do not get."""
        return self._images[group]

    @cached_property
    def _images(self) -> Mapping[str, str]:
        data = self.model_dump()
        return {key: image_name(data, group) for key, group in data["groups"].items()}

    def provider_name(self, group: str) -> str:
        """Its kind; where the file has several of a kind, with a mark of its own."""
        return self._provider_names[group]

    @cached_property
    def _provider_names(self) -> Mapping[str, str]:
        blocks = {key: self.provider_of(key) for key in self.groups}
        texts = {key: block.model_dump_json() for key, block in blocks.items()}
        alike: dict[str, set[str]] = {}
        for key, block in blocks.items():
            alike.setdefault(block.kind, set()).add(texts[key])
        return {
            key: block.kind
            if len(alike[block.kind]) == 1
            else f"{block.kind}-{sha256(texts[key].encode()).hexdigest()[:6]}"
            for key, block in blocks.items()
        }

    def flavor(self, name: str) -> Flavor:
        return self.flavors[name]

    def price(self, names: Iterable[str]) -> float | None:
        """What these nodes cost an hour with the first flavor of their groups; None if unknown."""
        total = 0.0
        for key, count in Counter(self.node_group[name] for name in names).items():
            price = self.flavor(self.groups[key].flavors[0]).price
            if price is None:
                return None
            total += count * price
        return round(total, 4)

    def require(self, names: Iterable[str]) -> tuple[str, ...]:
        """These names from outside, each once, if we may act on all of them."""
        wanted = tuple(dict.fromkeys(names))
        if unknown := [name for name in wanted if name not in self.node_group]:
            raise lookup.unknown(unknown, self.groups)
        if untouched := [name for name in wanted if name not in self._touched]:
            raise lookup.untouched(untouched, self.node_group)
        return wanted

    @cached_property
    def _touched(self) -> frozenset[str]:
        return frozenset(self.managed)


def schema() -> dict[str, Any]:
    """The JSON schema of a cluster file."""
    return Cluster.model_json_schema()
