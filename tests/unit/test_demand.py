"""What waiting jobs need: tables, and what holds for all jobs and nodes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.demand import Demand, demand
from springtide.packing import Packing, Pool, Rank, Room, Terms, fits
from springtide.ports import Chunk, JobState, QueueJob

SMALL = Chunk()
GPU, FAST, SLOW = frozenset({"gpu"}), frozenset({"fast"}), frozenset({"slow"})


def pool(
    group: str = "a",
    count: int = 4,
    cores: int = 4,
    memory: int = 4096,
    features: Sequence[str] = (),
    queues: Sequence[str] = ("cloud",),
    up: int = 0,
) -> Pool:
    """A group of which the first nodes are up and the others may start."""
    names = tuple(f"{group}{number}" for number in range(1, count + 1))
    sets = frozenset(features), frozenset(queues)
    return Pool(group, names, cores, memory, *sets, names[up:], count - up)


def job(id: str, *chunks: Chunk, tasks: int = 1, **others: object) -> QueueJob:
    known = QueueJob(id, JobState.WAITING, "ann", ("cloud",), chunks or (SMALL,), tasks)
    return replace(known, **others)  # type: ignore[arg-type]


def jobs(count: int, *chunks: Chunk) -> list[QueueJob]:
    return [job(str(id), *chunks) for id in range(1, count + 1)]


def room(name: str, cores: int = 4, memory: int = 4096, rank: Rank = Rank.UP) -> Room:
    return Room(name, name.rstrip("0123456789"), cores, memory, rank)


# --- how many ------------------------------------------------------------------------------------


def test_nothing_waits_and_nothing_starts() -> None:
    assert demand([], [], [pool()]) == Demand()


@pytest.mark.accepts("N4")
def test_ten_jobs_that_fill_a_node_each_start_ten_nodes_at_once() -> None:
    found = demand(jobs(10, Chunk(cores=4)), [], [pool(count=20)])
    assert found.start == tuple(f"a{number}" for number in range(1, 11))
    assert found.jobs == tuple(str(id) for id in range(1, 11))
    assert not found.short


@pytest.mark.accepts("N2")
@pytest.mark.parametrize(
    ("chunk", "tasks", "nodes"),
    [
        (Chunk(), 1, 1),
        (Chunk(), 4, 1),
        (Chunk(), 5, 2),
        (Chunk(cores=3), 2, 2),
        (Chunk(cores=2), 3, 2),
        (Chunk(memory=4096), 3, 3),
        (Chunk(memory=1366), 3, 2),
        (Chunk(exclusive=True), 3, 3),
        (Chunk(cores=0), 4, 1),
    ],
)
def test_tasks_of_an_array_share_nodes_as_far_as_they_fit(
    chunk: Chunk, tasks: int, nodes: int
) -> None:
    found = demand([job("1", chunk, tasks=tasks)], [], [pool()])
    assert len(found.start) == nodes
    assert found.wide == {}


def test_small_jobs_fill_what_large_ones_leave() -> None:
    waiting = [*jobs(2, Chunk(cores=3)), *(job(f"s{n}") for n in range(2))]
    assert len(demand(waiting, [], [pool()]).start) == 2


@pytest.mark.accepts("N2")
def test_each_chunk_of_a_job_of_several_nodes_gets_its_own() -> None:
    found = demand([job("1", Chunk(count=3))], [], [pool()])
    assert found.start == ("a1", "a2", "a3")
    assert found.wide == {"1": ("a1", "a2", "a3")}


def test_chunks_that_may_share_a_node_do() -> None:
    assert len(demand([job("1", Chunk(count=5, spread=False))], [], [pool()]).start) == 2


def test_chunks_of_several_kinds_are_all_served() -> None:
    wanted = job("1", Chunk(cores=4), Chunk(count=2, cores=2))
    assert len(demand([wanted], [], [pool()]).start) == 3
    shared = job("1", Chunk(cores=2, spread=False), Chunk(count=2, spread=False))
    assert len(demand([shared], [], [pool()]).start) == 1


@pytest.mark.accepts("N2")
@pytest.mark.parametrize("state", [JobState.HELD, JobState.RUNNING])
def test_only_jobs_that_wait_are_demand(state: JobState) -> None:
    assert demand([job("1", state=state)], [], [pool()]) == Demand()


# --- where ---------------------------------------------------------------------------------------


@pytest.mark.accepts("N3")
def test_jobs_of_other_queues_start_nothing_and_are_told_nothing() -> None:
    waiting = [job("1", Chunk(cores=999), queues=("premises",)), job("2", queues=("premises",))]
    assert demand(waiting, [], [pool()]) == Demand()


@pytest.mark.accepts("N2")
def test_a_job_of_several_queues_is_served_if_one_is_ours() -> None:
    found = demand([job("1", queues=("premises", "cloud"))], [], [pool()])
    assert found.start == ("a1",)


def test_the_first_group_that_fits_is_taken_then_the_next() -> None:
    pools = [pool("a", count=1), pool("b", cores=8)]
    assert demand(jobs(2, Chunk(cores=4)), [], pools).start == ("a1", "b1")
    assert demand([job("1", Chunk(cores=8))], [], pools).start == ("b1",)


def test_features_choose_the_group_and_leave_it_to_those_who_need_it() -> None:
    pools = [pool("a", count=1, features=["gpu"]), pool("b")]
    waiting = [job("1", Chunk(cores=4)), job("2", Chunk(features=frozenset({"gpu"}), cores=4))]
    assert sorted(demand(waiting, [], pools).start) == ["a1", "b1"]


def test_nodes_of_any_alternative_will_do() -> None:
    pools = [pool("a"), pool("f", count=1, features=["fast"]), pool("s", features=["slow"])]
    found = demand([job("1", Chunk(count=2, cores=4, ways=(FAST, SLOW)))], [], pools)
    assert found.start == ("f1", "s1")


def test_nodes_that_must_be_alike_are_all_of_one_alternative() -> None:
    alike = Chunk(count=2, cores=4, ways=(FAST, SLOW), alike=True)
    pools = [pool("f", count=3, features=["fast"]), pool("s", count=4, features=["slow"])]
    found = demand(jobs(4, alike), [], pools)
    assert found.start == ("f1", "f2", "s1", "s2", "s3", "s4")
    assert found.short == {"f": ("4",), "s": ("4",)}
    found = demand([job("1", alike, tasks=3)], [], pools)
    assert len(found.start) == 6


def test_more_nodes_than_any_alternative_has_are_impossible_if_they_must_be_alike() -> None:
    pools = [pool("f", count=2, features=["fast"]), pool("s", count=1, features=["slow"])]
    asks = Chunk(count=3, ways=(FAST, SLOW), alike=True)
    assert (
        "3 nodes of one kind, fast or slow," in demand([job("1", asks)], [], pools).impossible["1"]
    )
    assert not demand([job("1", replace(asks, alike=False))], [], pools).impossible
    assert not demand([job("1", replace(asks, count=2))], [], pools).impossible


def test_a_job_that_insists_on_a_node_gets_that_one() -> None:
    assert demand([job("1", names=("a3",))], [], [pool()]).start == ("a3",)
    there = demand([job("1", names=("a1",))], [room("a1"), room("a2")], [pool(up=2)])
    assert (there.start, set(there.used)) == ((), {"a1"})
    more = demand([job("1", Chunk(count=3), names=("a4",))], [], [pool()])
    assert more.start == ("a4", "a1", "a2")


def test_a_job_waits_for_the_node_that_it_insists_on_while_that_is_full() -> None:
    found = demand([job("1", names=("a1",))], [room("a1", cores=0)], [pool(up=1)])
    assert found == Demand()


def test_a_job_that_insists_on_a_node_of_others_is_theirs() -> None:
    assert demand([job("1", names=("old1",))], [], [pool()]) == Demand()


# --- room that there is ---------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [Rank.UP, Rank.STARTING, Rank.LEAVING])
def test_what_is_there_or_on_its_way_is_not_started_again(rank: Rank) -> None:
    found = demand(jobs(4), [room("a1", rank=rank)], [pool(up=1)])
    assert (found.start, set(found.used), found.jobs) == ((), {"a1"}, ())


def test_only_what_does_not_fit_starts_nodes() -> None:
    found = demand(jobs(6), [room("a1", cores=1)], [pool(up=1)])
    assert (found.start, set(found.used)) == (("a2", "a3"), {"a1"})


def test_nodes_that_are_up_are_taken_before_those_that_would_have_to_be_called_back() -> None:
    rooms = [room("a1", rank=Rank.LEAVING), room("a2", rank=Rank.STARTING), room("a3")]
    assert demand(jobs(1), rooms, [pool(up=3)]).used == {"a3"}
    assert demand(jobs(8), rooms, [pool(up=3)]).used == {"a3", "a2"}


def test_the_tightest_room_is_taken_so_that_empty_nodes_can_go() -> None:
    assert demand(jobs(1), [room("a1"), room("a2", cores=1)], [pool(up=2)]).used == {"a2"}


def test_a_job_that_wants_a_node_for_itself_does_not_share_one() -> None:
    alone = [job("1", Chunk(exclusive=True))]
    assert demand(alone, [room("a1", cores=3)], [pool(up=1)]).start == ("a2",)
    assert demand(alone, [room("a1")], [pool(up=1)]).used == {"a1"}


@pytest.mark.accepts("B18")
def test_jobs_that_came_just_now_take_room_and_start_nothing() -> None:
    found = demand(jobs(2), [room("a1", cores=1)], [pool(up=1)], early={"1", "2"})
    assert (found.start, set(found.used)) == ((), {"a1"})
    assert not found.short


# --- too little --------------------------------------------------------------------------------


@pytest.mark.accepts("N5")
def test_no_more_start_than_there_are_and_the_rest_is_said() -> None:
    found = demand(jobs(6, Chunk(cores=4)), [], [pool()])
    assert len(found.start) == 4
    assert found.short == {"a": ("5", "6")}


def test_a_group_may_be_allowed_fewer_than_it_has() -> None:
    found = demand(jobs(6, Chunk(cores=4)), [], [replace(pool(), left=2)])
    assert found.start == ("a1", "a2")


def test_nothing_starts_for_a_job_that_cannot_have_all_its_nodes_now() -> None:
    busy = [room("a1", cores=0), room("a2", cores=0)]
    found = demand([job("1", Chunk(count=3))], busy, [pool(up=2)])
    assert (found.start, found.wide, found.short) == ((), {}, {"a": ("1",)})
    assert not found.impossible


def test_what_a_job_could_not_use_is_there_for_others() -> None:
    waiting = [job("1", Chunk(count=3, cores=4)), job("2", Chunk(count=2, cores=4))]
    found = demand(waiting, [room("a1", cores=0)], [pool(count=3, up=1)])
    assert found.start == ("a2", "a3")
    assert found.wide == {"2": ("a2", "a3")}


IMPOSSIBLE = [
    (Chunk(cores=5), "it asks for 5 cores on a node, and none has more than 4"),
    (Chunk(memory=5000), "it asks for 5000 MiB on a node, and none has more than 4096 MiB"),
    (Chunk(features=frozenset({"gpu"})), "no node there has gpu"),
    (Chunk(ways=(FAST, SLOW)), "no node there has fast or slow"),
    (Chunk(features=GPU, ways=(FAST,)), "no node there has gpu and fast"),
    (Chunk(features=GPU, ways=(FAST, SLOW)), "no node there has gpu and (fast or slow)"),
    (Chunk(ways=(FAST | GPU, SLOW)), "no node there has (fast and gpu) or slow"),
    (Chunk(count=5), "it asks for 5 nodes at once, and there can be 4"),
    (Chunk(count=17, spread=False), "it asks for 17 times 1 core at once, and there can be 16"),
]


@pytest.mark.parametrize(("chunk", "why"), IMPOSSIBLE)
def test_what_can_never_be_is_told_and_starts_nothing(chunk: Chunk, why: str) -> None:
    found = demand([job("1", chunk), job("2", chunk)], [], [pool()])
    words = f"it can never start in cloud: {why}; ask for less, or delete the job"
    assert found == Demand(impossible={"1": words, "2": words})


def test_cores_and_memory_of_different_groups_make_no_node() -> None:
    pools = [pool("a", cores=8, memory=1024), pool("b", cores=1)]
    found = demand([job("1", Chunk(cores=8, memory=4096))], [], pools)
    assert "no node there has 8 cores and 4096 MiB together" in found.impossible["1"]


def test_chunks_of_several_kinds_can_be_too_many_nodes_together() -> None:
    found = demand([job("1", Chunk(count=3), Chunk(count=2, cores=2))], [], [pool()])
    assert "it asks for 5 nodes at once, and there are 4" in found.impossible["1"]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            (Chunk(count=9, spread=False), Chunk(count=8, spread=False)),
            "it asks for 17 cores at once, and there are 16 in a",
        ),
        (
            (Chunk(count=4, memory=3000), Chunk(count=4, memory=2000, spread=False)),
            "it asks for 20000 MiB at once, and there are 16384 in a",
        ),
        (
            (Chunk(count=2, features=GPU), Chunk(count=1, cores=2, features=GPU), Chunk()),
            "it asks for 3 nodes at once, and there are 2 in g",
        ),
        (
            (Chunk(count=3, cores=3, spread=False), Chunk(count=2, cores=3, memory=1)),
            "it asks for 5 nodes at once, and there are 4 in a",
        ),
        (
            (Chunk(count=3, memory=2100, spread=False), Chunk(2, 2, 2100, spread=False)),
            "it asks for 5 nodes at once, and there are 4 in a",
        ),
    ],
)
def test_chunks_that_fit_one_by_one_can_be_too_much_together(
    parts: tuple[Chunk, ...], why: str
) -> None:
    """They keep no node from leaving, then, and their owner is told."""
    pools = [pool(), pool("g", count=2, features=("gpu",))] if len(parts) == 3 else [pool()]
    found = demand([job("1", *parts)], [], pools)
    words = f"it can never start in cloud: {why}; ask for less, or delete the job"
    assert found == Demand(impossible={"1": words})


def test_parts_that_find_no_places_beside_each_other_keep_no_node() -> None:
    """Five of 2 cores on two nodes of 5: as many cores as there are, but never in one piece."""
    parts = Chunk(count=3, cores=2, spread=False), Chunk(count=2, cores=2, memory=1, spread=False)
    (small, large) = (replace(pool(count=2, cores=cores), memory=9) for cores in (5, 6))
    assert demand([job("1", *parts)], [], [large]).start == ("a1", "a2")
    assert demand([job("1", *parts)], [], [small]) == Demand()


def test_the_large_parts_of_a_job_are_placed_before_the_small_ones() -> None:
    parts = Chunk(count=2, cores=1, spread=False), Chunk(count=1, cores=4, spread=False)
    rooms = [room("a1", cores=4), room("a2", cores=2)]
    found = demand([job("1", *parts)], rooms, [pool(count=2, up=2)])
    assert found == Demand(used=frozenset({"a1", "a2"}))


def test_what_others_may_have_room_for_is_not_called_impossible() -> None:
    huge = job("1", Chunk(cores=64))
    assert demand([replace(huge, queues=("cloud", "premises"))], [], [pool()]) == Demand()
    assert demand([huge], [], [pool()], elsewhere={"cloud"}) == Demand()


# --- what holds always -------------------------------------------------------------------------

chunks = st.builds(
    Chunk,
    count=st.integers(1, 3),
    cores=st.integers(0, 5),
    memory=st.sampled_from([0, 0, 512, 1500, 3000, 5000]),
    features=st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"gpu"})]),
    exclusive=st.sampled_from([False, False, True]),
    spread=st.booleans(),
)
some_jobs = st.lists(
    st.builds(
        lambda wanted, tasks, names, avoid: job(
            "", *wanted, tasks=tasks, names=tuple(names), avoid=frozenset(avoid)
        ),
        st.lists(chunks, min_size=1, max_size=2),
        st.integers(1, 5),
        st.sampled_from([(), (), (), ("a1",), ("a2", "b1")]),
        st.sampled_from([(), (), (), ("a1",), ("a2", "b1")]),
    ),
    max_size=8,
).map(lambda found: [replace(one, id=str(id)) for id, one in enumerate(found)])
some_pools = st.tuples(
    st.builds(pool, st.just("a"), st.integers(2, 4), st.integers(1, 4)),
    st.builds(
        pool,
        st.just("b"),
        st.integers(1, 3),
        st.integers(1, 6),
        features=st.just(["gpu"]),
    ),
)


def there(pools: Sequence[Pool], free: Sequence[int]) -> tuple[list[Room], list[Pool]]:
    """Some nodes of each group are up, with so many cores free."""
    rooms, left = [], []
    for one, cores in zip(pools, free, strict=True):
        rooms.append(Room(one.names[0], one.group, min(cores, one.cores), one.memory))
        left.append(replace(one, free=one.names[1:], left=len(one.names) - 1))
    return rooms, left


@given(some_jobs, some_pools, st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_no_node_is_started_twice_or_beyond_the_pool(
    waiting: list[QueueJob], pools: tuple[Pool, Pool], free: tuple[int, int]
) -> None:
    rooms, left = there(pools, free)
    found = demand(waiting, rooms, left)
    able = {name for one in left for name in one.free}
    assert len(set(found.start)) == len(found.start)
    assert able.issuperset(found.start)
    assert {one.name for one in rooms}.issuperset(found.used)
    for one in left:
        assert sum(name in one.free for name in found.start) <= one.left
    assert all(set(nodes) & set(found.start) for nodes in found.wide.values())
    assert bool(found.jobs) == bool(found.start)


@given(some_jobs, some_pools, st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_once_the_nodes_start_nothing_more_is_needed(
    waiting: list[QueueJob], pools: tuple[Pool, Pool], free: tuple[int, int]
) -> None:
    rooms, left = there(pools, free)
    first = demand(waiting, rooms, left)
    sizes = {name: one for one in left for name in one.free}
    coming = [
        Room(name, sizes[name].group, sizes[name].cores, sizes[name].memory, Rank.STARTING)
        for name in first.start
    ]
    rest = [
        replace(
            one,
            free=tuple(name for name in one.free if name not in first.start),
            left=one.left - sum(name in one.free for name in first.start),
        )
        for one in left
    ]
    again = demand(waiting, [*rooms, *coming], rest)
    assert again.start == ()
    assert again.used == first.used.union(first.start)


@given(some_jobs, some_pools, st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_nothing_is_packed_beyond_what_a_node_has(
    waiting: list[QueueJob], pools: tuple[Pool, Pool], free: tuple[int, int]
) -> None:
    rooms, left = there(pools, free)
    lists = list(dict.fromkeys(one.avoid for one in waiting if one.avoid))
    packing, sorted_out = Packing(rooms, left), Packing(rooms, left, lists[:3])
    placed = 0
    for one in waiting:
        parts = [(chunk, [p for p in left if fits(chunk, p)]) for chunk in one.chunks]
        nodes = packing.place_whole(parts, Terms(one.names, one.avoid))
        assert nodes == sorted_out.place_whole(parts, Terms(one.names, one.avoid))
        assert one.avoid.isdisjoint(nodes)
        assert len(set(nodes)) == len(nodes)
        if nodes:
            placed += sum(chunk.count * max(1, chunk.cores) for chunk in one.chunks)
            assert len(nodes) >= sum(chunk.count for chunk in one.chunks if chunk.spread)
    bins = packing._bins
    assert all(one.cores >= 0 and one.memory >= 0 for one in bins)
    opened = sum(one.pool.cores for one in bins[len(rooms) :])
    assert placed <= sum(one.cores for one in rooms) + opened - sum(one.cores for one in bins)
    for (group, _), rack in [*packing._racks.items(), *sorted_out._racks.items()]:
        for kind, shelves in enumerate(rack._shelves):
            stocked = [cores for cores, shelf in enumerate(shelves) if shelf]
            assert rack._stocked[kind] == sum(1 << cores for cores in stocked)
            for cores, shelf in enumerate(shelves):
                assert shelf == sorted(shelf)
                assert all((bins[n].pool.group, bins[n].cores) == (group, cores) for _, n in shelf)


@dataclass(slots=True)
class Empty:
    """A node that things are tried on."""

    pool: Pool
    cores: int
    memory: int
    taken: bool = False


def could_be(wanted: QueueJob, pools: Sequence[Pool]) -> bool:
    """Whether one task of a job fits when all nodes are there and empty; tries everything."""
    usable = [one for one in pools for name in one.names if name not in wanted.avoid]
    nodes = [Empty(one, one.cores, one.memory) for one in usable]
    return _tried([chunk for chunk in wanted.chunks for _ in range(chunk.count)], nodes)


def _tried(items: list[Chunk], nodes: list[Empty]) -> bool:
    if not items:
        return True
    first, *rest = items
    alike = {(id(one.pool), one.cores, one.memory, one.taken): at for at, one in enumerate(nodes)}
    for at in alike.values():
        one, cores = nodes[at], max(1, first.cores)
        fitting = first.features <= one.pool.features and one.cores >= cores
        if not fitting or one.memory < first.memory or (first.spread and one.taken):
            continue
        nodes[at] = Empty(one.pool, one.cores - cores, one.memory - first.memory, True)
        done = _tried(rest, nodes)
        nodes[at] = one
        if done:
            return True
    return False


@settings(deadline=None)
@given(some_jobs, some_pools)
def test_what_is_called_impossible_fits_nowhere_however_it_is_tried(
    waiting: list[QueueJob], pools: tuple[Pool, Pool]
) -> None:
    found = demand(waiting, [], pools)
    for one in waiting:
        if one.id in found.impossible:
            assert not could_be(one, pools)
        elif len(one.chunks) == 1 and not one.names:
            assert could_be(one, pools)


def test_five_thousand_jobs_and_a_thousand_nodes_take_no_more_than_200_ms() -> None:
    """At best of some: others work on the same machine. The benchmark has the numbers."""
    waiting = [job(str(n), Chunk(cores=1 + n % 32, memory=(n * 37) % 60_000)) for n in range(4900)]
    waiting += [job(f"array{n}", Chunk(cores=1 + n % 7), tasks=100_000) for n in range(100)]
    nodes = pool(count=1000, cores=64, memory=256_000, up=500)
    rooms = [room(f"a{n}", cores=n % 64, memory=128_000) for n in range(1, 501)]
    took = []
    for _ in range(5):
        began = time.process_time()
        found = demand(waiting, rooms, [nodes])
        took.append(time.process_time() - began)
        assert len(found.start) == 500
    assert min(took) < 0.2


def test_what_the_batch_system_itself_calls_impossible_is_said_and_starts_nothing() -> None:
    why = "no node of the partition is as it asks for"
    held = job("7", state=JobState.HELD, never=why)
    others = job("8", state=JobState.HELD, never=why, queues=("cloud", "old"))
    found = demand([held, others, job("9", state=JobState.HELD)], [], [pool()])
    words = f"it can never start in cloud: {why}; ask for less, or delete the job"
    assert found == Demand(impossible={"7": words})


def test_what_the_batch_system_calls_impossible_is_told_in_figures_where_they_show_it() -> None:
    held = job("7", Chunk(count=9), state=JobState.HELD, never="no node is as it asks for")
    (why,) = demand([held], [], [pool()]).impossible.values()
    assert "in cloud: it asks for 9 nodes at once, and there can be 4; ask for less" in why
    (why,) = demand([held], [], [pool()], elsewhere=["cloud"]).impossible.values()
    assert "in cloud: no node is as it asks for; ask for less" in why, "others have nodes there"


ARRAYS = {
    "of 2 nodes": (Chunk(count=2),),
    "of 2 parts of nodes": (Chunk(count=2, spread=False),),
    "of 1 and 2 cores": (Chunk(), Chunk(cores=2, memory=1000)),
    "of whole nodes": (Chunk(count=2, exclusive=True),),
    "of nodes by name": (Chunk(count=2), Chunk(cores=3)),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_the_work_for_an_array_is_that_of_its_nodes_and_not_of_its_tasks(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    use = Packing._use

    def counted(*given: Any) -> int:
        used.append(given[2])
        return use(*given)

    monkeypatch.setattr(Packing, "_use", counted)
    names = ("a1", "a2", "a3") if "name" in what else ()
    work = {}
    for tasks in (1000, 100_000):
        used.clear()
        wanted = job("7", *ARRAYS[what], tasks=tasks, names=names)
        nodes = pool(count=20, cores=64, up=2)
        found = demand([wanted], [room("a1", cores=7), room("a2")], [nodes])
        assert len(found.start) == (1 if names else 18)
        work[tasks] = len(used)
    assert work[1000] == work[100_000] <= 10 * 20


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_tasks_of_an_array_find_as_much_room_as_so_many_jobs(
    tasks: int, cores: int, count: int, spread: bool
) -> None:
    """It may lie otherwise, but no node more starts for it."""
    chunk = Chunk(count=count, cores=cores, spread=spread)
    rooms, nodes = [room("a1", cores=3)], pool(count=12, cores=4, up=1)
    array = demand([job("1", chunk, tasks=tasks)], rooms, [nodes])
    singles = demand([job(str(n), chunk) for n in range(tasks)], rooms, [nodes])
    assert (array.start, array.used, list(array.short)) == (
        singles.start,
        singles.used,
        list(singles.short),
    )


def test_whether_a_job_would_find_room_is_asked_without_taking_any() -> None:
    packing = Packing([room("a1", cores=4), room("a2", cores=2)], [nodes := pool(cores=4)])
    for _ in range(2):
        assert packing.holds([(Chunk(count=2, cores=2), [nodes])])
        assert not packing.holds([(Chunk(count=2, cores=3), [nodes])])
    assert packing.used == frozenset()
    assert packing.place_whole([(Chunk(cores=4), [nodes])]) == ("a1",)


# --- nodes that jobs may not use -----------------------------------------------------------------

SLIM = pool(cores=2, memory=4096)
"""a1 to a4."""
A1 = frozenset({"a1"})


@pytest.mark.parametrize(
    ("chunk", "others", "start"),
    [
        (Chunk(), {}, ("a2",)),
        (Chunk(count=6, spread=False), {}, ("a2", "a3", "a4")),
        (Chunk(count=3), {}, ("a2", "a3", "a4")),
        (Chunk(count=2), {"names": ("a2",)}, ("a2", "a3")),
        (Chunk(count=2), {"tasks": 2}, ("a2", "a3")),
        (Chunk(), {"tasks": 100}, ("a2", "a3", "a4")),
        (Chunk(), {"names": ("a1",)}, ()),
    ],
    ids=str,
)
def test_a_job_gets_any_node_but_those_that_it_avoids(
    chunk: Chunk, others: dict[str, object], start: tuple[str, ...]
) -> None:
    wanted = replace(job("7", chunk, avoid=A1), **others)  # type: ignore[arg-type]
    found = demand([wanted], [], [SLIM])
    assert found.start == start
    assert not found.impossible


def test_a_node_that_a_job_avoids_is_not_kept_for_it_and_is_left_to_others() -> None:
    nodes = pool(cores=2, up=2)
    rooms = [room("a1", cores=1), room("a2", cores=1)]
    assert demand([job("7", avoid=A1)], rooms, [nodes]).used == {"a2"}
    found = demand([job("8"), job("7", avoid=frozenset({"a2"}))], rooms, [nodes])
    assert (found.used, found.start) == (frozenset({"a1", "a2"}), ())
    packing = Packing(rooms, [nodes])
    assert packing.holds([(Chunk(), [nodes])], Terms(avoid=A1))
    assert not packing.holds([(Chunk(), [nodes])], Terms(avoid=frozenset({"a1", "a2"})))
    wide = job("9", Chunk(count=6, spread=False), avoid=A1)
    found = demand([wide], rooms, [nodes])
    assert (found.start, found.short) == ((), {"a": ("9",)}), "5 cores are left for it"


@pytest.mark.parametrize(
    ("chunk", "avoid", "why"),
    [
        (Chunk(count=4), {"a1"}, "4 nodes at once, and there can be 3 without a1, which"),
        (Chunk(count=7, spread=False), {"a1"}, "and there can be 6 without a1, which it may"),
        (Chunk(), {"a1", "a2", "a3", "a4"}, "and there can be 0 without a[1-4], which it may not"),
    ],
)
def test_who_avoids_too_many_nodes_is_told(chunk: Chunk, avoid: set[str], why: str) -> None:
    """Of its own queues: that others have nodes does not help it."""
    other = pool("b", queues=["b"])
    found = demand([job("7", chunk, avoid=frozenset(avoid))], [], [SLIM, other])
    assert found.start == ()
    assert why in found.impossible["7"]


class Counted(frozenset[str]):
    """Nodes to be avoided, and how often it was asked for one."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        Counted.asked += 1
        return super().__contains__(name)


@pytest.mark.parametrize("kinds", [1, 1000], ids="{} lists".format)
def test_to_avoid_nodes_costs_jobs_about_one_question_each(kinds: int) -> None:
    lists = [Counted({f"a{n}"}) for n in range(1, kinds + 1)]
    waiting = [job(str(n), Chunk(cores=4), avoid=lists[n % kinds]) for n in range(5000)]
    nodes = pool(count=1000, cores=16, up=500)
    rooms = [room(f"a{n}", cores=16) for n in range(1, 501)]
    Counted.asked = 0
    assert len(demand(waiting, rooms, [nodes]).start) == 500
    assert Counted.asked <= 3 * 5000


def test_a_list_that_many_jobs_avoid_costs_them_nothing() -> None:
    """Though no two of them are alike, and the nodes on it come first."""
    half = Counted(f"a{n}" for n in range(1, 1001) if n % 500 < 250)
    waiting = [
        job(str(n), Chunk(cores=1 + n % 32, memory=(n * 37) % 60_000), avoid=half)
        for n in range(5000)
    ]
    nodes = pool(count=1000, cores=64, memory=256_000, up=500)
    rooms = [room(f"a{n}", cores=n % 64, memory=128_000) for n in range(1, 501)]
    Counted.asked = 0
    found = demand(waiting, rooms, [nodes])
    assert len(found.start) == 250
    assert half.isdisjoint((*found.start, *found.used))
    assert Counted.asked == 0


def test_nodes_that_were_taken_in_vain_start_in_their_order_again() -> None:
    """Whichever of them a job in between avoids."""
    nodes = pool(count=3, cores=1)
    packing, three = Packing([], [nodes]), Chunk(count=3)
    assert packing.place_whole([(three, [nodes])], Terms(avoid=frozenset({"a1"}))) == ()
    assert packing.place_whole([(three, [nodes])]) == ("a1", "a2", "a3")


def test_parts_that_may_share_a_node_take_what_those_with_a_node_of_their_own_leave() -> None:
    found = demand([job("1", Chunk(spread=False), Chunk(count=3))], [], [pool(count=3, cores=2)])
    assert found.start == ("a1", "a2", "a3")
    small, large = pool("a", 1, 1), pool("b", 2, 2)
    found = demand([job("1", Chunk(spread=False), Chunk(count=3))], [], [small, large])
    assert found.start == ("a1", "b1", "b2")
