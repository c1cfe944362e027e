"""The cluster as its file describes it, whole and consistent: what the rest of Springtide reads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
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
from springtide.spec.checks import check
from springtide.spec.clouds import Remote
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
from springtide.spec.strict import Strict
from springtide.spec.values import AbsolutePath, Account, ClusterName, Name, Switch

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
    flavors: Annotated[Mapping[Name, Flavor], AfterValidator(_or_default)] = Field(
        default_factory=dict, validate_default=True
    )
    groups: Mapping[Name, Group] = Field(default_factory=dict)
    partitions: Mapping[Name, Partition] = Field(default_factory=dict, validate_default=True)
    rebuild: Rebuild = Rebuild()
    drift: Drift = Drift()
    health: AbsolutePath | None = None
    """A program of the site that nodes must pass before they take jobs, and while they do."""
    timing: Timing = Timing()

    @field_validator("partitions")
    @classmethod
    def _or_main(
        cls, partitions: Mapping[str, Partition], info: ValidationInfo
    ) -> Mapping[str, Partition]:
        groups = tuple(info.data.get("groups", ()))
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
    def managed(self) -> tuple[str, ...]:
        """The nodes that we make and remove."""
        return tuple(name for group in self._managed_groups for name in self.names(group))

    @cached_property
    def always_up(self) -> tuple[str, ...]:
        """The first `min` nodes of each group that we manage."""
        return tuple(
            name
            for group in self._managed_groups
            for name in self.names(group)[: self.groups[group].min]
        )

    @property
    def _managed_groups(self) -> list[str]:
        return [key for key in self.groups if not isinstance(self.provider_of(key), NoProvider)]

    @cached_property
    def remote(self) -> tuple[str, ...]:
        """The groups whose nodes have a kernel and files of their own."""
        return tuple(key for key in self.groups if isinstance(self.provider_of(key), Remote))

    def names(self, group: str) -> tuple[str, ...]:
        return self.groups[group].names

    def provider_of(self, group: str) -> Provider:
        return self.groups[group].provider or self.provider

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
