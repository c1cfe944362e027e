"""`provider: {kind: aws}`."""

from collections.abc import Mapping
from typing import Annotated, Literal

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import AbsolutePath, Distinct, Id, Size, Switch, Word


class Aws(Remote):
    """Instances of Amazon EC2."""

    kind: Literal["aws"] = "aws"
    """Zones are availability zones; a market is `spot` or `on-demand`. A flavor's type is an
    instance type, or several with `|` in between, of which any will do."""
    region: Word
    """Such as `eu-west-1`."""
    profile: Word | None = None
    """Of ~/.aws/config; left out, the default one."""
    credentials: AbsolutePath | None = None
    """A credentials file, as the AWS command line has it, readable by us alone; left out,
    ~/.aws/credentials, the environment or the machine's own role."""
    endpoint: Id | None = None
    """Another address of the service, for private clouds and tests."""
    subnets: Mapping[Word, Id]
    """The subnet of each availability zone, such as `{eu-west-1a: subnet-0abc}`; groups without
    zones use any of them."""
    security_groups: Annotated[tuple[Id, ...], Distinct] = ()
    """Ids; left out, the VPC's default."""
    key: Id | None = None
    """Name of a key pair for logging in."""
    profile_of_nodes: Id | None = None
    """An instance profile; best left out: nodes need no rights."""
    template: Id | None = None
    """A launch template, `lt-…` or its name, that all launches start from."""
    placement: Switch = False
    """Nodes close to each other, by a placement group of the cluster's own."""
    disk: Size | None = None
    """Of the root disk; left out, the image's."""
