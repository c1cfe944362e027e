"""`provider: {kind: oci}`."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Id, Size, Word


class Oci(Remote):
    """Instances of Oracle Cloud Infrastructure."""

    kind: Literal["oci"] = "oci"
    """A flavor's type is a shape; `VM.Standard.E4.Flex.4.64` is a flexible one with 4 OCPUs and
    64 GB. Zones are availability domains, such as `AD-1`; a market is `preemptible` or
    `on-demand`."""
    credentials: AbsolutePath | None = None
    """A config file; left out, ~/.oci/config, or with `auth: instance` none."""
    profile: Word = "DEFAULT"
    """Which part of the config file."""
    auth: Literal["key", "instance"] = "key"
    """`instance` uses the rights of the machine we run on (instance principals)."""
    region: Word | None = None
    """Left out, the config file's or the machine's."""
    endpoint: Id | None = None
    """Another address of the service, for tests."""
    compartment: Id
    """The OCID of the compartment that nodes are in."""
    subnet: Id
    """The OCID of the subnet that nodes are on."""
    subnets: Mapping[Word, Id] = Field(default_factory=dict)
    """Other subnets of availability domains."""
    ssh_key: AbsolutePath | None = None
    """A public key for logging in."""
    disk: Size | None = None
    """Of the boot volume; left out, the image's."""
