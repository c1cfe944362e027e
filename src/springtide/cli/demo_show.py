"""The acts of `tide demo`, shown while they happen: deploy, two bursts of jobs, idle-out.

Everything is real: the jobs go through sbatch, the times come from the daemon's events and from
the jobs. Between two looks the show asks whether it shall end.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from springtide.batch.slurm_service import PATH
from springtide.cli import detached, output
from springtide.cli.client import Client
from springtide.cli.course import follow
from springtide.cli.demo_timeline import (
    Burst,
    Moment,
    Phase,
    alive,
    assemble,
    count,
    fold_moments,
    parse_event,
    parse_output,
    render_moment,
    render_reuse,
)
from springtide.cli.endings import Complaint
from springtide.cli.progress import Progress
from springtide.model import Kind, OperationState
from springtide.nodeset import fold

LOOK_S = 0.1
BURST_S = 120.0
"""Far more than a burst takes; after this something is wrong."""
COMMAND_S = 60.0
NODES = "demo-[00-15]"

JOB = """\
#!/bin/sh
echo "running $(date +%s.%N) $SLURM_JOB_NODELIST"
srun hostname
sleep 1
echo "done $(date +%s.%N) $SLURM_JOB_NODELIST"
"""
"""What both bursts run: it says when and where, on a clock that it shares with the daemon."""

COLOURS: Mapping[Phase, str] = {
    Phase.CREATED: "cyan",
    Phase.JOINED: "cyan",
    Phase.RUNNING: "green",
    Phase.DONE: "green",
    Phase.GONE: "yellow",
    Phase.GIVEN_BACK: "red",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster of a demo."""

    cluster: str
    state: Path
    idle_s: int
    port: int = 6817

    @property
    def daemon(self) -> Client:
        return Client(self.state)

    @property
    def shared(self) -> Path:
        """A directory that all nodes see."""
        return self.daemon.layout.demo_shared

    def render_spec(self) -> str:
        return (
            f"cluster: {self.cluster}\n"
            f"state: {self.state}\n"
            f"batch: {{port: {self.port}}}\n"
            f"provider: {{kind: containers, mounts: [{self.shared}]}}\n"
            "groups:\n"
            f'  general: {{nodes: "{NODES}"}}\n'
            f"timing: {{idle: {self.idle_s}s, start: 60s, stop: 30s}}\n"
        )


@dataclass(frozen=True, slots=True)
class Act:
    """A burst of jobs to submit."""

    name: str
    options: tuple[str, ...]
    jobs: int
    """So many of them write output."""
    output: str
    """Their files in the shared directory, as sbatch and as glob name them."""
    files: str


FIRST = Act("burst 1", ("--nodes=4",), 1, "first.out", "first.out")
SECOND = Act("burst 2", ("--array=1-8",), 8, "second-%a.out", "second-*.out")


class Unseen(Progress):
    """For work that is too quick to be watched."""

    def __init__(self) -> None:
        pass

    def now(self, text: str) -> None:
        pass

    def past(self, text: str) -> None:
        pass

    def clear(self) -> None:
        pass


class Show:
    """One performance."""

    def __init__(self, stage: Stage, go_on: Callable[[], None]) -> None:
        self._stage = stage
        self._go_on = go_on
        self._daemon = stage.daemon
        self._submits: list[tuple[str, float]] = []
        self._moments: set[Moment] = set()
        self._heard = 0

    @property
    def bursts(self) -> list[Burst]:
        return assemble(self._submits, self._moments)

    def play(self) -> None:
        self._deploy()
        _heading("A job on 4 nodes, from zero", FIRST)
        self._burst(FIRST)
        output.put(f"  srun hostname printed: {' '.join(sorted(self._said(FIRST)))}")
        self._until(self._all_idle, BURST_S, "not all nodes became idle")
        _heading("An array of 8 tasks, while those 4 nodes are idle", SECOND)
        self._burst(SECOND)
        output.put(f"  {render_reuse(self.bursts[-1])}")
        _heading(f"Nothing to do: Slurm gives up nodes that are idle for {self._stage.idle_s} s")
        self._until(self._all_gone, self._stage.idle_s + BURST_S, "not all nodes are gone")

    # --- the cluster

    def _deploy(self) -> None:
        began = time.monotonic()
        self._go_on()
        detached.start(self._daemon, self._daemon.stored_spec)
        self._go_on()
        answer = self._daemon.post("/operations", {"operation": Kind.DEPLOY.value})
        operation = follow(self._daemon, answer["operations"][0]["id"], Unseen())
        if operation is None or operation["state"] != OperationState.DONE:
            why = operation["reason"] if operation else "the cluster was removed meanwhile"
            raise Complaint(f"deploy failed: {why}")
        status = self._daemon.get("/status")
        output.put(
            f"\nCluster {self._stage.cluster} is up after {time.monotonic() - began:.1f} s: "
            f"slurmctld {status['batch']['version']} at {status['control_address']}.\n"
            f"{sum(status['nodes'].values())} nodes may exist, none does."
        )

    # --- a burst

    def _burst(self, act: Act) -> None:
        before_at = time.time()
        job = self._submit(act)
        self._submits.append((act.name, before_at))
        self._put(Moment(before_at, Phase.SUBMITTED, text=f"job {job}"))
        self._until(
            lambda: count(self.bursts[-1].moments, Phase.DONE) >= act.jobs,
            BURST_S,
            f"job {job} did not end",
        )

    def _submit(self, act: Act) -> str:
        script = self._stage.shared / "job.sh"
        script.write_text(JOB)
        target = self._stage.shared / act.output
        command = ["sbatch", "--parsable", f"--output={target}", *act.options, str(script)]
        try:
            done = self._slurm(command)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Complaint(f"sbatch failed: {error}") from error
        if done.returncode != 0:
            raise Complaint(f"sbatch failed: {output.printable(done.stderr.strip())}")
        return done.stdout.strip()

    def _slurm(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """As the user would, but without what their environment tells Slurm's commands."""
        conf = str(self._daemon.layout.conf / "slurm.conf")
        return subprocess.run(
            command,
            env={"PATH": f"{os.environ.get('PATH', '')}:{PATH}", "SLURM_CONF": conf},
            cwd=self._stage.shared,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    # --- looking

    def _until(self, over: Callable[[], bool], limit_s: float, otherwise: str) -> None:
        """Show what happens until it is over."""
        end = time.monotonic() + limit_s
        while True:
            self._go_on()
            self._look()
            if over():
                return
            if time.monotonic() > end:
                raise Complaint(f"{otherwise} within {limit_s:.0f} s")
            time.sleep(LOOK_S)

    def _look(self) -> None:
        """Jobs first: what the daemon did before a job wrote something is then not missed."""
        found = [moment for act in (FIRST, SECOND) for moment in self._written(act)]
        found += self._noted()
        fresh = set(found) - self._moments
        self._moments |= fresh
        for moment in fold_moments(fresh):
            self._put(moment)

    def _written(self, act: Act) -> Iterator[Moment]:
        for text in self._outputs(act):
            yield from parse_output(text)[0]

    def _said(self, act: Act) -> list[str]:
        return [line for text in self._outputs(act) for line in parse_output(text)[1]]

    def _outputs(self, act: Act) -> list[str]:
        return [path.read_text(errors="replace") for path in self._stage.shared.glob(act.files)]

    def _noted(self) -> Iterator[Moment]:
        for event in self._daemon.lines("/events", after=self._heard):
            self._heard = event["id"]
            if moment := parse_event(event):
                yield moment

    def _put(self, moment: Moment) -> None:
        when, what, text = render_moment(moment, self._submits[-1][1])
        what = typer.style(f"{what:<11}", fg=COLOURS.get(moment.phase))
        output.put(f"{when}  {what}  {output.printable(text)}".rstrip())

    # --- what is waited for

    def _all_idle(self) -> bool:
        names = fold(alive(self._moments))
        nodes = self._daemon.get("/nodes", names=names)["nodes"] if names else []
        return all(node["batch"] and node["batch"]["state"] == "IDLE" for node in nodes)

    def _all_gone(self) -> bool:
        return not alive(self._moments)


def _heading(text: str, act: Act | None = None) -> None:
    output.put(f"\n{typer.style(text, bold=True)}")
    if act is not None:
        output.put(f"  $ sbatch {' '.join(act.options)} job.sh")
