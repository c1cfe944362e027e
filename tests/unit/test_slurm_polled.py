"""What is read of a Slurm that is watched: what a real one printed, and what one could print."""

import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from springtide.batch import polled_view
from springtide.batch.marks import Book, Course, Mark, Marks
from springtide.batch.polled import Polled
from springtide.batch.slurm_commands import Commands
from springtide.batch.slurm_polled import SlurmQueue
from springtide.batch.slurm_polled_excluded import parse_excluded
from springtide.batch.slurm_polled_features import Featured, parse_featured
from springtide.batch.slurm_polled_jobs import (
    DOWN,
    FIELDS,
    FORMAT,
    SEPARATOR,
    Site,
    counts,
    parse_jobs,
)
from springtide.batch.slurm_polled_nodes import UNTOLD, parse_known, shown
from springtide.batch.slurm_polled_talk import TODO_NODES
from springtide.batch.slurm_text import parse_time
from springtide.batch.unread import UnreadableError
from springtide.cli.client import Client
from springtide.cli.polled_slurm_checks import look_at_attach, look_at_slurm_conf
from springtide.cli.subject import Check, Subject, look
from springtide.demand import demand
from springtide.model import Kind, Node, NodeState
from springtide.nodeset import fold
from springtide.packing import Pool
from springtide.plans import JobFate, make_plan
from springtide.ports import (
    Chunk,
    Health,
    JobState,
    Member,
    QueueJob,
    QueueNode,
    Reading,
    Unavailable,
)
from springtide.spec import SpecError, parse
from tests.unit.test_polled import Facts

RECORDED = Path(__file__).parent.parent / "recorded"
OURS = frozenset({"ps1", "ps2", "ps3", "ps4"})
NOW = parse_time("2026-11-16T13:41:08") or 0.0
SITE = Site(OURS, NOW)
LONGEST_ARGUMENT = 131_072
"""The kernel's limit."""
ROW = dict.fromkeys(FIELDS, "N/A") | {
    "JobID": "7",
    "ArrayJobID": "7",
    "State": "PENDING",
    "UserName": "alice",
    "Partition": "cloud",
    "NumNodes": "1",
    "NumCPUs": "1",
    "NumTasks": "1",
    "cpus-per-task": "1",
    "ntpernode": "0",
    "MinMemory": "10M",
    "tres-alloc": "cpu=1,mem=10M,node=1,billing=1",
    "Feature": "(null)",
    "OverSubscribe": "OK",
    "ReqNodes": "",
    "Reason": "Resources",
    "Dependency": "(null)",
    "NodeList": "",
}


def line(**changed: str) -> str:
    row = ROW | {key.replace("_", "-"): value for key, value in changed.items()}
    return "".join(f"{row[field]}{SEPARATOR}" for field in FIELDS)


def one(**changed: str) -> QueueJob:
    (job,) = parse_jobs(line(**changed), SITE)
    return job


def recorded_jobs() -> dict[str, QueueJob]:
    text = (RECORDED / "slurm-22.05.8__squeue-polled.out").read_text()
    return {job.id: job for job in parse_jobs(text, SITE)}


# --- which jobs are demand -----------------------------------------------------------------------


@pytest.mark.accepts("N2", "B18")
def test_of_real_jobs_those_wait_that_more_nodes_would_help() -> None:
    states = {id: job.state for id, job in recorded_jobs().items()}
    held = {id for id, state in states.items() if state is JobState.HELD}
    running = {id for id, state in states.items() if state is JobState.RUNNING}
    assert held == {"6", "7", "8", "12"}, "held, dependent, for later, too large for its partition"
    assert running == {"1", "13"}
    assert len(states) == 14


@pytest.mark.accepts("N2")
def test_of_real_jobs_it_is_read_what_they_need() -> None:
    found = recorded_jobs()
    big, fast = frozenset({"big"}), frozenset({"fast"})
    assert {id: job.chunks for id, job in found.items() if job.state is JobState.WAITING} == {
        "2": (Chunk(1, 4, 400),),
        "3": (Chunk(2, 4, 400),),
        "4": (Chunk(2, 2, 700, exclusive=True),),
        "5": (Chunk(1, 3, 10, ways=(fast, big)),),
        "9": (Chunk(6, 1, 10, spread=False),),
        "10": (Chunk(1, 1, 500),),
        "11": (Chunk(1, 1, 10, fast), Chunk(1, 1, 10, big)),
        "14": (Chunk(1, 1, 900),),
    }
    assert (found["2"].tasks, found["10"].tasks) == (3, 26)
    assert found["5"].queues == ("cloud", "cloud_with_a_long_name")
    assert found["5"].names == ("ps2",)
    assert found["1"].nodes == ("ps1",)
    assert found["2"].since == parse_time("2026-11-16T13:41:03")


@pytest.mark.accepts("B18")
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("None", True),
        ("Priority", True),
        ("Resources", True),
        (DOWN, True),
        (f"({DOWN})", True),
        ("ReqNodeNotAvail, UnavailableNodes:ps[2-3]", True),
        ("ReqNodeNotAvail, UnavailableNodes:house[1-9],ps4", True),
        ("ReqNodeNotAvail, UnavailableNodes:house[1-9]", False),
        ("ReqNodeNotAvail, UnavailableNodes:", False),
        ("ReqNodeNotAvail, UnavailableNodes:house[1-9],ps[2", True),
        ("ReqNodeNotAvail, UnavailableNodes:house[1,3,5,", True),
        ("ReqNodeNotAvail, May be reserved for other job", False),
        ("ReqNodeNotAvail", False),
        ("JobHeldUser", False),
        ("JobHeldAdmin", False),
        ("Dependency", False),
        ("DependencyNeverSatisfied", False),
        ("BeginTime", False),
        ("Licenses", False),
        ("Reservation", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("AssocGrpCpuLimit", False),
        ("PartitionDown", False),
        ("PartitionNodeLimit", False),
        ("JobArrayTaskLimit", False),
        ("BadConstraints", False),
        ("launch failed requeued held", False),
        ("something new", False),
    ],
)
def test_only_reasons_that_nodes_help_with_count(reason: str, expected: bool) -> None:
    assert counts(reason, OURS) is expected
    state = JobState.WAITING if expected else JobState.HELD
    assert one(Reason=reason).state is state


def test_what_slurm_says_can_never_start_is_known_as_such() -> None:
    for reason in ("PartitionConfig", "(PartitionConfig)", "PartitionNodeLimit", "BadConstraints"):
        assert one(Reason=reason).never
    for reason in ("Resources", "JobHeldUser", "PartitionDown", "QOSMaxJobsPerUserLimit"):
        assert not one(Reason=reason).never
    assert not one(State="RUNNING", Reason="PartitionConfig", NodeList="ps1").never


@pytest.mark.accepts("B18")
def test_jobs_for_later_do_not_count_before_the_scheduler_has_looked_at_them() -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:ps[1-4]"
    assert one(Reason=reason).state is JobState.WAITING
    assert one(Reason=reason, Dependency="afterok:2(unfulfilled)").state is JobState.HELD
    assert one(Reason="None", EligibleTime="2026-11-16T13:41:09").state is JobState.HELD
    assert one(Reason="None", EligibleTime="2026-11-16T13:41:08").state is JobState.WAITING


@pytest.mark.parametrize("state", ["CONFIGURING", "COMPLETING", "SUSPENDED", "RUNNING", "STOPPED"])
def test_jobs_that_have_nodes_run_whatever_that_is_called(state: str) -> None:
    """rule 8"""
    job = one(State=state, NodeList="ps[1-2]", Reason="None")
    assert (job.state, job.nodes) == (JobState.RUNNING, ("ps1", "ps2"))


@pytest.mark.parametrize(("state", "fates"), [("COMPLETING", []), ("RUNNING", [JobFate.REQUEUED])])
def test_only_a_job_that_really_runs_is_said_to_start_again(
    state: str, fates: list[JobFate]
) -> None:
    spec = parse(SPEC.format(conf="/etc/slurm/slurm.conf"), "cluster.yaml")
    jobs = [polled_view.shown_job(one(State=state, NodeList="ps1", Reason="None"))]
    nodes = {"ps1": Node("ps1", "general", NodeState.READY)}
    for kind, now in ((Kind.SUSPEND, True), (Kind.STOP, True), (Kind.DESTROY, False)):
        plan = make_plan(kind, ["ps1"], spec, nodes, jobs, now=now)
        assert [fate for _, fate in plan.jobs] == fates


@pytest.mark.parametrize("state", ["SPECIAL_EXIT", "REQUEUE_HOLD"])
def test_jobs_that_were_put_back_and_held_are_held(state: str) -> None:
    assert one(State=state).state is JobState.HELD


def test_a_job_that_was_requeued_has_no_nodes_though_it_is_shown_with_those_it_had() -> None:
    job = one(NodeList="ps1")
    assert (job.state, job.nodes) == (JobState.WAITING, ())


# --- arrays --------------------------------------------------------------------------------------


@pytest.mark.accepts("N2")
@pytest.mark.parametrize(
    ("tasks", "expected"),
    [("1-5000", 5000), ("1-9:2", 5), ("1,3,5-7", 5), ("1-5000%7", 7), ("4", 1), ("N/A", 1)],
)
def test_tasks_of_arrays_are_counted(tasks: str, expected: int) -> None:
    assert one(ArrayTaskID=tasks).tasks == expected


def test_tasks_that_run_use_up_the_limit_of_an_array() -> None:
    run = [line(JobID=f"{n}", ArrayTaskID=f"{n}", State="RUNNING", NodeList="ps1") for n in (8, 9)]
    rest = line(ArrayTaskID="10-99%3")
    found = {job.id: job for job in parse_jobs("\n".join([rest, *run]), SITE)}
    assert set(found) == {"7", "7_8", "7_9"}
    assert (found["7"].state, found["7"].tasks) == (JobState.WAITING, 1)
    full = parse_jobs("\n".join([line(ArrayTaskID="10-99%2"), *run]), SITE)
    assert full[0].state is JobState.HELD


# --- sizes ---------------------------------------------------------------------------------------


def test_a_job_without_memory_has_its_node_alone_where_memory_is_given_out() -> None:
    asks = {"MinMemory": "0", "tres_alloc": "cpu=1,mem=1000M,node=1,billing=1"}
    assert one(**asks).chunks == (Chunk(exclusive=True),)
    (job,) = parse_jobs(line(**asks), Site(OURS, now=NOW, shares_memory=False))
    assert job.chunks == (Chunk(),)


def test_a_range_of_nodes_needs_its_least() -> None:
    asks = {"NumNodes": "3", "NumCPUs": "2", "NumTasks": "2"}
    job = one(**asks, tres_alloc="cpu=2,mem=20M,node=2,billing=2")
    assert job.chunks == (Chunk(2, 1, 10),)


def test_tasks_of_each_node_make_nodes() -> None:
    job = one(NumNodes="3", NumCPUs="3", NumTasks="3", ntpernode="1")
    assert job.chunks == (Chunk(3, 1, 10),)


def test_units_of_memory_are_known() -> None:
    assert one(MinMemory="2G", tres_alloc="cpu=1,mem=2G,node=1").chunks == (Chunk(memory=2048),)
    assert one(MinMemory="1.50G", tres_alloc="mem=1.50G,node=1").chunks == (Chunk(memory=1536),)


A, B, BIG = frozenset("a"), frozenset("b"), frozenset({"big"})
AC, BC = frozenset("ac"), frozenset("bc")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("big&fast", [Featured(4, frozenset({"big", "fast"}))]),
        ("a,c", [Featured(4, AC)]),
        ("a|b", [Featured(4, ways=(A, B))]),
        ("(a|b)&c", [Featured(4, ways=(AC, BC))]),
        ("c&(a|b)", [Featured(4, ways=(AC, BC))]),
        ("a|b&c", [Featured(4, ways=(AC, BC))]),  # as a real one of 22.05 reads it
        ("b&c|a", [Featured(4, ways=(BC, A))]),
        ("a|(b&c)", [Featured(4, ways=(A, BC))]),
        ("(a&c)|(b&c)", [Featured(4, ways=(AC, BC))]),
        ("[big]", [Featured(4, BIG)]),
        ("[a|b]", [Featured(4, ways=(A, B), alike=True)]),
        ("c&[a|b]", [Featured(4, ways=(AC, BC), alike=True)]),
        ("big|[a|b]", [Featured(4, ways=(BIG, A, B))]),
        ("a*3", [Featured(3, A), Featured(1)]),
        ("[a*1&b*3]", [Featured(1, A), Featured(3, B)]),
        ("[(a&c)*1&b*1]", [Featured(1, AC), Featured(1, B), Featured(2)]),
        ("(a|b)*2", [Featured(2, ways=(A, B)), Featured(2)]),
        ("c&a*1", [Featured(1, A), Featured(3)]),
        ("a*1|b*1", [Featured(4)]),
        ("a*b", [Featured(4)]),
        ("(a|b", [Featured(4)]),
        ("a&|b", [Featured(4)]),
        ("a)", [Featured(4)]),
        ("&".join(f"(a{n}|b{n})" for n in range(40)), [Featured(4)]),
    ],
)
def test_features_are_read_with_their_alternatives(asked: str, expected: list[Featured]) -> None:
    assert list(parse_featured(asked, 4)) == expected
    read = [
        Featured(chunk.count, chunk.features, chunk.ways, chunk.alike)
        for chunk in one(Feature=asked, NumNodes="4", NumCPUs="4", tres_alloc="node=4").chunks
    ]
    assert read == expected


def pool_of(group: str, *features: str, queues: str = "cloud", count: int = 1) -> Pool:
    names = tuple(f"{group}{number}" for number in range(1, count + 1))
    return Pool(group, names, 4, 4096, frozenset(features), frozenset({queues}), names, count)


def test_of_alternatives_that_is_taken_which_the_partition_has() -> None:
    waiting = [one(Feature="fast|slow", Partition="second")]
    pools = [pool_of("f", "fast", queues="first"), pool_of("s", "slow", queues="second")]
    found = demand(waiting, [], pools)
    assert (found.start, found.impossible) == (("s1",), {})


def test_of_alternatives_the_second_is_taken_when_the_first_is_exhausted() -> None:
    asks = {"Feature": "fast|slow", "NumCPUs": "4"}
    waiting = [one(JobID=id, ArrayJobID=id, **asks) for id in ("1", "2", "3")]
    found = demand(waiting, [], [pool_of("f", "fast"), pool_of("s", "slow", count=5)])
    assert found.start == ("f1", "s1", "s2")


def test_what_is_asked_for_besides_alternatives_counts() -> None:
    waiting = [one(Feature="(a|b)&c")]
    found = demand(waiting, [], [pool_of("a", "a"), pool_of("c", "c"), pool_of("bc", "b", "c")])
    assert found.start == ("bc1",)
    assert demand(waiting, [], [pool_of("a", "a"), pool_of("c", "c")]).impossible == {
        "7": "it can never start in cloud: no node there has (a and c) or (b and c); ask for less, "
        "or delete the job"
    }


def excluding(text: str, *lines: str) -> list[QueueJob]:
    site = replace(SITE, excluded=parse_excluded(text, OURS))
    return parse_jobs("\n".join(lines), site)


def test_nodes_that_jobs_exclude_are_avoided_if_they_are_ours() -> None:
    lists = {"7": "ps[1-2],house3", "8": "", "9": "house3", "10": "ps[1-2],house3"}
    said = "".join(f"{id}{SEPARATOR}{names}\n" for id, names in lists.items())
    rows = [line(JobID=id, ArrayJobID=id, ReqNodes="ps4") for id in lists]
    first, none, others, last = excluding(said, *rows)
    assert first.avoid == {"ps1", "ps2"}
    assert first.avoid is last.avoid, "one for all, or thousands of jobs take long"
    assert none.avoid == others.avoid == frozenset()
    assert {job.names for job in (first, none, others, last)} == {("ps4",)}
    with pytest.raises(UnreadableError):
        parse_excluded("slurm_load_jobs error", OURS)


def test_a_task_of_an_array_excludes_nodes_too() -> None:
    (task,) = excluding(f"12{SEPARATOR}ps1\n", line(JobID="12", ArrayJobID="7", ArrayTaskID="5"))
    assert (task.id, task.avoid) == ("7_5", frozenset({"ps1"}))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "no such thing",
        "7|x",
        line()[:-9],
        line(JobID="x"),
        line(NumCPUs="many"),
        line(ArrayTaskID="1-"),
    ],
)
def test_what_is_no_job_is_an_error_and_no_empty_queue(text: str) -> None:
    """rule 1"""
    with pytest.raises(UnreadableError):
        parse_jobs(text, SITE)


@pytest.mark.parametrize(
    "changed",
    [
        *({name: "9" * 5000} for name in ("NumNodes", "NumCPUs", "NumTasks", "ntpernode")),
        *({"MinMemory": size} for size in ("9" * 400, "1.2.3G", "....", "9" * 5000 + "T", "1e999")),
        *({"tres-alloc": f"mem={size},node={size}"} for size in ("9" * 400, "1.2.3G", "...")),
        *({"Feature": "(" * 3000}, {"Feature": "[(" * 49 + "a"}, {"Feature": "a" * 100_000}),
        *({"ReqNodes": "ps[1-"}, {"ReqNodes": "a[1-9999]b[1-9999]"}, {"ReqNodes": "9" * 5000}),
    ],
)
def test_whatever_an_owner_asks_for_the_jobs_of_others_are_read(changed: dict[str, str]) -> None:
    running = {"State": "RUNNING", "NodeList": "ps1", "Reason": "None"}
    rows = (changed, changed | running, {"JobID": "9"})
    odd, runs, plain = parse_jobs("\n".join(line(**row) for row in rows), SITE)
    assert odd.state in (JobState.WAITING, JobState.HELD)
    assert len(odd.reason) < 300
    assert (runs.state, runs.nodes, runs.reason) == (JobState.RUNNING, ("ps1",), "")
    assert (plain.state, plain.chunks) == (JobState.WAITING, (Chunk(1, 1, 10),))


@pytest.mark.parametrize(
    "tasks",
    ["[1-" + "9" * 5000 + "]", "[1-9%" + "9" * 5000 + "]", "[1-9%x]"],
    ids=["last", "limit", "word"],
)
def test_an_array_that_cannot_be_counted_is_held_alone(tasks: str) -> None:
    odd, plain = parse_jobs("\n".join((line(ArrayTaskID=tasks), line(JobID="9"))), SITE)
    assert odd.state is JobState.HELD
    assert odd.reason.startswith("springtide cannot read what it asks for: ")
    assert plain.state is JobState.WAITING


def test_nothing_is_cut() -> None:
    assert FORMAT.count(":0") == len(FIELDS)


# --- nodes ---------------------------------------------------------------------------------------


def test_real_nodes_are_told_apart() -> None:
    text = (RECORDED / "slurm-22.05.8__scontrol-nodes-polled.out").read_text()
    known = parse_known(text, "slurm", OURS)
    seen = shown(known, recorded_jobs().values())
    assert {name: node.health for name, node in seen.items()} == {
        "ps1": Health.UP,
        "ps2": Health.JOINING,
        "ps3": Health.ABSENT,
        "ps4": Health.ABSENT,
        "static1": Health.UP,
    }
    assert (seen["ps1"].drained, seen["ps1"].reason) == (True, "disk is broken")
    assert (seen["ps1"].jobs, seen["ps1"].cores_used) == (("1",), 2)
    assert seen["static1"].jobs == ("13",)
    assert known["ps1"].is_persons
    assert known["ps2"].moved, "slurmctld looks for it elsewhere"
    assert not any(seen[name].drained for name in ("ps2", "ps3", "ps4"))


def node(state: str, started: str = "None", more: str = "") -> str:
    return f"NodeName=ps1 NodeAddr=10.0.0.1 State={state} SlurmdStartTime={started} {more}\n"


OFF = "Reason=springtide: off [root@2026-11-16T13:00:00]"
AT = "Comment=springtide: at 10.0.0.1"
KEPT = "Comment=springtide: off"
SINCE = f"{AT} since 2026-11-16T12:59:00"
REBOOTED = "Reason=Node unexpectedly rebooted [slurm@2026-11-16T13:00:00]"
BY_HAND = "Reason=by hand [root@2026-11-16T13:00:00]"


@pytest.mark.parametrize(
    ("text", "health", "drained"),
    [
        (node("UNKNOWN"), Health.ABSENT, False),
        (node("DOWN+DRAIN", more=OFF), Health.ABSENT, False),
        (node("IDLE+DRAIN", "2026-11-16T13:00:01", OFF), Health.ABSENT, False),
        (node("DOWN+DRAIN", "2026-11-16T12:59:59", f"{OFF} {AT}"), Health.JOINING, False),
        (node("DOWN+DRAIN", "2026-11-16T13:00:01", f"{OFF} {AT}"), Health.UP, True),
        (node("IDLE+DRAIN", "2026-11-16T13:00:01", f"{OFF} {AT}"), Health.UP, True),
        (node("DOWN+DRAIN", "2026-11-16T13:00:01", f"{BY_HAND} {AT}"), Health.UP, True),
        (node("DOWN", "2026-11-16T13:00:01", f"{BY_HAND} {AT}"), Health.UP, True),
        (node("DOWN+DRAIN", "2026-11-16T12:59:59", f"{BY_HAND} {AT}"), Health.DOWN, True),
        (node("DOWN+DRAIN", "2026-11-16T12:59:59", f"{BY_HAND} {SINCE}"), Health.UP, True),
        (node("DOWN", "2026-11-16T12:59:59", f"{BY_HAND} {SINCE}"), Health.UP, True),
        (node("DOWN", "2026-11-16T12:58:59", f"{BY_HAND} {SINCE}"), Health.DOWN, False),
        (node("DOWN", "2026-11-16T12:59:59", f"{BY_HAND} {AT}"), Health.DOWN, False),
        (node("DOWN", "2026-11-16T12:59:59", f"{REBOOTED} {AT}"), Health.UP, True),
        (node("DOWN+NOT_RESPONDING", more=f"{REBOOTED} {AT}"), Health.DOWN, False),
        (node("IDLE", "2026-11-16T13:00:01", AT), Health.UP, False),
        (node("IDLE", more=AT), Health.UP, False),
        (node("IDLE+NOT_RESPONDING", more=AT), Health.DOWN, False),
        (
            node("DOWN", more=f"Reason=Not responding [slurm@2026-11-16T13:00:00] {AT}"),
            Health.DOWN,
            False,
        ),
    ],
)
def test_a_node_is_as_slurmctld_and_our_marks_say(text: str, health: Health, drained: bool) -> None:
    seen = shown(parse_known(text, "slurm", OURS), ())["ps1"]
    assert (seen.health, seen.drained) == (health, drained)


def test_the_state_of_a_node_is_said_once() -> None:
    text = node("IDLE+PLANNED", "2026-11-16T13:00:01", AT)
    reading = Reading(shown(parse_known(text, "slurm", OURS), ()))
    marks = Marks({"ps1": Mark(Course.UP, 0.0, "10.0.0.1")})
    seen = polled_view.shown("ps1", reading, marks, silent=False)
    assert (seen.state, seen.flags) == ("IDLE", frozenset({"PLANNED"}))


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        (node("IDLE", "2026-11-16T13:00:01"), True),
        (node("MIXED+DRAIN", "2026-11-16T13:00:01", BY_HAND), True),
        (node("IDLE", "2026-11-16T13:00:01", AT), False),
        (node("IDLE+DRAIN", "2026-11-16T13:00:01", OFF), False),
        (node("IDLE"), False),
        (node("IDLE+NOT_RESPONDING", "2026-11-16T13:00:01"), False),
        (node("DOWN", "2026-11-16T13:00:01"), False),
    ],
)
def test_a_node_that_serves_without_us_is_not_ours(text: str, foreign: bool) -> None:
    assert parse_known(text, "slurm", OURS)["ps1"].is_foreign == foreign


PLAIN = "NodeName=ps1 NodeAddr=ps1 State=UNKNOWN SlurmdStartTime=None Partitions={}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN.format("cloud"), ""),
        (PLAIN.format("old"), "ps1 is not in partition cloud of Slurm; add it to the Nodes= of"),
        (node("IDLE", "2026-11-16T13:00:01", "Partitions=cloud"), "ps1 serve in Slurm already"),
    ],
)
async def test_wrong_partitions_and_nodes_of_others_are_refused_and_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    told: list[object] = []
    queue = SlurmQueue(Commands(Path("/none"), ""), OURS)
    known = partial(parse_known, text, "slurm", OURS)
    monkeypatch.setattr(queue, "_known", known)
    monkeypatch.setattr(queue, "_jobs", list)
    monkeypatch.setattr(queue, "_update", lambda names, *words: told.extend(names))
    member = Member("ps1", "", 1, 100, (), ("cloud",))
    if not said:
        await queue.require([member])
        await queue.prepare([member])
        assert told
        return
    for act in (queue.require, queue.prepare):
        with pytest.raises(Unavailable, match=said):
            await act([member])
    if "serve" in said:
        await queue.dismantle(["ps1"])
    assert told == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (node("UNKNOWN"), True),
        (node("IDLE+NOT_RESPONDING", "2026-11-16T13:00:01", KEPT), True),
        (node("IDLE", "2026-11-16T13:00:01", KEPT), True),
        (node("IDLE"), True),
        (node("ALLOCATED", "2026-11-16T13:00:01", KEPT), False),
        (node("DOWN+DRAIN", more=f"{OFF} {KEPT}"), False),
        (node("IDLE", "2026-11-16T13:00:01", AT), False),
    ],
)
def test_what_neither_is_off_nor_joined_is_to_be_put_down(text: str, expected: bool) -> None:
    assert parse_known(text, "slurm", OURS)["ps1"].is_loose == expected


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What scontrol update was called with."""
    said: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        SlurmQueue, "_update", lambda self, names, *words: said.append((fold(names), *words))
    )
    return said


async def test_a_node_that_serves_does_not_know_any_more_since_when_it_was_off(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[str, ...]]
) -> None:
    """Or it would seem to be there when somebody puts it down a day later."""
    queue = SlurmQueue(Commands(Path("/none"), ""), OURS)
    text = node("DOWN+DRAIN", "2026-11-16T13:00:01", f"{OFF} {SINCE}; rack 7")
    monkeypatch.setattr(queue, "_known", partial(parse_known, text, "slurm", OURS))
    await queue.undrain(["ps1"])
    assert ("ps1", "state=idle") in told
    assert told[-1] == ("ps1", "comment=springtide: at 10.0.0.1; rack 7")


async def test_a_node_that_serves_others_by_the_time_it_has_joined_is_told(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[str, ...]]
) -> None:
    """Without our comment it would never be seen to be there."""
    queue = SlurmQueue(Commands(Path("/none"), ""), OURS)
    texts = [node("DOWN+DRAIN", more=OFF), node("IDLE", "2026-11-16T13:00:01")]
    monkeypatch.setattr(
        queue,
        "_known",
        lambda: parse_known(texts[any("nodeaddr" in one[1] for one in told)], "slurm", OURS),
    )
    monkeypatch.setattr(queue, "_jobs", list)
    with pytest.raises(Unavailable, match="ps1 serve in Slurm already and are not ours"):
        await queue.join([Member("ps1", "10.0.0.1", 1, 100)])


def test_the_comment_of_somebody_else_ends_where_slurm_goes_on() -> None:
    text = node("IDLE", more="Comment=rack 7 ReservationName=maint")
    assert parse_known(text, "slurm", OURS)["ps1"].remark == "rack 7"


def test_a_reason_with_an_odd_character_hides_no_node() -> None:
    text = node("DOWN+DRAIN", more="Reason=disk\rbroken [root@2026-11-16T12:00:00]")
    known = parse_known(text, "slurm", OURS)["ps1"]
    assert known.is_persons
    assert known.reason_at == parse_time("2026-11-16T12:00:00")


def test_a_node_that_is_busy_has_a_job_though_none_was_told_of() -> None:
    seen = shown(parse_known(node("ALLOCATED", more=AT), "slurm", OURS), ())["ps1"]
    assert seen.jobs == (UNTOLD,)


def test_no_nodes_at_all_are_an_error() -> None:
    """rule 1"""
    with pytest.raises(UnreadableError):
        parse_known("", "slurm", OURS)


# --- what jobs are told --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("Requested partition configuration not available now for job 6", False),
        ("Invalid job id specified for job 6", False),
        ("Access/permission denied for job 6", True),
    ],
)
async def test_a_job_that_is_too_large_for_its_partition_is_told_though_slurm_complains(
    monkeypatch: pytest.MonkeyPatch, said: str, refused: bool
) -> None:
    """Slurm 22.05 notes the words, and answers all the same that the job cannot start."""
    done = subprocess.CompletedProcess(["scontrol"], 1, "", f"{said}\n")
    monkeypatch.setattr(Commands, "run", lambda self, command: done)
    queue = SlurmQueue(Commands(Path("/none"), ""), OURS)
    with pytest.raises(Unavailable, match=said) if refused else nullcontext():
        await queue.tell(["6"], "it can never start")


async def test_more_jobs_than_a_command_takes_are_requeued_all_the_same(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[str, ...]]
) -> None:
    """When a cluster stops, all that runs on it waits again."""
    jobs = [str(10_000_000 + number) for number in range(30_000)]
    node = QueueNode("ps1", Health.UP, drained=True, reason="springtide: stops", jobs=tuple(jobs))
    ran: list[Sequence[str]] = []
    queue = SlurmQueue(Commands(Path("/none"), ""), OURS)
    monkeypatch.setattr(queue, "_look", lambda names: ([], {"ps1": node}))
    monkeypatch.setattr(queue, "_ending", frozenset)
    monkeypatch.setattr(queue, "_forgiving", lambda *words: ran.append(words))
    await queue.requeue(jobs)
    assert max(len(word) for words in ran for word in words) < LONGEST_ARGUMENT
    queued = [words[1] for words in ran if words[0] == "requeue"]
    freed = [words[1].removeprefix("jobid=") for words in ran if words[-1] == "starttime=now"]
    assert [job for some in queued for job in some.split(",")] == jobs
    assert [job for some in freed for job in some.split(",")] == jobs
    assert [words[:2] for words in told] == [("ps1", "state=down")]


async def test_its_version_is_a_number_as_that_of_any_slurm_to_which_those_of_nodes_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = (RECORDED / "slurm-22.05.8__scontrol-show-config_plain.out").read_text()
    done = subprocess.CompletedProcess(["scontrol"], 0, said, "")
    monkeypatch.setattr(Commands, "run", lambda self, command, conf: done)
    queue = SlurmQueue(Commands(Path("/none"), ""), OURS)
    assert await Polled(queue, {}, Book(Facts()), time.monotonic).version() == "22.05.8"


# --- the cluster file, and slurm.conf ------------------------------------------------------------


SPEC = """
cluster: ps
batch: {{attach: {conf}, polling: {{}}}}
groups: {{general: {{nodes: "ps[1-4]"}}}}
partitions: {{cloud: {{groups: [general]}}}}
"""


def test_polling_without_a_slurm_to_poll_is_refused() -> None:
    text = SPEC.format(conf="/etc/slurm.conf").replace("attach: /etc/slurm.conf, ", "")
    with pytest.raises(SpecError, match=r"name its slurm.conf with batch.attach"):
        parse(text, "cluster.yaml")


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("NodeName=ps[1-4]\nPartitionName=cloud Nodes=ps[1-4]", "has our nodes and partitions"),
        ("NodeName=ps[1-3]\nPartitionName=cloud Nodes=ALL", f"has no ps4; {TODO_NODES}"),
        ("NodeName=ps[1-4]\nPartitionName=other Nodes=ALL", "has no partition cloud"),
        ("NodeName=ps[1-4]\nPartitionName=cloud Nodes=ps[1-2]", "does not have nodes ps[3-4]"),
        ("NodeName=ps[1-4] State=CLOUD\nPartitionName=cloud Nodes=ALL", "ps[1-4] have State=CLOUD"),
        ("NodeName=ps[1-4]\nPartitionName=cloud Nodes=ALL\nSlurmdTimeout=0", "SlurmdTimeout is 0"),
        (
            "NodeName=ps[1-4]\nPartitionName=cloud Nodes=ALL\nPartitionName=old Nodes=ps[1-2]",
            "partition old, which is not ours, has ps[1-2] too",
        ),
        ("include gone.conf", "gone.conf cannot be read"),
        (
            "NodeName=ps[1-4]\nNodeName=static1\nPartitionName=cloud Nodes=static1",
            "does not have nodes ps[1-4]",
        ),
        (
            "NodeName=ps[1-4]\nNodeSet=pool Nodes=ps[1-4]\nPartitionName=cloud Nodes=pool",
            "has our nodes and partitions",
        ),
        (
            "NodeName=DEFAULT State=CLOUD\nNodeName=ps[1-4]\nPartitionName=cloud Nodes=ALL",
            "ps[1-4] have State=CLOUD",
        ),
        (
            "NodeName=ps[1-4] CPUs=4\nPartitionName=cloud Nodes=ALL",
            "line 1: ps[1-4] have CPUs=4, but 1 CPUs in group general",
        ),
        (
            "NodeName=DEFAULT Sockets=2 CoresPerSocket=4\nNodeName=ps[1-4]\n"
            "PartitionName=cloud Nodes=ALL",
            "line 2: ps[1-4] have CPUs=8, but 1 CPUs in group general",
        ),
        (
            "NodeName=ps[1-4] Boards=2 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2\n"
            "PartitionName=cloud Nodes=ALL",
            "line 1: ps[1-4] have CPUs=32, but 1 CPUs in group general",
        ),
        (
            "NodeName=ps[1-4] Boards=2 Sockets=4 CoresPerSocket=4\nPartitionName=cloud Nodes=ALL",
            "line 1: ps[1-4] have CPUs=16, but 1 CPUs in group general",
        ),
        ("NodeName=ps[1-4] Procs=4\nPartitionName=cloud Nodes=ALL", "ps[1-4] have CPUs=4, but 1"),
        (
            "NodeName=ps[1-4] RealMemory=100\nPartitionName=cloud Nodes=ALL",
            "line 1: ps[1-4] have RealMemory=100, but 256 MiB in group general",
        ),
        (
            "NodeName=DEFAULT State=CLOUD\nNodeName=ps[1-4] State=UNKNOWN\n"
            "PartitionName=cloud Nodes=ALL",
            "has our nodes and partitions",
        ),
    ],
)
def test_slurm_conf_is_checked(tmp_path: Path, conf: str, said: str) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(f"{conf}\n")
    spec = parse(SPEC.format(conf=path), "cluster.yaml")
    (check,) = look([look_at_attach, look_at_slurm_conf], Subject(spec, Client(tmp_path), None))
    assert said in f"{check.text}; {check.todo}"
    assert (check.ok is True) is (not check.todo)


def test_slurmd_of_nodes_in_a_cloud_must_be_handed_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    nodes = "NodeName=ps[1-4]\nPartitionName=cloud Nodes=ALL\n"
    away = "provider: {kind: command, create: [on], delete: [off], list: [list]}\n"
    spec = parse(f"{SPEC.format(conf=path)}{away}", "cluster.yaml")

    def check(settings: str) -> Check:
        path.write_text(settings + nodes)
        (found,) = look([look_at_slurm_conf], Subject(spec, Client(tmp_path), None))
        return found

    assert check("").ok is False
    assert "write `SlurmctldParameters=enable_configless` there" in check("").todo
    more = check("SlurmctldParameters=cloud_dns\n")
    assert "write `SlurmctldParameters=cloud_dns,enable_configless` there" in more.todo
    right = "SlurmctldParameters=cloud_dns,enable_configless\n"
    assert check(right).ok
    assert check(f"{right}SlurmctldHost={socket.gethostname()}(10.0.0.1)\n").ok
    there = check(f"{right}SlurmctldHost=elsewhere(10.0.0.1)\n")
    assert (there.ok, there.todo.startswith("run Springtide there")) == (None, True)
    (tmp_path / "more.conf").write_text("TreeWidth=9\n")
    assert check(f"{right}include more.conf\n").ok
    apart = check(f"{right}include {tmp_path}/more.conf\n")
    assert apart.ok is False
    assert "slurmctld does not hand that out" in apart.text
    assert apart.todo == f"put it beside {path}, and write `include more.conf`"
