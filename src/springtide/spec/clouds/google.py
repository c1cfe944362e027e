"""`provider: {kind: google}`."""

from typing import Annotated, Literal

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Distinct, Id, Size, Word


class Google(Remote):
    """Instances of Google Compute Engine."""

    kind: Literal["google"] = "google"
    """A flavor's type is a machine type. A market is `spot` or left out."""
    project: Word
    zone: Word
    """Of groups that name none."""
    subnetwork: Id
    """`regions/REGION/subnetworks/NAME` that nodes are on."""
    credentials: AbsolutePath | None = None
    """A service account's key file, readable by us alone; left out, the machine's own account."""
    endpoint: Id | None = None
    """Another address of the service, for tests."""
    tags: Annotated[tuple[Word, ...], Distinct] = ()
    """Network tags of nodes, for firewall rules."""
    disk: Size | None = None
    """Of the root disk; left out, the image's."""
    disk_type: Word = "pd-balanced"
