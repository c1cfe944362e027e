"""A random week of one cluster, in virtual time: whatever goes wrong, calm brings all in order.

    python -m tests.sim.week --seeds 1000 --jobs 2     many weeks, a line for each that fails
    python -m tests.sim.week --seed 17 --trace         one of them again, with all that happened

`--without` leaves hazards out and `--days` shortens the week, to find what matters; `--plant`
takes a guard away from a decision, to see that the weeks notice.
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import structlog

from springtide import daemon as springtide_daemon
from springtide.model import Event
from tests.sim import clock, hazards, plants, verdict
from tests.sim.scene import Scene, random_world

FAILED = (404, 476, 477, 491, 509, 1042, 1131, 2076, 2135, 10144, 855857924)
"""Seeds of weeks that failed once: `test_week` runs them, too."""
DAY = 86_400.0
PATIENCE_S = 2 * DAY
"""How long no job may end, once nothing goes wrong any more; none takes longer than a day."""
REST_S = DAY
"""How long the cluster may take to be as the file says after that."""
STILL_S = 7200.0
"""And then nothing happens for so long."""


@dataclass(slots=True)
class Outcome:
    """How a week ended."""

    seed: int
    violations: list[str]
    trace: list[str]
    facts: dict[str, int]
    cpu_s: float = 0.0
    broke: bool = False
    """It is the simulation that failed."""


async def week(seed: int, without: Iterable[str] = (), days: float = 7) -> Outcome:
    """One week, and the calm after it."""
    with TemporaryDirectory(prefix="springtide-week-") as directory:
        world = random_world(Random(f"{seed}/world"), Path(directory), seed)
        scene = Scene(seed, world, asyncio.get_running_loop().time())
        world.batch.on_drain_lost.append(scene.lose_drain)
        world.batch.on_job.append(lambda job, what: scene.say(f"job {job.id} {what}"))
        world.is_lost = scene.is_lost
        with _overheard(scene):
            return await _lived(scene, days * DAY, without)


async def _lived(scene: Scene, length_s: float, without: Iterable[str]) -> Outcome:
    keeper = asyncio.create_task(scene.keep_alive())
    daemon = await scene.alive()
    await scene.ask("deploy", lambda daemon: daemon.people.deploy("root"))
    await daemon.engine.idle()
    await hazards.rage(scene, length_s, without)
    scene.say("calm")
    violations = await _calm(scene)
    violations += verdict.storm(await verdict.deeds(scene), length_s / DAY)
    events, facts = await verdict.events(scene), await verdict.facts(scene)
    scene.over.set()
    await keeper
    return Outcome(
        scene.seed, [*violations, *dict.fromkeys(scene.complaints)], _told(scene, events), facts
    )


async def _calm(scene: Scene) -> list[str]:
    """All jobs end, all becomes as the file says, and stays so."""
    await scene.alive()
    batch = scene.world.batch
    free = [name for name in scene.world.spec.managed if name not in scene.drains]
    batch.submit(len(free), 60)
    scene.say(f"a job of all {len(free)} nodes that nobody drained")
    done, end = -1, 0.0
    while batch.open_jobs and (done < len(batch.finished) or scene.now() < end):
        if done < len(batch.finished):
            done, end = len(batch.finished), scene.now() + PATIENCE_S
        await asyncio.sleep(900)
    return await _rested(scene) or await _still(scene)


async def _rested(scene: Scene) -> list[str]:
    end = scene.now() + REST_S
    while found := await verdict.violations(scene):
        if scene.now() > end or verdict.hopeless(found):
            break
        await asyncio.sleep(900)
    return found


async def _still(scene: Scene) -> list[str]:
    scene.say("all is as the file says")
    known = await verdict.deeds(scene)
    await asyncio.sleep(STILL_S)
    more = (await verdict.deeds(scene))[len(known) :]
    return [*await verdict.violations(scene), *(f"not at rest: {deed}" for deed in more)]


@contextmanager
def _overheard(scene: Scene) -> Iterator[None]:
    """What the daemon complains of while it lives is a defect; the rest of its log is not heard."""

    def hear(logger: object, method: str, entry: MutableMapping[str, Any]) -> Any:
        if scene.life is not None:
            scene.say(f"complaint: {entry}")
            scene.complaints.append(f"complaint: {entry.get('event')}: {_last(entry['detail'])}")
        raise structlog.DropEvent

    silent = structlog.make_filtering_bound_logger(40)
    structlog.configure(processors=[hear], wrapper_class=silent)
    known, springtide_daemon.SPOOL_S = springtide_daemon.SPOOL_S, 4 * 3600.0
    try:
        yield
    finally:
        springtide_daemon.SPOOL_S = known
        structlog.reset_defaults()


def _last(detail: str) -> str:
    """The line of a traceback that says what it was."""
    return detail.strip().rpartition("\n")[2]


# --- telling -----------------------------------------------------------------------------------


def _told(scene: Scene, events: Iterable[Event]) -> list[str]:
    """What happened, beside what the daemon says of it."""
    lines = [(at, f"  * {text}") for at, text in scene.said]
    lines += [(event.at, f"    {_line(event)}") for event in events]
    lines.sort(key=lambda line: line[0])
    return [f"{_clock(at - scene.began_at)} {text}" for at, text in lines]


def _line(event: Event) -> str:
    operation = f"operation {event.operation}: " if event.operation else ""
    node = f"{event.node}: " if event.node else ""
    return f"{operation}{node}{event.what} {event.detail}".rstrip()


def _clock(seconds: float) -> str:
    day, rest = divmod(seconds, DAY)
    return f"{day:.0f}d {rest // 3600:02.0f}:{rest % 3600 // 60:02.0f}:{rest % 60:04.1f}"


# --- many of them ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options:
    """What all weeks of a run have in common."""

    without: Sequence[str] = ()
    days: float = 7
    plant: str | None = None

    @property
    def words(self) -> str:
        """As the command line has them."""
        words = [f"--without {','.join(self.without)}"] if self.without else []
        words += [f"--days {self.days:g}"] if self.days != 7 else []
        words += [f"--plant {self.plant}"] if self.plant else []
        return "".join(f" {word}" for word in words)


PLAIN = Options()


def run(seed: int, options: Options = PLAIN) -> Outcome:
    """One week on a clock of its own."""
    began = time.process_time()
    try:
        with plants.planted(options.plant):
            outcome = clock.run(week(seed, options.without, options.days))
    except Exception as error:
        outcome = Outcome(seed, [f"the simulation broke: {error!r}"], [], {}, broke=True)
    outcome.cpu_s = time.process_time() - began
    return outcome


def run_many(seeds: Iterable[int], jobs: int, options: Options) -> Iterator[Outcome]:
    """Weeks as they end, several at a time."""
    if jobs == 1:
        yield from (run(seed, options) for seed in seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(partial(run, options=options), seeds)


def replay(seed: int, options: Options = PLAIN) -> str:
    """The command that shows a week again."""
    return f"python -m tests.sim.week --seed {seed} --trace{options.words}"


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.week", description=__doc__)
    parser.add_argument("--seed", type=int, help="this week alone")
    parser.add_argument("--trace", action="store_true", help="say all that happened in it")
    parser.add_argument("--seeds", type=int, default=25, help="so many weeks")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first of them")
    parser.add_argument("--again", action="store_true", help="the weeks that failed once")
    parser.add_argument("--stop", action="store_true", help="at the first week that fails")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time")
    parser.add_argument("--days", type=float, default=7, help="how long a week is")
    parser.add_argument("--without", default="", help=f"hazards: {','.join(hazards.HAZARDS)}")
    parser.add_argument("--plant", choices=sorted(plants.PLANTS), help="a bug on purpose")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Answers 1 if a week failed, 2 if the simulation itself did."""
    asked = _parse(words)
    without = tuple(filter(None, asked.without.split(",")))
    options = Options(without, asked.days, asked.plant)
    if asked.seed is not None:
        return _one(run(asked.seed, options), asked.trace)
    seeds = FAILED if asked.again else range(asked.first, asked.first + asked.seeds)
    return _many(seeds, asked.jobs, options, asked.stop)


def _one(outcome: Outcome, trace: bool) -> int:
    for line in outcome.trace if trace else ():
        print(line)
    for violation in outcome.violations:
        print("VIOLATION", violation)
    print(f"seed {outcome.seed}: {len(outcome.violations)} violations, {_facts(outcome)}")
    return 2 if outcome.broke else bool(outcome.violations)


def _many(seeds: Sequence[int], jobs: int, options: Options, stop: bool) -> int:
    began, done, failed, broke, cpu_s = time.monotonic(), 0, 0, False, 0.0
    for outcome in run_many(seeds, jobs, options):
        done, cpu_s = done + 1, cpu_s + outcome.cpu_s
        if outcome.violations:
            failed, broke = failed + 1, broke or outcome.broke
            print(
                f"seed {outcome.seed} failed: {outcome.violations[0]}"
                f" ({len(outcome.violations)} violations); {replay(outcome.seed, options)}",
                flush=True,
            )
            if stop:
                break
    took_s = time.monotonic() - began
    print(f"{done} weeks, {failed} failed, {took_s:.0f} s, {cpu_s / max(done, 1):.2f} s CPU each")
    return 2 if broke else bool(failed)


def _facts(outcome: Outcome) -> str:
    told = (f"{count} {what}" for what, count in outcome.facts.items())
    return ", ".join([*told, f"{outcome.cpu_s:.2f} s CPU"])


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is chance, too
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.week", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
