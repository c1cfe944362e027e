"""Elastic nodes for a Grid Engine that is there and does not know that we watch it."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from springtide.cli.client import Refused
from springtide.nodeset import expand
from springtide.ports import Launch
from springtide.providers.containers import Containers, Mount
from tests.e2e.real import Json, RealCluster, cluster, remains, until
from tests.e2e.test_faults import first_process, kill
from tests.gridengine import conf
from tests.gridengine.bed import GridEngine, gridengine
from tests.providers.world import instances
from tests.spaces import unused

pytestmark = pytest.mark.real

SPEC = """
cluster: {cluster}
batch:
  kind: gridengine
  root: {root}
  cell: {cell}
  bin: {bin}
  hosts: {hosts}
  polling: {{every: 500ms}}
provider: {{kind: containers, mounts: [{shared}]}}
flavors: {{small: {{cpus: 2, memory: 1G}}}}
groups: {{general: {{nodes: "sg[1-4]", flavors: [small]}}}}
partitions: {{{queue}: {{groups: [general]}}}}
timing: {{idle: {idle}, reconcile: 1s, grace: 1s}}
"""
OURS = "sg[1-4]"
AWAY_S = 60.0
TURNS = 20
STAGES = ("open", "drained", "gone")
"""What Grid Engine has of a node of ours, in the order in which it leaves."""
ROGUE = f"sge-rogue-{os.getpid()}"


@dataclass
class Site:
    """Grid Engine, and us beside it."""

    bed: GridEngine
    real: RealCluster

    def states(self) -> dict[str, str]:
        return {name: row["state"] for name, row in self.real.record(OURS).items()}

    def up(self) -> list[str]:
        return [name for name, state in self.states().items() if state == "ready"]

    def end_execd(self, name: str) -> None:
        """Without its jobs."""
        found = []
        space = Path(f"/proc/{first_process(self.real, name)}/ns/pid").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "ns" / "pid").readlink() == space:
                    found += [process] if (process / "comm").read_text() == "sge_execd\n" else []
        (execd,) = found
        kill(int(execd.name))

    def is_calm(self) -> bool:
        """No operation is at work, and all of them have said what they did."""
        return not self.real.client.get("/status")["operations"]

    def all_off(self) -> None:
        until(lambda: set(self.states().values()) == {"off"})

    def held_open(self, sign: str, *options: str) -> str:
        """A job that runs until the sign is there."""
        script = f"until [ -e {self.bed.shared}/{sign} ]; do sleep 0.1; done; hostname"
        return self.bed.submit(script, "-q", conf.QUEUE, "-N", sign, *options)

    def quick(self, name: str) -> str:
        return self.bed.submit("sleep 0.5; hostname", "-q", conf.QUEUE, "-N", name)

    def host_state(self) -> str:
        """Whether a host of ours is there, and takes jobs."""
        lines = self.bed.run("qstat", "-f", "-q", conf.QUEUE).splitlines()
        found = [line.split() for line in lines if line.startswith(f"{conf.QUEUE}@sg")]
        if not found:
            return "gone"
        closed = all(len(words) > 5 and "d" in words[5] for words in found)
        return "drained" if closed else "open"

    def resumes(self) -> list[str]:
        """The nodes of each operation that started some."""
        done = self.real.client.get("/operations")["operations"]
        return [one["nodes"] for one in done if one["kind"] == "resume"]

    def release(self, sign: str) -> None:
        (self.bed.shared / sign).touch()

    def finished(self, job: str) -> None:
        until(lambda: self.bed.is_over(job))

    def runs(self, job: str) -> None:
        until(lambda: self.state(job) == "r")

    def have_idle(self, kept: str, now: str) -> None:
        """Idle nodes are to be kept for another time from now on."""
        text = self.real.file.read_text().replace(f"idle: {kept},", f"idle: {now},")
        self.real.file.write_text(text)
        done = self.real.tide("apply", str(self.real.file), "--yes")
        assert done.returncode == 0, done.stdout + done.stderr

    def state(self, job: str) -> str:
        lines = [line.split() for line in self.bed.run("qstat", "-u", "*").splitlines()]
        return next((words[4] for words in lines if words and words[0] == job), "")

    def output(self, name: str, job: str) -> list[str]:
        return (self.bed.shared / f"{name}.o{job}").read_text().split()

    def told(self, start: str) -> str:
        """What the daemon said that begins so."""
        texts = [str(event.get("detail") or "") for event in self.real.events()]
        return next((text for text in texts if text.startswith(start)), "")

    def moves(self, since: int) -> list[Json]:
        """What happened to nodes since then."""
        return [event for event in self.real.events()[since:] if event["node"]]


@contextmanager
def site(queue: str = conf.QUEUE, idle: str = "2s") -> Iterator[Site]:
    with gridengine(placeholder=False) as bed:
        spec = SPEC.format(
            cluster=conf.CLUSTER,
            root=bed.root,
            cell=conf.CELL,
            bin=bed.bin,
            hosts=bed.hosts,
            shared=bed.shared,
            queue=queue,
            idle=idle,
        )
        with cluster(spec, deployed=False) as real:
            found = Site(bed, real)
            if queue == conf.QUEUE:
                done = real.deploy()
                assert done["state"] == "done", done
            yield found
        assert "sg1" not in bed.hosts.read_text()


@pytest.mark.accepts("N1", "N3", "N8", "N9", "N10", "N16")
@pytest.mark.timeout(400)
def test_nodes_come_for_jobs_of_our_queue_and_go_when_it_is_empty() -> None:
    with site(idle="1h") as here:
        house = here.bed.submit("true", "-q", conf.ON_PREMISES)
        asked = time.monotonic()
        one = here.held_open("one")
        here.runs(one)
        print(f"the job ran {time.monotonic() - asked:.1f} s after it was submitted")
        until(lambda: here.up() == ["sg1"])
        wide = here.held_open("wide", "-pe", "by2", "4")
        here.runs(wide)
        until(lambda: len(here.up()) == 3)
        for sign in ("one", "wide"):
            here.release(sign)
        here.finished(one)
        here.finished(wide)
        asked_for = here.resumes()
        again = here.held_open("again")
        here.runs(again)
        assert here.resumes() == asked_for
        here.have_idle("1h", "1s")
        here.release("again")
        here.all_off()
        assert here.output("again", again)[0] in ("sg1", "sg2", "sg3")
        assert here.output("one", one) == ["sg1"]
        assert here.bed.run("qconf", "-sel").split() == sorted([conf.PREMISES, conf.PLACEHOLDER])
        assert here.state(house) == "qw"


@pytest.mark.accepts("N2", "N3", "B18")
@pytest.mark.timeout(400)
def test_ten_tasks_start_the_nodes_for_ten_at_once_held_ones_and_those_of_no_queue_none() -> None:
    with site() as here:
        plain = here.bed.submit("true")
        held = here.bed.submit("true", "-q", conf.QUEUE, "-h")
        here.bed.submit("true", "-q", conf.QUEUE, "-hold_jid", held)
        remains(lambda: set(here.states().values()) == {"off"}, 3.0)  # six looks
        assert here.state(plain) == "qw"
        here.bed.run("qdel", plain)
        job = here.held_open("ten", "-t", "1-10")
        until(lambda: "off" not in here.states().values())
        assert here.resumes() == [OURS]
        here.release("ten")
        here.finished(job)
        here.all_off()


@pytest.mark.accepts("N21")
@pytest.mark.timeout(400)
def test_a_stopped_cluster_starts_nothing_and_its_queue_is_kept() -> None:
    with site(idle="1h") as here:
        here.finished(here.quick("before"))
        until(lambda: len(here.up()) == 1)
        stopped = here.real.tide("stop", "--yes")
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
        here.all_off()
        job = here.quick("after")
        remains(lambda: set(here.states().values()) == {"off"}, 3.0)  # six looks
        assert here.state(job) == "qw"
        started = here.real.tide("start")
        assert started.returncode == 0, started.stdout + started.stderr
        here.finished(job)
        assert here.output("after", job) in [[name] for name in expand(OURS)]


@pytest.mark.timeout(500)
def test_while_qmaster_is_away_no_node_is_touched_and_then_all_goes_on() -> None:
    """rule 1, rule 5. A minute, in which an idle node would long have gone. Execds that end in it
    are there again, and know their jobs."""
    with site(idle="40s") as here:
        job = here.held_open("go", "-pe", "by2", "2")
        brief = here.held_open("brief", "-pe", "by2", "2")
        here.runs(job)
        here.runs(brief)
        until(lambda: len(here.up()) == 2)
        here.release("brief")
        here.finished(brief)
        until(here.is_calm)
        before = here.states()
        assert sorted(before.values()) == ["off", "off", "ready", "ready"]
        here.bed.kill()
        for name in here.up():
            here.end_execd(name)
        seen = len(here.real.events())
        refused = here.real.tide("destroy", "--yes")
        assert refused.returncode == 1
        assert "does not answer; nothing was changed; start it, and run" in refused.stderr
        remains(lambda: here.states() == before and not here.moves(seen), AWAY_S)
        here.bed.start()
        here.release("go")
        here.finished(job)
        here.all_off()
        assert here.output("go", job) in (["sg1"], ["sg2"]), "once, on one of its nodes"


@pytest.mark.accepts("N11")
@pytest.mark.timeout(1500)
def test_a_job_that_is_submitted_while_nodes_leave_is_not_lost() -> None:
    """rule 2: twenty times, at moments spread over those in which a node serves, is drained and
    leaves; or more often, on a machine that is too slow to be there in time."""
    met: Counter[str] = Counter()
    with site(idle="1s") as here:
        here.finished(here.quick("first"))
        for turn in range(5 * TURNS):
            if turn >= TURNS and met.keys() >= {"drained", "gone"}:
                break
            until(partial(_has_come_to, here, STAGES[turn % 3]))
            time.sleep(turn % TURNS // 3 * 0.1)  # the moment is what is tried
            met[here.host_state()] += 1
            job = here.quick(f"race{turn}")
            here.finished(job)
            assert here.output(f"race{turn}", job) in [[name] for name in expand(OURS)], turn
        here.all_off()
    print("what Grid Engine had of the node when jobs came:", dict(met))
    assert met.keys() >= {"drained", "gone"}, f"jobs came at other moments: {met}"


def _has_come_to(here: Site, stage: str) -> bool:
    return STAGES.index(here.host_state()) >= STAGES.index(stage)


@pytest.mark.timeout(400)
async def test_an_execd_in_the_name_of_a_node_that_we_did_not_start_is_told_of() -> None:
    with site() as here, TemporaryDirectory(prefix="tide-", dir="/var/tmp") as state:
        seen = Mount(here.bed.root, here.bed.root, read_only=True)
        rogues = Containers(Path(state), {}, [seen], [], unused())
        await rogues.prepare(ROGUE)
        try:
            boot = here.bed.boot()
            launch = Launch(ROGUE, "sg4", 1, "general", "host", "default", user_data=boot)
            (made,) = instances(await rogues.create([launch]))
            await asyncio.to_thread(here.bed.add, "sg4", str(made.address))
            await asyncio.to_thread(until, lambda: here.told("sg4: "))
            assert "has no instance" in here.told("sg4: ")
            assert here.states()["sg4"] == "off"
        finally:
            await rogues.remove(ROGUE)
            await rogues.close()


@pytest.mark.timeout(400)
def test_a_queue_that_is_not_there_is_named_at_deploy() -> None:
    with site("nosuch.q") as here:
        with pytest.raises(Refused, match=r"has no queue nosuch\.q; .*; nothing was changed$"):
            here.real.deploy()
        assert here.real.client.get("/operations")["operations"] == []
