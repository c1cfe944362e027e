"""`provider: {kind: terraform}`."""

from typing import Literal

from springtide.spec.clouds.programs import Programs
from springtide.spec.values import AbsolutePath, Word


class Terraform(Programs):
    """Nodes made by a Terraform (or OpenTofu) module of the site's own."""

    kind: Literal["terraform"] = "terraform"
    """The module gets the nodes in a variable, and tells about them in an output."""
    module: AbsolutePath
    """The directory of the root module."""
    program: Word = "terraform"
    """Or `tofu`, or a path."""
    resource: Word
    """The resource or module with one instance for each node, such as `terraform_data.node`."""
