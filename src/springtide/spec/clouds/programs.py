"""What providers share that run programs of the site."""

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import PositiveSeconds


class Programs(Remote):
    """Nodes that programs make."""

    timeout: PositiveSeconds = 300.0
    """A program that takes longer is killed, with all that it started."""
