"""What the adapter of a cloud must do: blocking calls over its SDK, without state of its own.

Every function may raise CloudError and nothing else: each adapter has one translator of its SDK's
errors. Retries are the guard's, so the SDK's own are off. No call may wait for ever.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from springtide.ports import (
    Check,
    CloudError,
    CloudFlavor,
    CloudImage,
    Instance,
    Launch,
    Need,
    Site,
)

Answers = Mapping[str, Instance | CloudError]
"""By node."""


class Driver(Protocol):
    """One account of a cloud."""

    batch: int
    """So many instances can be made with one call."""
    in_place: bool
    """Whether `rebuild` works."""

    def renews(self, markets: Sequence[str]) -> bool:
        """Whether `reboot` gives instances new user data."""
        ...

    def prepare(self, cluster: str) -> Site: ...

    def remove(self, cluster: str) -> None:
        """What `prepare` made; the instances are gone by then."""
        ...

    def list(self, cluster: str) -> Sequence[Instance]:
        """All pages; also those that are going, until they are gone."""
        ...

    def launch(self, launches: Sequence[Launch]) -> Answers:
        """At most `batch` launches that differ in node, generation and token alone.

        None of them exists.

        Those that it says nothing about count as not made; what it raises holds for all. The
        same again, as after a lost reply, makes no second one where the cloud can see to that.
        """
        ...

    def delete(self, instances: Sequence[Instance]) -> Mapping[str, CloudError]: ...

    def reboot(self, instance: Instance, launch: Launch) -> Instance: ...

    def rebuild(self, instance: Instance, launch: Launch) -> Instance: ...

    def console(self, instance: Instance) -> str:
        """The end of it; empty if the cloud has none."""
        ...

    def snapshot(self, instance: Instance, name: str) -> CloudImage: ...

    def images(self, cluster: str) -> Sequence[CloudImage]: ...

    def forget(self, image: CloudImage) -> None: ...

    def flavors(self) -> Mapping[str, CloudFlavor]: ...

    def check(self, cluster: str, needs: Sequence[Need]) -> Sequence[Check]: ...

    def close(self) -> None: ...
