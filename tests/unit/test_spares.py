"""Which nodes of jobs that cannot start are kept for others: tables, and what holds for all."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.nodeset import expand
from springtide.ports import Job
from springtide.spares import (
    Groups,
    Waiting,
    decide_spares,
    explain,
    incomplete,
    owned,
    starting,
    waiting,
)

A, B, AB = Groups({"a"}), Groups({"b"}), Groups({"a", "b"})


def spare(a: int = 0, b: int = 0) -> dict[str, str]:
    return {f"a{i}": "a" for i in range(a)} | {f"b{i}": "b" for i in range(b)}


def jobs(*wanted: tuple[int, Groups]) -> list[Waiting]:
    return [Waiting(str(id), size, groups) for id, (size, groups) in enumerate(wanted, 1)]


def job(id: str, state: str) -> Job:
    return Job(id, state)


def test_the_nodes_that_a_job_has_now_count_more_than_what_was_told() -> None:
    """Slurm 22.05 tells only those that it asks for; a job may have got others since."""
    told = {"1": ["c1", "c2"], "2": ["c3", "c4"], "3": ["c5", "c6"]}
    held = {"1": ["c1", "c2", "c9"], "2": ["c7"], "4": ["c10", "c11"], "5": ["c12"]}
    jobs = [job(id, "CONFIGURING") for id in held]
    found = starting(told, jobs, held)
    assert found == {"1": ["c1", "c2", "c9"], "3": ["c5", "c6"], "4": ["c10", "c11"]}


@pytest.mark.parametrize(("state", "still"), [("PENDING", {}), ("COMPLETING", {"1": ["c1"]})])
def test_a_job_on_its_way_back_to_the_queue_had_what_was_told(
    state: str, still: dict[str, list[str]]
) -> None:
    told = {"1": ["c1", "c2"]}
    assert starting(told, [job("1", state)], still) == told


def test_a_job_that_runs_lacks_nothing() -> None:
    told = {"1": ["c1", "c2"]}
    assert starting(told, [job("1", "RUNNING")], told) == {}


def test_jobs_that_lack_nodes_are_those_of_which_one_fell_out() -> None:
    wide = {"7": expand("c[1-4]"), "8": expand("c[5-6]"), "9": expand("c[3,7]")}
    assert incomplete(wide, {"c3": "full", "c9": "full"}) == {"7": ["c3"], "9": ["c3"]}
    assert incomplete(wide, {}) == {}


def test_only_nodes_of_one_job_that_cannot_start_are_spare() -> None:
    wide = {"7": ["c1", "c2", "c3", "c4"], "8": ["c4", "c5"], "9": ["c6", "c7"]}
    assert owned(wide, {"7": ["c1"]}, taken=["c2", "c9"]) == {"c1": "7", "c3": "7"}
    shared = owned(wide, {"7": ["c1"], "8": ["c5"]}, taken=())
    assert "c4" not in shared, "two jobs have it"


@pytest.mark.parametrize(
    ("a", "b", "queue", "kept"),
    [
        (3, 0, [], ""),
        (3, 0, [(4, A)], ""),
        (3, 0, [(3, A)], "a[0-2]"),
        (3, 0, [(4, A), (2, A)], "a[0-1]"),
        (3, 0, [(2, A), (2, A)], "a[0-1]"),
        (3, 0, [(2, A), (2, A), (1, A)], "a[0-2]"),
        (3, 0, [(1, B)], ""),
        (2, 2, [(3, AB)], "a[0-1],b0"),
        (2, 2, [(3, A), (1, B)], "b0"),
        (2, 0, [(0, A)], ""),
    ],
    ids=lambda value: str(value) if isinstance(value, int | str) else None,
)
def test_as_many_stay_as_the_jobs_that_wait_could_use(
    a: int, b: int, queue: list[tuple[int, Groups]], kept: str
) -> None:
    decided = decide_spares(spare(a, b), jobs(*queue), whole=AB)
    assert list(decided.kept) == (expand(kept) if kept else [])
    assert set(decided.kept) | set(decided.dropped) == spare(a, b).keys()


def test_a_group_that_starts_any_keeps_all_and_jobs_use_these_first() -> None:
    decided = decide_spares(spare(2, 2), jobs((2, AB)), whole=A)
    assert decided.kept == ("b0", "b1")
    assert decide_spares(spare(2, 2), [], whole=()).dropped == ()


def test_nodes_that_are_safe_stay_and_jobs_use_them_first() -> None:
    decided = decide_spares(spare(3), jobs((2, A)), whole=A, safe={"a2"})
    assert decided.kept == ("a0", "a2")


# --- jobs that wait ----------------------------------------------------------------------


def pending(id: str, reason: str, partition: str = "main", size: int = 1) -> Job:
    return Job(id, "PENDING", partition=partition, node_count=size, reason=reason)


def counted(*listed: Job, lacking: dict[str, Groups] | None = None) -> list[str]:
    places = {"": AB, "main": A, "other": B}
    return [job.id for job in waiting(listed, lacking or {}, places)]


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "Resources",
        "Priority",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority queues",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_queues",
    ],
)
def test_a_job_counts_that_waits_for_nodes_alone(reason: str) -> None:
    assert counted(pending("1", reason)) == ["1"]


@pytest.mark.parametrize(
    "reason",
    [
        "JobHeldUser",
        "JobHeldAdmin",
        "Dependency",
        "BeginTime",
        "AssocGrpCpuLimit",
        "Licenses",
        "PartitionDown",
        "ReqNodeNotAvail, UnavailableNodes:c3",
    ],
)
def test_a_job_does_not_count_that_waits_for_something_else(reason: str) -> None:
    assert counted(pending("1", reason)) == []


def test_the_job_that_cannot_start_counts_though_it_may_begin_only_in_a_moment() -> None:
    still = Job("7", "CONFIGURING", partition="main", nodes="c[1-4]", node_count=4)
    running = Job("8", "RUNNING", partition="main", nodes="c5", node_count=1)
    starting = Job("9", "CONFIGURING", partition="main", nodes="c6", node_count=1)
    assert counted(still, running, starting, lacking={"7": A}) == ["7"]
    assert counted(pending("7", "BeginTime"), pending("8", "BeginTime"), lacking={"7": A}) == ["7"]
    assert counted(pending("7", "JobHeldAdmin"), lacking={"7": A}) == []


def test_jobs_may_have_nodes_of_all_groups_of_their_partitions() -> None:
    listed = [pending(str(n), "", part) for n, part in enumerate(["", "main", "other,main", "x"])]
    found = waiting(listed, {}, {"": AB, "main": A, "other": B})
    assert [job.groups for job in found] == [AB, A, AB, Groups()]


def test_a_partition_that_is_not_in_the_file_has_what_its_jobs_got() -> None:
    listed = [pending("6", "", "theirs"), pending("7", "BeginTime", "theirs")]
    found = waiting(listed, {"7": B}, {"main": A})
    assert [job.groups for job in found] == [B, B]


# --- words -------------------------------------------------------------------------------


def test_a_spare_node_says_whose_it_was_and_what_is_missing() -> None:
    fallen = {"c3": "the provider is full: no small left"}
    assert explain("7", ["c3"], fallen) == (
        "spare: job 7 lacks c3 (the provider is full: no small left) and cannot start"
    )


def test_a_long_list_of_missing_nodes_is_cut_short() -> None:
    missing = [f"c{n}" for n in range(1, 200, 2)]
    said = explain("7", missing, {"c1": "refused"})
    assert said == "spare: job 7 lacks c1 and 99 others (refused) and cannot start"


# --- what holds for all ------------------------------------------------------------------

GROUPS = st.frozensets(st.sampled_from("abc"))
SPARES = st.dictionaries(st.integers(0, 40).map("n{}".format), st.sampled_from("abc"))
QUEUE = st.lists(st.builds(Waiting, st.just("1"), st.integers(0, 8), GROUPS), max_size=8)


@given(SPARES, QUEUE, GROUPS, st.frozensets(st.integers(0, 40).map("n{}".format)))
def test_every_spare_is_kept_or_given_up_and_only_those_that_may_be(
    nodes: dict[str, str], queue: list[Waiting], whole: Groups, safe: frozenset[str]
) -> None:
    decided = decide_spares(nodes, queue, whole, safe)
    assert sorted((*decided.kept, *decided.dropped)) == sorted(nodes)
    assert all(nodes[name] in whole and name not in safe for name in decided.dropped)


@given(SPARES, QUEUE, GROUPS)
def test_what_is_kept_is_enough_for_the_first_job_that_fits(
    nodes: dict[str, str], queue: list[Waiting], whole: Groups
) -> None:
    decided = decide_spares(nodes, queue, whole)

    def usable(names: tuple[str, ...], job: Waiting) -> int:
        return sum(nodes[name] in job.groups for name in names)

    first = next((job for job in queue if 0 < job.size <= usable(tuple(nodes), job)), None)
    if first is not None:
        assert usable(decided.kept, first) >= first.size
    elif whole >= set(nodes.values()):
        assert decided.kept == (), "nobody could use them"


@given(SPARES, QUEUE)
def test_no_more_is_kept_than_the_jobs_could_use_together(
    nodes: dict[str, str], queue: list[Waiting]
) -> None:
    decided = decide_spares(nodes, queue, Groups("abc"))
    assert len(decided.kept) <= sum(job.size for job in queue)


NAMES = st.integers(0, 30).map("n{}".format)
WIDE = st.dictionaries(
    st.integers(1, 9).map(str), st.lists(NAMES, min_size=2, max_size=8, unique=True)
)


@given(WIDE, st.frozensets(NAMES), st.frozensets(NAMES))
def test_no_node_of_a_complete_job_or_of_several_jobs_is_ever_spare(
    wide: dict[str, list[str]], fallen: frozenset[str], taken: frozenset[str]
) -> None:
    lacking = incomplete(wide, fallen)
    found = owned(wide, lacking, taken)
    complete = {name for job, names in wide.items() if job not in lacking for name in names}
    assert found.keys().isdisjoint(complete | taken)
    for name, job in found.items():
        assert [id for id, names in wide.items() if name in names] == [job]


def test_ten_thousand_spares_and_a_hundred_thousand_jobs_take_a_moment() -> None:
    nodes = {f"n{i}": "ab"[i % 2] for i in range(10_000)}
    queue = [Waiting(str(i), 1 + i % 4, A if i % 3 else AB) for i in range(100_000)]
    began = time.process_time()
    decided = decide_spares(nodes, [Waiting("0", 10_001, AB), *queue], AB)
    assert decided.dropped == ()
    assert time.process_time() - began < 2
