"""Jobs of polled batch systems: by which ids they are found, and what they are told to wait for."""

from dataclasses import replace

import pytest

from springtide.cli.endings import Complaint
from springtide.cli.why import _one
from springtide.model import Kind, Node, NodeState, Operation, OperationState
from springtide.ports import Job
from springtide.story import (
    JOB,
    POLLED_JOB,
    Held,
    JobCase,
    Short,
    Wait,
    is_for,
    job_story,
    jobs_of,
    known_as,
)

NOON = 1735732800.0
IDS = ["17", "17.3", "17_3", "12.server", "12.head.example.org", "12[].server", "12[3].server"]
STRANGE = ["", "c3", "c[1-2]", "12[1-3].server", "12[.server", "12.ser ver", "12.s/../x", "1" * 19]
WAITING = Job("12.server", "PENDING", partition="cloud")
CLOSED = "the cluster is stopped; run `tide start`"


@pytest.mark.parametrize("id", IDS)
def test_ids_as_batch_systems_write_them_are_jobs(id: str) -> None:
    assert POLLED_JOB.fullmatch(id)
    assert _one(id) == id


@pytest.mark.parametrize("text", STRANGE)
def test_other_texts_are_no_jobs(text: str) -> None:
    assert not POLLED_JOB.fullmatch(text)


def test_slurm_that_asks_for_nodes_has_numbers_alone() -> None:
    assert [id for id in IDS if JOB.fullmatch(id)] == ["17", "17_3"]


def test_several_nodes_are_still_refused_and_one_is_taken_out_of_its_list() -> None:
    assert _one("c[3]") == "c3"
    with pytest.raises(Complaint, match="name one job or one node"):
        _one("c[1-2]")


@pytest.mark.parametrize("id", IDS)
def test_the_operation_that_was_asked_for_a_job_is_found_by_its_id(id: str) -> None:
    reason = f"resume by the batch system, for jobs {id},99.server"
    asked = Operation(5, Kind.RESUME, ("c1",), asked_by="batch", reason=reason)
    assert jobs_of(asked) == (id, "99.server")
    assert is_for(asked, id)
    assert not is_for(asked, "1")


@pytest.mark.parametrize("reason", ["mend it, for jobs tomorrow", "for jobs", "x, for jobs 1;2"])
def test_what_people_write_names_no_jobs(reason: str) -> None:
    assert jobs_of(Operation(5, Kind.RESUME, ("c1",), asked_by="alice", reason=reason)) == ()


@pytest.mark.parametrize(
    ("asked", "known", "found"),
    [
        ("12.server", ["12.server"], "12.server"),
        ("12", ["112.server", "12.server"], "12.server"),
        ("12[3].server", ["12[].server"], "12[].server"),
        ("12[3].server", ["12[].server", "12[3].server"], "12[3].server"),
        ("12[3]", ["12[].server"], "12[].server"),
        ("12[]", ["12[].server", "12[3].server"], "12[].server"),
        ("7.3", ["7"], "7"),
        ("7.3", ["7", "7.3"], "7.3"),
        ("7", ["7.1", "7.2"], "7"),
        ("17_3", ["17"], "17"),
        ("12", ["12.east", "12.west"], "12"),
        ("12", [], "12"),
    ],
)
def test_people_may_leave_the_server_away_and_ask_for_a_task(
    asked: str, known: list[str], found: str
) -> None:
    assert known_as(asked, known) == found


STORIES: dict[str, tuple[JobCase, str, str, str]] = {
    "not looked at yet": (
        JobCase("12.server", WAITING, wait=Wait(10, seen=False)),
        "job 12.server waits: Springtide has not looked at it yet.",
        "Springtide looks within 10 s (polling.every), and starts what it needs.",
        "",
    ),
    "held": (
        JobCase("12.server", replace(WAITING, reason="hqw"), wait=Wait(10, held=True)),
        "job 12.server is held (Slurm: hqw).",
        "no node is started for it before it is released, or what it waits for has come.",
        "`scontrol show job 12.server` tells more",
    ),
    "held, as Slurm says it": (
        JobCase("12", Job("12", "PENDING", reason="JobHeldUser"), wait=Wait(10, held=True)),
        "job 12 is held: its owner holds it (Slurm: JobHeldUser).",
        "no node is started for it before it is released, or what it waits for has come.",
        "`scontrol show job 12` tells more",
    ),
    "impossible": (
        JobCase("12.server", WAITING, wait=Wait(10, impossible="it can never start: too large")),
        "job 12.server waits in vain: it can never start: too large.",
        "never.",
        "`scancel 12.server`",
    ),
    "impossible, as Slurm says itself": (
        JobCase(
            "6",
            Job("6", "PENDING", reason="PartitionConfig"),
            wait=Wait(10, held=True, impossible="it asks for 9 nodes, and there can be 4"),
        ),
        "job 6 waits in vain: it asks for 9 nodes, and there can be 4.",
        "never.",
        "`scancel 6`",
    ),
    "not ours": (
        JobCase("12.server", WAITING, wait=Wait(10, strange="old has no nodes of Springtide")),
        "job 12.server waits: old has no nodes of Springtide.",
        "nothing by Springtide: that is Slurm's to decide.",
        "`scontrol show job 12.server` tells more",
    ),
    "exhausted": (
        JobCase("12.server", WAITING, groups=["big"], wait=Wait(10, short={"big": Short(4, 4)})),
        "job 12.server waits: group big has too few left for it of its 4 nodes.",
        "Slurm starts it when other jobs have ended.",
        "more names in groups.big.nodes, and `tide apply`, make room for more nodes",
    ),
    "patience": (
        JobCase("12.server", WAITING, wait=Wait(10, patience_s=90)),
        "job 12.server waits: it may yet find room on nodes that are there.",
        "Springtide starts nodes for it if it still waits in 90 s (polling.patience).",
        "",
    ),
    "held back": (
        JobCase(
            "12.server",
            WAITING,
            groups=["big"],
            held={"big": Held("no capacity", NOON + 60)},
            wait=Wait(10, held_back=["big"]),
        ),
        "job 12.server waits: no more nodes of big are started now.",
        "group big is held until 12:01:00 UTC: no capacity; then one node is tried.",
        "when the cause is gone, `tide holds --lift big` has one node tried at once",
    ),
    "room": (
        JobCase("12.server", WAITING, wait=Wait(10)),
        "job 12.server waits: Springtide has nothing more to start for it.",
        "Slurm starts it where there is room, when it looks for jobs next.",
        "`scontrol show job 12.server` tells more",
    ),
    "stopped": (
        JobCase("12.server", WAITING, closed=CLOSED, wait=Wait(10, impossible="too large")),
        "job 12.server waits: Springtide has nothing more to start for it; nothing is started: "
        f"{CLOSED}.",
        "nothing until then.",
        "",
    ),
    "its nodes start": (
        JobCase(
            "12.server",
            WAITING,
            nodes=[Node("c1", "big", NodeState.BOOTING, 1, changed_at=NOON - 5)],
            operations=[
                Operation(
                    5,
                    Kind.RESUME,
                    ("c1",),
                    OperationState.RUNNING,
                    asked_by="batch",
                    reason="resume by the batch system, for jobs 12.server",
                    created_at=NOON - 10,
                    started_at=NOON - 10,
                )
            ],
            groups=["big"],
            wait=Wait(10, starting=["c1"]),
        ),
        "job 12.server waits: c1 must start first; operation 5 (resume by Slurm for job 12.server) "
        "is at work since 11:59:50 UTC (10 s ago), at `create instances`.",
        "it runs as soon as they are in service; nodes that are not by 12:09:50 UTC (timing.start) "
        "are removed, and it waits again.",
        "`tide why c1` tells more",
    ),
}
"""As they are written; `voice` has them speak of the batch system that is there."""


@pytest.mark.accepts("X5")
@pytest.mark.parametrize("case", STORIES)
def test_a_job_of_a_polled_batch_system_tells_what_it_waits_for(case: str) -> None:
    facts, now, then, do = STORIES[case]
    story = job_story(NOON, facts)
    assert (story.now, story.next, story.do) == (now, then, do)
