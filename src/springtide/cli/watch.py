"""Nodes that were asked for, watched until each has arrived or never will."""

from springtide.cli.client import Client, Json
from springtide.cli.operations import render_step
from springtide.cli.progress import Progress, looks, patiently
from springtide.cli.standing import Standing, busy, decide_standing
from springtide.cli.words import SLURM, jobs_on, kind_of, terms
from springtide.model import Kind, NodeState
from springtide.nodeset import expand, fold
from springtide.ports import InstanceState

RECENT = 50
"""So many of the newest operations are looked at for those that concern us."""
SILENCE_S = 30.0
"""Slurm calls its programs within seconds; after this something is wrong with them."""


class Watch:
    """One request of an admin: its nodes, and the operations that concern them."""

    def __init__(self, daemon: Client, kind: Kind, names: list[str]) -> None:
        self._daemon = daemon
        self._kind = kind
        self._names = fold(names)
        self._wanted = frozenset(names)
        self._newest = 0
        self._answer: Json = {}
        self.operations: dict[int, Json] = {}

    def ask(self) -> None:
        newest = self._daemon.get("/operations", limit=1)["operations"]
        self._newest = newest[0]["id"] if newest else 0
        body = {"operation": self._kind.value, "nodes": self._names}
        self._answer = self._daemon.post("/operations", body)
        self._learn(self._answer["operations"])

    def render_asked(self) -> str:
        lines = [f"operation {id}: {one['nodes']}" for id, one in self.operations.items()]
        if asked := self._answer["asked"]:
            lines.append(
                f"the batch system was asked to {self._kind} {asked}; see `tide operations`"
            )
        if settled := self._answer["settled"]:
            lines.append(f"{settled}: nothing to do")
        return "\n".join(lines)

    def until_nobody_waits(self, progress: Progress, timeout_s: float | None) -> Standing:
        """How they stand at the end, or when the time is over."""
        if self._kind is Kind.SUSPEND and self._answer["asked"]:
            self._mention_jobs(progress)
        standing = patiently(self._look, progress)
        wondered = False
        for waited_s in looks(timeout_s):
            if not standing.waiting:
                break
            progress.now(self._render(standing))
            if waited_s > SILENCE_S and not wondered:
                self._wonder(progress, standing)
                wondered = True
            standing = patiently(self._look, progress)
        return standing

    def _look(self) -> Standing:
        nodes = self._daemon.get("/nodes", names=self._names, world=0)["nodes"]
        recent = self._daemon.get("/operations", limit=RECENT)["operations"]
        self._learn(recent)
        fresh = {one["id"] for one in recent}
        for id, known in self.operations.items():
            if known["ended_at"] is None and id not in fresh:
                self.operations[id] = self._daemon.get(f"/operations/{id}")
        settled = _expand(self._answer["settled"])
        return decide_standing(self._kind, nodes, settled, self.operations.values())

    def _learn(self, operations: list[Json]) -> None:
        """Keep those of our kind that were opened since we asked and have nodes of ours."""
        for one in operations:
            new = one["id"] > self._newest and one["kind"] == self._kind
            if new and not self._wanted.isdisjoint(_expand(one["nodes"])):
                self.operations[one["id"]] = one

    def _render(self, standing: Standing) -> str:
        steps = [
            f"operation {id}: {render_step(one)}"
            for id, one in sorted(self.operations.items())
            if one["ended_at"] is None
        ]
        return "; ".join([f"{self._kind} {self._names}: {standing.render()}", *steps])

    def _mention_jobs(self, progress: Progress) -> None:
        """The batch system does not say that it waits for jobs; we do."""
        answer = self._daemon.get("/nodes", names=self._answer["asked"])
        nodes, kind = busy(answer["nodes"]), kind_of(answer)
        dead = [node["name"] for node in nodes if _is_dead(node)]
        alive = [node["name"] for node in nodes if not _is_dead(node)]
        if alive:
            names = fold(alive)
            progress.past(
                f"{names}: the batch system lets them go when their jobs have ended; see "
                f"`tide nodes {names}`, or {terms(kind).system}'s `{jobs_on(kind, names)}`"
            )
        if dead:
            progress.past(render_dead(fold(dead), kind))

    def _wonder(self, progress: Progress, standing: Standing) -> None:
        """The batch system was asked for nodes but has not called for them."""
        asked = _expand(self._answer["asked"]) if self._kind is Kind.RESUME else []
        silent = [name for name in asked if standing.waiting.get(name) == NodeState.OFF]
        if silent:
            progress.past(
                f"{fold(silent)}: the batch system has not called for them yet; see `tide check` "
                "and its log"
            )


def render_dead(names: str, kind: str = SLURM) -> str:
    how_long = " (Slurm: SlurmdTimeout)" if kind == SLURM else ""
    return (
        f"{names}: the instance is dead, but the batch system takes the job on it for running for "
        f"a while{how_long}; to have it go now (its jobs are requeued, what they have "
        f"done is lost): `tide kill {names}`"
    )


def _is_dead(node: Json) -> bool:
    """None of its instances can run a job any more."""
    states = [instance["state"] for instance in node["instances"]]
    return bool(states) and all(state == InstanceState.BROKEN for state in states)


def _expand(hostlist: str) -> list[str]:
    """What the daemon folded; it writes no nodes as nothing."""
    return expand(hostlist) if hostlist else []
