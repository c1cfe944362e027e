"""`provider: {kind: google}`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Distinct, Id, Size, Word, matching

Subnetwork = Annotated[
    str,
    BeforeValidator(
        matching(
            "(projects/[a-z0-9.:-]+/)?regions/[a-z0-9-]+/subnetworks/[a-z0-9-]+",
            "a subnetwork, such as regions/europe-west4/subnetworks/nodes",
        )
    ),
]


class Google(Remote):
    """Instances of Google Compute Engine."""

    kind: Literal["google"] = "google"
    """A flavor's type is a machine type; an image's id is `projects/P/global/images/NAME`, or
    `…/images/family/NAME` for the newest of a family. A market is `spot` or left out."""
    project: Word
    """The id of the project that nodes are in."""
    zone: Word
    """Of groups that name none."""
    subnetwork: Subnetwork
    """`regions/REGION/subnetworks/NAME` that nodes are on; with `projects/P/` before it if it is
    shared by another project."""
    credentials: AbsolutePath | None = None
    """A service account's key file, readable by us alone; left out, the machine's own account."""
    endpoint: Id | None = None
    """Another address of the service, for tests."""
    tags: Annotated[tuple[Word, ...], Distinct] = ()
    """Network tags of nodes, for firewall rules."""
    disk: Size | None = None
    """Of the root disk; left out, the image's."""
    disk_type: Word = "pd-balanced"
    """Of the root disk."""
