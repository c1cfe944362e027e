"""Runs operations: queues them per node, leases, runs their steps, continues after a crash.

The daemon owns one Engine. Each operation is one task; what it did is on disk before the next
step begins, so a restart goes on at the first unfinished step.

`engine` is what others call. `runs` knows all operations under way and who waits for whom;
`course` takes one of them from its turn to its end.
"""

from springtide.engine.engine import Engine
from springtide.engine.run import Refused

__all__ = ["Engine", "Refused"]
