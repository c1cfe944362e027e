"""`provider: {kind: terraform}`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from springtide.spec.clouds.programs import Programs
from springtide.spec.values import AbsolutePath, Argument, PositiveSeconds, matching

Resource = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)+",
            "the address of a resource or module, such as module.node",
        )
    ),
]


class Terraform(Programs):
    """Nodes made by a Terraform (or OpenTofu) module of the site's own."""

    kind: Literal["terraform"] = "terraform"
    """The module has a variable `nodes` and an output `nodes`."""
    module: AbsolutePath
    """The directory of the root module. Each cluster has a workspace of its own in it."""
    resource: Resource
    """What has one instance for each node, such as `module.node`."""
    program: Argument = "terraform"
    """Or `tofu`, or a path."""
    refresh: PositiveSeconds = 300.0
    """How often Terraform looks at the cloud for what vanished there."""
