"""`provider: {kind: command}`."""

from typing import Annotated, Literal

from pydantic import Field

from springtide.spec.clouds.remote import Remote
from springtide.spec.values import Parameter

Words = Annotated[tuple[Parameter, ...], Field(min_length=1)]


class Command(Remote):
    """Nodes switched by programs of the site: IPMI, Wake-on-LAN, anything."""

    kind: Literal["command"] = "command"
    """Programs get the nodes on standard input, and say on standard output what became of them."""
    create: Words
    """The program, with its arguments, that starts nodes."""
    delete: Words
    """The program that stops them."""
    list: Words
    """The program that tells what is there."""
    reboot: Words | None = None
    """The program that starts nodes afresh; left out, they are stopped and started."""
