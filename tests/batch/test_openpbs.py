"""OpenPBS, as its stand-in plays it: the real one is in no registry, its answers are recorded."""

import asyncio
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from springtide.batch.openpbs import OpenPbsQueue
from springtide.batch.openpbs_commands import Commands
from springtide.batch.running import Output
from springtide.ports import Chunk, Health, JobState, Member, Unavailable
from tests.batch.batch_conformance import BatchConformance
from tests.batch.batch_world import BatchWorld, polled
from tests.batch.conformance import Conformance
from tests.batch.conformance_refusals import ON_NODES
from tests.batch.openpbs_standin.server import Standin
from tests.batch.world import REASON, Ask, Gap, World, job, jobs, node, refused, running, up

MEMBERS = [
    Member(name, f"10.0.0.{number}", 4, 4096, ("big",), ("cloud",))
    for number, name in enumerate(("n1", "n2", "n3", f"node-{'with-a-long-name-' * 3}4"), start=1)
]
PREMISES = "house1"
RECORDED = Path(__file__).parents[1] / "recorded"
SETUP = (
    "create resource Qlist type=string_array,flag=h",
    "create resource big type=boolean,flag=h",
    "create resource color type=string,flag=h",
    "create queue cloud queue_type=execution,enabled=true,started=true",
    "set queue cloud default_chunk.Qlist=cloud",
    "create queue house queue_type=execution,enabled=true,started=true",
    "set queue house default_chunk.Qlist=house",
    f"create node {PREMISES} resources_available.Qlist=house",
)


pytestmark = pytest.mark.looptime


@dataclass(frozen=True, slots=True)
class Here(Commands):
    """Programs of the stand-in are called in this process: starting each anew takes minutes in
    all. Those that a test has replaced are run as they are."""

    standin: Standin | None = None
    user: str = "root"
    gap: Gap = field(default_factory=Gap)

    def run(self, *command: str) -> Output:
        self.gap.passed()
        if self.standin and self.bin and self.standin.is_own(self.bin / command[0]):
            return self.standin.call(self.user, *command)
        return super(Here, self).run(*command)


@pytest.fixture
def standin(tmp_path: Path) -> Standin:
    """A site with nodes of its own, a queue for them, and one for the cloud."""
    made = Standin(tmp_path)
    for command in SETUP:
        done = made.call("root", "qmgr", "-c", command)
        assert (done.returncode, done.stderr) == (0, "")
    made.boots(PREMISES)
    return made


@pytest.fixture
def queue(standin: Standin) -> OpenPbsQueue:
    return client(standin)


def client(standin: Standin, user: str = "root") -> OpenPbsQueue:
    return OpenPbsQueue(Here(standin.commands(user), standin=standin, user=user))


@pytest.fixture
def world(standin: Standin, queue: OpenPbsQueue, tmp_path: Path) -> World:
    return make_world(standin, queue, tmp_path)


def make_world(standin: Standin, queue: OpenPbsQueue, tmp_path: Path) -> World:
    async def run(*command: str, user: str = "root") -> str:
        done = standin.call(user, *command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    async def submit(ask: Ask) -> str:
        return await run("qsub", *_arguments(ask), user="tester")

    async def told(id: str) -> str:
        return await run("qstat", "-f", "-F", "json", id.split(".")[0])

    async def change(**values: object) -> None:
        standin.change(**values)

    async def boots(name: str) -> None:
        standin.boots(name)

    async def dies(name: str) -> None:
        standin.dies(name)

    here = queue._commands
    assert isinstance(here, Here)
    return World(
        queue=queue,
        members=MEMBERS,
        submit=submit,
        end=lambda id: run("qdel", id),
        node_boots=boots,
        node_dies=dies,
        server_down=lambda: change(up=False),
        server_up=lambda: change(up=True),
        drain_by_hand=lambda name: run("pbsnodes", "-C", "by hand", "-o", name),
        drain_silently=lambda name: run("pbsnodes", "-o", name),
        told=told,
        premises=PREMISES,
        elsewhere="house",
        feature="big",
        spoil=standin.spoilt,
        prepares=False,
        powerless=lambda: client(standin, "tester"),
        commandless=lambda: OpenPbsQueue(Commands(tmp_path / "nowhere")),
        commands=standin.calls,
        gap=here.gap,
        silence_s=10,
    )


def _arguments(ask: Ask) -> list[str]:
    select = "+".join(_chunk(chunk) for chunk in ask.chunks)
    spread = any(chunk.spread and chunk.count > 1 for chunk in ask.chunks)
    arguments = ["-q", ask.queue, "-N", ask.name, "-l", f"select={select}"]
    arguments += ["-l", "place=scatter"] if spread else []
    arguments += ["-h"] if ask.held else []
    arguments += ["-J", f"0-{ask.tasks - 1}"] if ask.tasks > 1 else []
    return arguments + (["-W", f"depend=afterany:{ask.after}"] if ask.after else [])


def _chunk(chunk: Chunk) -> str:
    memory = f":mem={chunk.memory}mb" if chunk.memory else ""
    features = "".join(f":{feature}=True" for feature in chunk.features)
    return f"{chunk.count}:ncpus={chunk.cores}{memory}{features}"


@pytest.mark.accepts("N1", "N2", "N12")
class TestOpenPbs(Conformance):
    """Its `world` is that of this module."""


@pytest.mark.accepts("N1")
class TestPolledOpenPbs(BatchConformance):
    @pytest.fixture
    def world(self, world: World) -> BatchWorld:
        return polled(world)


# --- what only OpenPBS has ---------------------------------------------------------------------


async def test_a_queue_without_a_resource_of_its_own_gets_nodes_by_their_attribute(
    standin: Standin, queue: OpenPbsQueue
) -> None:
    standin.run("qmgr", "-c", "create queue plain queue_type=execution,enabled=true,started=true")
    await queue.join([Member("n1", "10.0.0.1", 2, 1024, (), ("plain",))])
    assert '"queue":\t"plain"' in standin.run("pbsnodes", "-a", "-F", "json").stdout


async def test_a_node_of_several_queues_has_the_resources_of_all(
    standin: Standin, queue: OpenPbsQueue
) -> None:
    await queue.join([Member("n1", "10.0.0.1", 2, 1024, ("color=blue",), ("cloud", "house"))])
    shown = standin.run("pbsnodes", "-v", "n1").stdout
    assert "resources_available.Qlist = cloud,house\n" in shown
    assert "resources_available.color = blue\n" in shown
    assert "resources_available.mem = 1024mb\n" in shown


async def test_a_queue_that_is_not_there_is_named(world: World) -> None:
    member = Member("n1", "10.0.0.1", 2, 1024, (), ("nowhere",))
    for doing in (world.queue.prepare([member]), world.queue.join([member])):
        assert "no queue nowhere" in await refused(doing)


async def test_a_closed_queue_is_told_of(standin: Standin, queue: OpenPbsQueue) -> None:
    standin.run("qmgr", "-c", "set queue cloud started=false")
    assert "cloud" in await queue.prepare(MEMBERS)


async def test_names_that_the_server_cannot_resolve_say_what_to_do(
    standin: Standin, queue: OpenPbsQueue
) -> None:
    standin.change(resolves=["n1"])
    said = await refused(queue.join(MEMBERS[:2]))
    assert "n2" in said
    assert "batch.hosts" in said


async def test_resources_that_are_not_defined_are_told_of(queue: OpenPbsQueue) -> None:
    said = await refused(queue.join([Member("n1", "", 2, 1024, ("fast",), ("cloud",))]))
    assert "Unknown resource" in said


async def test_without_any_node_the_list_is_empty(tmp_path: Path) -> None:
    """rule 1: pbsnodes fails then as it does with a dead server."""
    bare = client(Standin(tmp_path))
    assert (await bare.read()).nodes == {}


async def test_waking_does_not_start_a_scheduler_that_an_admin_stopped(
    standin: Standin, queue: OpenPbsQueue
) -> None:
    standin.run("qmgr", "-c", "set server scheduling=false")
    await queue.wake()
    assert '"scheduling":\t"False"' in standin.run("qstat", "-B", "-f", "-F", "json").stdout


async def test_a_queues_limit_holds_its_jobs(standin: Standin, world: World) -> None:
    """N2: more nodes would not help them."""
    standin.run("qmgr", "-c", "set queue cloud max_run=1")
    await up(world)
    ids = [await world.submit(Ask("cloud")) for _ in range(2)]
    await world.queue.wake()
    states = {job.id: job.state for job in (await world.queue.read()).jobs}
    assert states == dict(zip(ids, (JobState.RUNNING, JobState.HELD), strict=True))


async def test_an_environment_that_breaks_the_document_hides_no_job(
    standin: Standin, queue: OpenPbsQueue
) -> None:
    """Versions before 20 print it as it is."""
    standin.change(raw=True)
    nasty = {"NASTY": 'he said "x", back\\slash\ttab\n}', "NUMBER": "005"}
    standin.run("qsub", "-q", "cloud", "-v", "NASTY,NUMBER", user="tester", env=nasty)
    standin.run("qsub", "-q", "cloud", user="tester")
    assert [job.id for job in (await queue.read()).jobs] == ["0.pbssrv", "1.pbssrv"]


async def test_a_forged_document_is_unavailable(standin: Standin, queue: OpenPbsQueue) -> None:
    standin.change(raw=True)
    forged = {"NASTY": 'x"\n\t\t\t},\n\t\t\t"job_state":\t"F'}
    standin.run("qsub", "-q", "cloud", "-v", "NASTY", user="tester", env=forged)
    with pytest.raises(Unavailable, match="broken JSON"):
        await queue.read()


async def test_a_job_that_may_not_run_again_keeps_its_dead_node(
    standin: Standin, world: World
) -> None:
    """rule 2: it is the site's to decide what becomes of it."""
    await up(world)
    standin.run("qsub", "-q", "cloud", "-r", "n", user="tester")
    await world.queue.drain(["n1"], "springtide: dead")
    standin.dies("n1")
    await world.queue.requeue(["0.pbssrv"])
    assert await world.queue.leave(["n1"]) == {"n1": "jobs are on it: 0.pbssrv"}
    assert (await world.queue.read()).nodes["n1"].health is Health.DOWN


@pytest.mark.parametrize("state", ["up", "drained", "down"])
@pytest.mark.parametrize("act", list(ON_NODES))
async def test_a_node_of_the_premises_with_a_name_of_ours_is_never_touched(
    standin: Standin, queue: OpenPbsQueue, act: str, state: str
) -> None:
    """rule 2"""
    standin.run("qsub", "-q", "house", user="tester")
    if state == "drained":
        standin.run("pbsnodes", "-C", "broken fan, ticket 7", "-o", PREMISES)
    if state == "down":
        standin.dies(PREMISES)
    member = Member(PREMISES, "10.0.0.1", 2, 1024, (), ("cloud",))
    before = standin.run("pbsnodes", "-v", PREMISES).stdout
    doing = ON_NODES[act](queue, member)
    if act == "leave":
        assert await doing == {PREMISES: "it is not ours"}
    elif act == "dismantle":
        await doing
    else:
        said = await refused(doing)
        assert said.startswith("OpenPBS has house1 already, and it is not ours: choose other")
    assert standin.run("pbsnodes", "-v", PREMISES).stdout == before
    assert (await queue.read()).jobs[0].nodes == (PREMISES,)


async def test_a_node_of_ours_is_ours_whatever_people_write_about_it(
    standin: Standin, world: World
) -> None:
    (member,) = await up(world)
    standin.run("pbsnodes", "-C", "tested ok", "-r", member.name)
    await world.queue.drain([member.name], "springtide: a while")
    await world.queue.undrain([member.name])
    standin.run("pbsnodes", "-C", "by hand", "-o", member.name)
    await world.queue.dismantle([member.name])
    assert member.name not in (await world.queue.read()).nodes


async def test_a_drain_by_hand_without_words_is_not_ours(standin: Standin, world: World) -> None:
    (member,) = await up(world)
    for _ in range(2):
        standin.run("pbsnodes", "-o", member.name)
        seen = await node(world, member.name)
        assert (seen.drained, seen.reason) == (True, "")
        await world.queue.undrain([member.name])


async def test_a_job_with_strange_wishes_hides_no_others(standin: Standin, world: World) -> None:
    odd = """select=1:ncpus=1:color="it's\""""
    standin.run("qsub", "-q", "cloud", "-l", odd, user="tester")
    standin.run("qsub", "-q", "cloud", user="tester")
    assert [job.state for job in (await world.queue.read()).jobs] == [JobState.WAITING] * 2


async def test_a_node_that_has_a_job_before_its_join_is_noted_keeps_it(world: World) -> None:
    """rule 2: nobody lived to note that it joined; others join as if nothing was."""
    first, second = world.members[:2]
    await up(world)
    one = await running(world)
    await world.queue.join([first, second])
    assert (await job(world, one.id)).nodes == (first.name,)
    assert (await node(world, first.name)).health is Health.UP
    assert (await node(world, second.name)).health is Health.JOINING
    await world.node_dies(first.name)
    said = await refused(world.queue.join([first, world.members[2]]))
    assert said == "n1 cannot join anew: jobs are on it"
    assert (await node(world, world.members[2].name)).health is Health.JOINING


def starts_before(standin: Standin, program: str, option: str = "") -> None:
    """The scheduler has its turn at the moment in which this program is called."""
    place = standin.commands()
    shutil.copy(place / "qmgr", place / "qmgr-wakes")
    wakes = f'{place}/qmgr-wakes -c "set server scheduling=true"'
    (place / program).rename(place / f"{program}-lives")
    first = f'case "$*" in *{option}*) {wakes};; esac'
    (place / program).write_text(f'#!/bin/sh\n{first}\nexec {place}/{program}-lives "$@"\n')
    (place / program).chmod(0o755)


async def test_a_job_that_starts_during_a_reading_runs(standin: Standin, world: World) -> None:
    """Or nodes would start for jobs that have theirs."""
    (member,) = await up(world)
    standin.run("qmgr", "-c", "set server scheduling=false")
    one = await world.submit(Ask("cloud"))
    await world.submit(Ask("cloud", tasks=9))
    starts_before(standin, "pbsnodes")
    reading = await world.queue.read()
    assert jobs(reading, one)[0].nodes == (member.name,)
    tasks = [(job.state.value, job.tasks) for job in reading.jobs if "[" in job.id]
    assert sorted(tasks) == [*[("running", 1)] * 3, ("waiting", 6)]


async def test_a_job_that_starts_while_its_node_leaves_goes_on(
    standin: Standin, world: World
) -> None:
    """rule 2"""
    (member,) = await up(world)
    standin.run("qmgr", "-c", "set server scheduling=false")
    one = await world.submit(Ask("cloud"))
    starts_before(standin, "qmgr")
    assert await world.queue.leave([member.name]) == {member.name: f"jobs are on it: {one}"}
    assert (await job(world, one)).nodes == (member.name,)


async def test_a_job_that_starts_while_its_node_is_dismantled_goes_on(
    standin: Standin, world: World
) -> None:
    """rule 2"""
    (member,) = await up(world)
    standin.run("qmgr", "-c", "set server scheduling=false")
    one = await world.submit(Ask("cloud"))
    starts_before(standin, "pbsnodes", "-o")
    said = await refused(world.queue.dismantle([member.name]))
    assert said == f"OpenPBS keeps n1: n1: jobs are on it: {one}"
    seen = await node(world, member.name)
    assert (seen.drained, seen.jobs) == (False, (one,))


async def test_nobody_asks_to_delete_a_busy_node(standin: Standin, world: World) -> None:
    """rule 2"""
    (member,) = await up(world)
    one = await running(world)
    asked = standin.directory / "asked"
    (standin.commands() / "qmgr").write_text(f"#!/bin/sh\necho $* >>{asked}\n")
    await world.queue.leave([member.name])
    await refused(world.queue.dismantle([member.name]))
    await world.queue.join([member])
    assert not asked.exists()
    assert (await job(world, one.id)).nodes == (member.name,)


async def test_a_busy_node_that_is_not_dismantled_takes_jobs(world: World) -> None:
    (member,) = await up(world)
    await running(world)
    await refused(world.queue.dismantle([member.name]))
    assert not (await node(world, member.name)).drained


async def test_jobs_of_queues_that_ask_for_nothing_stay_off_our_nodes(
    standin: Standin, world: World
) -> None:
    (member,) = await up(world)
    standin.dies(PREMISES)
    standin.run("qsub", "-q", "workq", user="tester")
    await world.queue.wake()
    assert (await node(world, member.name)).jobs == ()


async def test_nodes_of_several_queues_need_queues_that_say_so(
    standin: Standin, queue: OpenPbsQueue
) -> None:
    standin.run("qmgr", "-c", "create queue plain queue_type=execution,enabled=true,started=true")
    member = Member("n1", "10.0.0.1", 2, 1024, (), ("cloud", "plain"))
    for doing in (queue.prepare([member]), queue.join([member])):
        said = await refused(doing)
        assert said.endswith("run qmgr -c 'set queue plain default_chunk.Qlist=plain'")


async def test_nodes_that_are_shown_with_their_domain_are_ours(
    standin: Standin, tmp_path: Path
) -> None:
    standin.run("qmgr", "-c", "create node n1.example.org comment=springtide,queue=cloud")
    commands = Here(standin.commands(), standin=standin)
    queue = OpenPbsQueue(commands, [member.name for member in MEMBERS])
    world = make_world(standin, queue, tmp_path)
    standin.boots("n1.example.org")
    standin.run("qmgr", "-c", "set node n1.example.org resources_available.Qlist=cloud")
    one = await running(world)
    assert one.nodes == ("n1",)
    assert (await node(world, "n1")).jobs == (one.id,)
    await queue.drain(["n1"], "springtide: a while")
    assert await queue.leave(["n1"]) == {"n1": f"jobs are on it: {one.id}"}
    await world.end(one.id)
    assert await queue.leave(["n1"]) == {}
    assert set((await queue.read()).nodes) == {PREMISES}


async def test_whoever_is_cancelled_waits_for_the_command(
    standin: Standin, queue: OpenPbsQueue, world: World
) -> None:
    """Or a drain would come after its undoing."""
    (member,) = await up(world)
    place, began = standin.commands(), standin.directory / "began"
    (place / "pbsnodes").rename(place / "pbsnodes-lives")
    wait = f"touch {began}; sleep 0.5"
    slow = f'case "$*" in *-o*) {wait};; esac\nexec {place}/pbsnodes-lives "$@"\n'
    (place / "pbsnodes").write_text(f"#!/bin/sh\n{slow}")
    (place / "pbsnodes").chmod(0o755)
    draining = asyncio.create_task(queue.drain([member.name], REASON))
    while not began.exists():
        await asyncio.sleep(0)
    draining.cancel()
    await asyncio.wait([draining])
    await queue.undrain([member.name])
    await asyncio.to_thread(time.sleep, 0.7)
    assert not (await node(world, member.name)).drained


async def test_a_node_of_ours_is_known_as_such_after_a_drain(world: World) -> None:
    (member,) = await up(world)
    await world.queue.drain([member.name], "springtide: a while")
    await world.queue.undrain([member.name])
    await world.queue.join([member])
    assert await world.queue.leave([member.name]) == {}


async def test_a_server_that_dies_during_a_reading_shows_no_empty_queue(
    standin: Standin, queue: OpenPbsQueue
) -> None:
    """rule 1: its document is that of an empty queue; only the exit code differs."""
    real = standin.commands()
    document = RECORDED / "openpbs-23.06.06__qstat_server-down.out"
    dying = f'case "$1" in -f) cat {document}; exit 255;; esac\nexec {real}/qstat-lives "$@"\n'
    (real / "qstat").rename(real / "qstat-lives")
    (real / "qstat").write_text(f"#!/bin/sh\n{dying}")
    (real / "qstat").chmod(0o755)
    assert "exit code 255" in await refused(queue.read())
