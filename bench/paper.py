"""A slurmctld on paper: it prints what a real one would, counts who asks, and costs nothing.

The Slurm adapter in front of it is the real one; only the programs that it runs are not.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from springtide.batch.running import Output
from springtide.batch.slurm import Slurm
from springtide.batch.slurm_commands import Commands
from springtide.nodeset import expand
from springtide.spec import Cluster

UP, BUSY = "IDLE+CLOUD", "ALLOCATED+CLOUD"
OFF, DOWN = "IDLE+CLOUD+POWERED_DOWN", "DOWN+CLOUD+NOT_RESPONDING"
LEAVING = "IDLE+CLOUD+POWERING_DOWN"
SET = "[root@2026-11-16T00:04:13]"

LINE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.55 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr={address} "
    "NodeHostName={name} Version=22.05.8 OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian "
    "6.1.76-1 (2024-02-01)  RealMemory=512 AllocMem=0 FreeMem=22000 Sockets=2 Boards=1 "
    "State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions=standard  BootTime=2026-11-16T00:{minute:02}:{second:02} "
    "SlurmdStartTime=2026-11-16T00:04:13 LastBusyTime=2026-11-16T00:04:13 "
    "CfgTRES=cpu=2,mem=512M,billing=2 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 "
    "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s  {reason}\n"
)
"""As 22.05 prints it."""


def address(number: int) -> str:
    return f"10.77.{number // 250}.{number % 250 + 2}"


def render(states: Mapping[str, str], reasons: Mapping[str, str] = {}) -> str:
    """What `scontrol -o show nodes` prints of nodes in these states."""
    return "".join(
        LINE.format(
            name=name,
            address=address(at),
            state=state,
            minute=at // 60 % 60,
            second=at % 60,
            reason=f"Reason={reasons[name]} {SET}" if name in reasons else "",
        )
        for at, (name, state) in enumerate(states.items())
    )


class Ledger:
    """What nodes are in which states, and who asked. A busy node has one job."""

    def __init__(self, states: Mapping[str, str]) -> None:
        self.states = dict(states)
        self.reasons: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.own_s = 0.0
        """CPU that the pretending took."""
        self._text = render(states)

    def show(self, states: Mapping[str, str]) -> None:
        """From now on these nodes are in these states."""
        self.states |= states
        self._text = render(self.states, self.reasons)

    def answer(self, command: Sequence[str]) -> str:
        began = time.thread_time()
        self.calls[" ".join(word.partition("=")[0] for word in command[:3])] += 1
        said = self._answer(command)
        self.own_s += time.thread_time() - began
        return said

    def _answer(self, command: Sequence[str]) -> str:
        match list(command):
            case ["scontrol", "-o", "show", "nodes"]:
                return self._text
            case ["scontrol", "-o", "show", "node", names]:
                some = {name: self.states[name] for name in expand(names)}
                return render(some, self.reasons)
            case ["scontrol", "update", names, *changes] if names.startswith("nodename="):
                self._update(expand(names.partition("=")[2]), dict(_parted(changes)))
            case ["squeue", *_]:
                return self._queue()
        return ""

    def _queue(self) -> str:
        busy = [name for name, state in self.states.items() if state == BUSY]
        return "".join(f"{at}|RUNNING|u|p|1|{name}|None\n" for at, name in enumerate(busy, 1))

    def _update(self, names: Iterable[str], changes: Mapping[str, str]) -> None:
        after = AFTER.get(changes.get("state", ""))
        for name in names:
            self.states[name] = after or self.states[name]
            self.reasons[name] = changes.get("reason", "")
        self.reasons = {name: why for name, why in self.reasons.items() if why}
        self.show({})


AFTER = {
    "down": "DOWN+CLOUD",
    "power_down_force": LEAVING,
    "resume": OFF,
    "drain": f"{OFF}+DRAIN",
    "undrain": OFF,
}
"""The state of a node that was told so, as far as repairs need it."""


def _parted(changes: Iterable[str]) -> Iterable[tuple[str, str]]:
    for change in changes:
        key, _, value = change.partition("=")
        yield key, value


@dataclass(frozen=True, slots=True)
class Paper(Commands):
    """Runs no command, but answers as if it had."""

    ledger: Ledger = field(default_factory=lambda: Ledger({}))

    def run(self, command: Sequence[str], conf: Path | None = None) -> Output:
        said = self.ledger.answer(command)
        return subprocess.CompletedProcess(list(command), 0, stdout=said, stderr="")


class PaperSlurm(Slurm):
    """The adapter, on paper."""

    def __init__(self, cluster: Cluster, states: Mapping[str, str]) -> None:
        super().__init__(cluster)
        self.ledger = Ledger(states)
        self._commands = Paper(self._conf, "", ledger=self.ledger)
