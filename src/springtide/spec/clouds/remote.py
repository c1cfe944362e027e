"""What all providers share whose nodes have a kernel of their own."""

from pydantic import Field

from springtide.spec.strict import Strict
from springtide.spec.values import Address, Options, PositiveSeconds


class Remote(Strict):
    """Nodes that reach the control host over a network, and not by its files."""

    kind: str
    """Which one; the keys beside it depend on it."""
    control_address: Address | None = None
    """Where nodes reach the control host; left out, this machine's address on its default route."""
    timeout: PositiveSeconds = 60.0
    """A call that takes longer has failed; what it made is found later."""
    options: Options = Field(default_factory=dict)
    """Added to each request for an instance as it stands, in the provider's own words."""
