"""What happens when a node asks to become a member of its cluster; `api.joining` carries it there.

`asked` reads what nodes say, `admission` decides about tokens and keys, `machines` compares what
they are with what Slurm is told, and `service` does it all in order.
"""

from springtide.joining.asked import Asked, BadAsked, Machine, parse_join, parse_report
from springtide.joining.service import Joining, NotAdmitted

__all__ = [
    "Asked",
    "BadAsked",
    "Joining",
    "Machine",
    "NotAdmitted",
    "parse_join",
    "parse_report",
]
