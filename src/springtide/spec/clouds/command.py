"""`provider: {kind: command}`."""

from typing import Annotated, Literal

from pydantic import Field

from springtide.spec.clouds.programs import Programs
from springtide.spec.values import Argument

Words = Annotated[tuple[Argument, ...], Field(min_length=1)]


class Command(Programs):
    """Nodes switched on and off by programs of the site: IPMI, Wake-on-LAN, anything."""

    kind: Literal["command"] = "command"
    """Programs read a line for each node, and print what became of it."""
    create: Words
    """The program that starts nodes, with its arguments."""
    delete: Words
    """The program that stops nodes."""
    list: Words
    """The program that tells which nodes are on."""
    reboot: Words | None = None
    """The program that starts nodes afresh; left out, they are stopped and started."""
