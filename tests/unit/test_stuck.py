"""Jobs that wait beside free nodes: when that is a reason to count them no more, and when not."""

from dataclasses import dataclass, field, replace

import pytest

from springtide.packing import Pool, Room
from springtide.ports import Chunk, JobState, QueueJob
from springtide.stuck import FIRST_S, MOST_S, Doubts, Idle, doubts

STEP_S, LEAST_S = 10.0, 60.0
LATE = int(LEAST_S / STEP_S) + 1
"""Looks after which it is so."""
FULL = Chunk(cores=4)


def pool(group: str = "a", count: int = 4) -> Pool:
    names = tuple(f"{group}{number}" for number in range(1, count + 1))
    return Pool(group, names, 4, 4096, frozenset(), frozenset({"cloud"}))


@dataclass
class Site:
    """What waits, and which nodes are idle; looked at again and again."""

    jobs: list[QueueJob] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=lambda: [pool()])
    able: int = 4
    known: Doubts = field(default_factory=Doubts)

    def waits(self, id: str, *chunks: Chunk, **others: object) -> None:
        job = QueueJob(id, JobState.WAITING, "ann", ("cloud",), chunks or (FULL,))
        self.jobs.append(replace(job, **others))  # type: ignore[arg-type]

    def runs(self, *ids: str, user: str = "ann", queue: str = "cloud") -> None:
        self.jobs += [QueueJob(id, JobState.RUNNING, user, (queue,), (FULL,)) for id in ids]

    def ends(self, id: str) -> None:
        self.jobs = [job for job in self.jobs if job.id != id]

    @property
    def counted(self) -> dict[str, int]:
        """The jobs that are demand, and how many tasks of each."""
        found = self.known.counted(job for job in self.jobs if job.state is JobState.WAITING)
        return {job.id: job.tasks for job in found}

    def look(self, times: int = 1) -> list[str]:
        """The jobs that are stuck then."""
        for _ in range(times):
            rooms = [Room(name, name[0], 4, 4096) for name in self.idle]
            idle = Idle(rooms, self.pools, {one.group: self.able for one in self.pools})
            self.known = doubts(self.jobs, idle, self.known, STEP_S, LEAST_S)
        return [job.id for job in self.jobs if self.known.keep_out(job)]


@pytest.mark.accepts("N2", "B18")
def test_a_job_that_a_free_node_would_hold_for_long_is_stuck() -> None:
    site = Site(idle=["a1"])
    site.waits("1")
    site.waits("2", tasks=500)
    site.waits("3", names=("a1",))
    assert site.look(LATE - 1) == []
    assert site.look() == ["1", "2", "3"]


def test_without_a_free_node_nobody_is_stuck_however_long_it_takes() -> None:
    site = Site()
    site.waits("1")
    assert site.look(1000) == []
    site.idle = ["a1"]
    assert site.look(LATE - 1) == [], "a node that has just come proves nothing"
    assert site.look() == ["1"]


def test_a_job_that_has_just_come_is_not_stuck_beside_a_node_that_was_free_before() -> None:
    site = Site(idle=["a1"])
    site.look(1000)
    site.waits("1")
    assert site.look(LATE - 1) == []
    assert site.look() == ["1"]


def test_nodes_that_are_free_for_a_moment_each_between_jobs_prove_nothing() -> None:
    site = Site()
    site.waits("1")
    for turn in range(100):
        site.idle = [f"a{1 + turn // 3 % 4}"]
        assert site.look() == []


@pytest.mark.parametrize(
    "wanted", [(Chunk(count=2, cores=4),), (Chunk(cores=5),), (Chunk(features=frozenset({"x"})),)]
)
def test_a_job_that_free_nodes_would_not_hold_is_not_stuck(wanted: tuple[Chunk, ...]) -> None:
    site = Site(idle=["a1"])
    site.waits("1", *wanted)
    assert site.look(1000) == []


def test_a_job_of_several_nodes_is_stuck_once_all_of_them_are_free() -> None:
    site = Site(idle=["a1"])
    site.waits("1", Chunk(count=2, cores=4))
    site.look(LATE)
    site.idle = ["a1", "a2"]
    assert site.look(LATE - 1) == []
    assert site.look() == ["1"]


def test_what_may_be_kept_waiting_for_a_wide_job_is_not_stuck() -> None:
    """The batch system may keep the node for that, which lacks others yet."""
    site = Site(idle=["a1"])
    site.waits("wide", Chunk(count=2, cores=4))
    site.waits("1")
    assert site.look(1000) == []
    del site.jobs[0]
    assert site.look(LATE - 1) == [], "the scheduler needs time after that too"
    assert site.look() == ["1"]


@pytest.mark.parametrize(
    ("chunk", "able", "names"),
    [
        (Chunk(count=3, cores=4), 2, ()),
        (Chunk(cores=5), 4, ()),
        (Chunk(count=50, spread=False), 4, ()),
        (Chunk(count=5, cores=3, spread=False), 4, ()),
        (FULL, 4, ("a2",)),
    ],
)
def test_no_node_is_kept_for_what_cannot_have_its_nodes_or_wants_a_certain_one(
    chunk: Chunk, able: int, names: tuple[str, ...]
) -> None:
    site = Site(idle=["a1"], able=able)
    site.waits("other", chunk, names=names)
    site.waits("1")
    assert site.look(LATE) == ["1"]


def test_a_wide_job_of_one_group_excuses_nobody_in_another() -> None:
    site = Site(idle=["a1", "b1"], pools=[pool("a"), replace(pool("b"), queues=frozenset("b"))])
    site.waits("wide", Chunk(count=2, cores=4))
    site.waits("1", queues=("b",))
    site.waits("2")
    assert site.look(LATE) == ["1"]


@pytest.mark.parametrize("state", [JobState.HELD, JobState.RUNNING])
def test_what_is_held_or_runs_is_not_stuck_and_begins_anew(state: JobState) -> None:
    site = Site(idle=["a1"])
    site.waits("1")
    assert site.look(LATE) == ["1"]
    (job,) = site.jobs
    site.jobs = [replace(job, state=state)]
    assert site.look() == []
    site.jobs = [job]
    assert site.look(LATE - 1) == []


@pytest.mark.parametrize(
    "change",
    [
        {"chunks": (Chunk(),)},
        {"queues": ("cloud", "b")},
        {"names": ("a1",)},
        {"avoid": frozenset({"a2"})},
    ],
)
def test_a_job_that_asks_for_something_else_is_counted_at_once(change: dict[str, object]) -> None:
    site = Site(idle=["a1"])
    site.waits("1")
    assert site.look(LATE) == ["1"]
    site.jobs = [replace(site.jobs[0], **change)]  # type: ignore[arg-type]
    assert site.look(LATE - 1) == []
    assert site.look() == ["1"]


def test_a_stuck_job_is_tried_again_ever_more_seldom_but_always() -> None:
    site = Site(idle=["a1"])
    site.waits("1")
    pauses = []
    for _ in range(8):
        while not site.look():
            pass
        began = 0
        while site.look():
            began += 1
        pauses.append((began + 1) * STEP_S)
    assert pauses[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-2:] == [MOST_S, MOST_S]


def test_a_stuck_job_stays_so_while_its_nodes_leave_and_excuses_nobody() -> None:
    site = Site(idle=["a1", "a2"])
    site.waits("1", Chunk(count=2, cores=4))
    assert site.look(LATE) == ["1"]
    site.idle = ["a1"]
    site.waits("2")
    assert site.look(LATE) == ["1", "2"]
    site.idle = []
    assert site.look(10) == ["1", "2"]


def test_a_job_that_avoids_nodes_is_stuck_beside_others_and_stays_so_while_they_go() -> None:
    site = Site(idle=["a1"])
    site.waits("1", avoid=frozenset({"a1"}))
    assert site.look(1000) == [], "a1 is no node for it"
    site.idle = ["a2"]
    assert site.look(LATE) == ["1"]
    site.idle = []
    assert site.look() == ["1"]


def test_what_may_be_kept_waiting_for_a_wide_job_that_avoids_nodes_is_not_stuck() -> None:
    site = Site(idle=["a1", "a2"])
    site.waits("wide", Chunk(count=2, cores=4), avoid=frozenset({"a2"}))
    site.waits("1")
    assert site.look(1000) == []


# --- what may have freed them --------------------------------------------------------------------


@pytest.mark.accepts("N2", "B18")
def test_as_many_stuck_jobs_are_tried_at_once_as_jobs_of_their_user_ended() -> None:
    """Wherever those ran: a quota counts them all."""
    site = Site(idle=["a1"])
    site.runs("r1", "r2", queue="premises")
    site.runs("other", user="bob", queue="premises")
    for id in ("1", "2", "3"):
        site.waits(id)
    site.look()
    site.runs("b", user="bob")  # so it is not the queue
    assert site.look(LATE - 1) == ["1", "2", "3"]
    site.idle = []
    site.ends("other")
    assert site.look() == ["1", "2", "3"]
    site.ends("r1")
    assert site.look() == ["2", "3"]
    site.ends("1")
    site.runs("1")
    assert site.look() == ["2", "3"], "it took what had become free"


def test_what_was_tried_in_vain_is_left_alone_with_all_others_of_its_user() -> None:
    site = Site(idle=["a1"])
    site.runs("r1", "r2", queue="premises")
    for id in ("1", "2", "3"):
        site.waits(id)
    site.look(LATE)
    site.ends("r1")
    assert site.look(LATE - 1) == ["2", "3"]
    assert site.look() == ["1", "2", "3"]
    assert site.look(LATE) == ["1", "2", "3"]
    site.ends("r2")
    assert site.look() == ["2", "3"]


def test_jobs_that_go_on_one_for_one_free_nobody() -> None:
    """As they do while a quota is used up."""
    site = Site(idle=["a1"])
    site.runs("r0")
    site.waits("1", tasks=50)
    site.look(LATE)
    for turn in range(40):
        site.ends(f"r{turn}")
        site.runs(f"r{turn + 1}")
        site.jobs[0] = replace(site.jobs[0], tasks=49 - turn)
        assert site.look() == ["1"]


def test_an_array_is_tried_with_as_many_tasks_as_began_to_run_beside_the_others() -> None:
    site = Site(idle=["a1"])
    site.waits("1", tasks=50)
    assert site.look(LATE) == ["1"]
    for begun in range(1, 4):
        site.runs(f"1.{begun}")
        site.jobs[0] = replace(site.jobs[0], tasks=50 - begun)
        site.look()
        assert site.counted == {"1": begun}


@pytest.mark.parametrize("other", ["starts", "ends"])
def test_a_queue_in_which_nothing_started_is_tried_when_something_happens_there(other: str) -> None:
    """Its scheduler was stopped, or it was full."""
    site = Site(idle=["a1"])
    if other == "ends":
        site.runs("other", user="bob")
    for id in ("1", "2"):
        site.waits(id)
    assert site.look(LATE) == ["1", "2"]
    site.ends("other") if other == "ends" else site.runs("other", user="bob")
    assert site.look() == ["2"]


def test_jobs_of_others_that_come_and_go_in_the_queue_free_nobody() -> None:
    """It is not the queue then that keeps them."""
    site = Site(idle=["a1"])
    site.waits("1")
    for turn in range(50):
        site.runs(f"r{turn}", user="bob")
        if turn % 3 == 2:
            for id in range(turn + 1):
                site.ends(f"r{id}")
        found = site.look()
        assert found == (["1"] if turn >= LATE - 1 else [])
