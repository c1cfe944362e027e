"""A Slurm that is read, asked and told with its own commands; `slurm_polled` builds on it.

Commands run in threads. Whatever goes wrong becomes Unavailable.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from springtide import threads
from springtide.batch.running import Output
from springtide.batch.slurm_commands import Commands, failed
from springtide.batch.slurm_existing import Running, parse_running
from springtide.batch.slurm_nodes import fitting
from springtide.batch.slurm_polled_excluded import EXCLUDED, parse_excluded
from springtide.batch.slurm_polled_jobs import FORMAT, Site, parse_jobs
from springtide.batch.slurm_polled_nodes import Known, commented, parse_known, shown
from springtide.batch.unread import UnreadableError
from springtide.nodeset import expand, fold
from springtide.ports import QueueJob, QueueNode, Unavailable

T = TypeVar("T")

TODO_NODES = (
    "add lines `NodeName=… NodeAddr=… State=UNKNOWN` for them (slurmctld leaves nodes out whose "
    "names do not resolve, unless they have a NodeAddr), have their partitions contain them, and "
    "restart slurmctld"
)
_HARMLESS = re.compile(
    r"Invalid job id|already completing or completed|already finished|no longer pending|"
    r"pending execution|Requested operation is presently disabled|"
    r"Requested partition configuration not available now"
)
"""What scontrol says of jobs that ended meanwhile, or may not run again; and, when all is done that
was asked, of those that are too large for their partition."""


class SlurmTalk:
    """With one Slurm, about its jobs and nodes, of which some are ours."""

    def __init__(self, commands: Commands, ours: Iterable[str], user: str = "slurm") -> None:
        self._commands = commands
        self._ours = frozenset(ours)
        self._user = user
        self._threads = ThreadPoolExecutor(2, "slurm")
        self._version = ""
        self._started_at: float | None = None

    # --- looking

    def _running(self) -> Running:
        said = self._commands.checked(["scontrol", "show", "config"]).stdout
        running = parse_running(said)
        self._version = running.version
        self._started_at = running.booted_at or None
        return running

    def _jobs(self, *, excluding: bool = False) -> list[QueueJob]:
        """`excluding` tells also which nodes they must not have."""
        shares = "MEMORY" in self._running().get("selecttypeparameters").upper()
        said = self._commands.checked(["squeue", "--all", "--noheader", "-O", FORMAT]).stdout
        excluded = self._excluded() if excluding else {}
        return parse_jobs(said, Site(self._ours, time.time(), shares, excluded))

    def _excluded(self) -> dict[str, frozenset[str]]:
        pending = ["squeue", "--all", "--noheader", "--states=PENDING", "-o", EXCLUDED]
        return parse_excluded(self._commands.checked(pending).stdout, self._ours)

    def _ending(self) -> frozenset[str]:
        """Jobs that are over, but for what is left of them on their nodes. By the ids that they
        have in readings: squeue has others too, of jobs of several parts."""
        ending = ["squeue", "--all", "--noheader", "--states=COMPLETING", "-O", FORMAT]
        said = self._commands.checked(ending).stdout
        return frozenset(job.id for job in parse_jobs(said, Site(self._ours)))

    def _known(self) -> dict[str, Known]:
        said = self._commands.checked(["scontrol", "-o", "show", "nodes"]).stdout
        return parse_known(said, self._user, self._ours)

    def _look(self, names: Iterable[str]) -> tuple[list[Known], Mapping[str, QueueNode]]:
        """Those of our nodes that it knows; and all nodes with their jobs."""
        jobs = self._jobs()
        known = self._known()
        wanted = [known[name] for name in dict.fromkeys(names) if name in known]
        return [one for one in wanted if one.ours and not one.is_foreign], shown(known, jobs)

    def _required(self, names: Sequence[str]) -> list[Known]:
        """All of them, which slurm.conf must have."""
        known = self._known()
        if missing := [name for name in names if name not in known]:
            raise Unavailable(f"{self._commands.conf} has no {fold(missing)}; {TODO_NODES}")
        if others := [name for name in names if name not in self._ours]:
            raise Unavailable(f"{fold(others)}: no nodes of this cluster")
        if foreign := [name for name in names if known[name].is_foreign]:
            raise Unavailable(
                f"{fold(foreign)} serve in Slurm already and are not ours: choose other names for "
                "our nodes, or stop the slurmd there"
            )
        return [known[name] for name in names]

    # --- telling

    def _update(self, names: Iterable[str], *changes: str) -> None:
        for batch in fitting(names):
            self._commands.checked(["scontrol", "update", f"nodename={fold(batch)}", *changes])

    def _comment(self, words: Iterable[tuple[Known, str]]) -> None:
        """Ours, before what others wrote."""
        alike: dict[str, list[str]] = {}
        for one, ours in words:
            alike.setdefault(commented(one, ours), []).append(one.node.name)
        for text, names in alike.items():
            self._update(names, f"comment={text}")

    def _forgiving(self, *arguments: str) -> None:
        """Jobs may have ended meanwhile."""
        done: Output = self._commands.run(["scontrol", *arguments])
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        if done.returncode and not (said and all(map(_HARMLESS.search, said))):
            raise failed(done)

    def _place(self, addresses: Mapping[str, str]) -> None:
        for batch in fitting(addresses):
            names = fold(batch)
            # Slurm pairs two lists of the same length, whatever their order.
            listed = ",".join(addresses[name] for name in expand(names))
            self._update(batch, f"nodeaddr={listed}")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await threads.run(self._threads, work)
        except UnreadableError as error:
            raise Unavailable(str(error)) from error
