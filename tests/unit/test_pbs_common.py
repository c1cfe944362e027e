"""What Torque and OpenPBS have in common."""

from springtide.batch.names import batches, named
from springtide.batch.pbs_common import merged, renamed
from springtide.ports import Health, JobState, QueueJob, QueueNode

RUNNING, WAITING, HELD = JobState.RUNNING, JobState.WAITING, JobState.HELD


def node(name: str, *jobs: str) -> QueueNode:
    return QueueNode(name, Health.UP, jobs=jobs)


def sketch(nodes: list[QueueNode], *jobs: QueueJob) -> list[tuple[str, JobState, int, object]]:
    found = merged({one.name: one for one in nodes}, jobs)
    return [(job.id, job.state, job.tasks, job.nodes) for job in found.jobs]


def test_a_job_that_is_seen_on_a_node_runs_there() -> None:
    job = QueueJob("1.s", WAITING, reason="Not Running")
    assert sketch([node("a", "1.s"), node("b", "1.s"), node("c")], job) == [
        ("1.s", RUNNING, 1, ("a", "b"))
    ]


def test_a_node_has_the_jobs_that_say_so() -> None:
    """rule 2"""
    job = QueueJob("1.s", RUNNING, nodes=("a", "gone"))
    found = merged({"a": node("a", "2.s"), "b": node("b")}, [job])
    assert {name: one.jobs for name, one in found.nodes.items()} == {
        "a": ("2.s", "1.s"),
        "b": (),
    }


def test_tasks_that_have_begun_wait_no_more() -> None:
    array, known = QueueJob("1[].s", WAITING, tasks=3), QueueJob("1[0].s", RUNNING, nodes=("a",))
    assert sketch([node("a", "1[0].s", "1[1].s"), node("b", "1[2].s")], array, known) == [
        ("1[].s", WAITING, 1, ()),
        ("1[0].s", RUNNING, 1, ("a",)),
        ("1[1].s", RUNNING, 1, ("a",)),
        ("1[2].s", RUNNING, 1, ("b",)),
    ]
    assert sketch([node("a", "1[7].s")], QueueJob("1[].s", WAITING)) == [
        ("1[7].s", RUNNING, 1, ("a",))
    ]


def test_heaps_of_one_array_share_the_tasks_that_have_begun() -> None:
    held, waits = QueueJob("1[].s", HELD, tasks=2), QueueJob("1[].s", WAITING, tasks=2)
    assert sketch([node("a", "1[7].s", "1[8].s", "1[9].s")], held, waits, waits)[:2] == [
        ("1[].s", HELD, 2, ()),
        ("1[].s", WAITING, 1, ()),
    ]


def test_what_ended_during_the_reading_is_no_job() -> None:
    assert sketch([node("a", "1.s", "2[3].s")]) == []


def test_names_with_a_domain_are_ours_if_no_other_node_has_them() -> None:
    assert named(
        ["n1.example.org", "n2", "n2.example.org", "n3.a.org", "h.a.org"], {"n1", "n2"}
    ) == {
        "n1.example.org": "n1",
        "n2": "n2",
        "n2.example.org": "n2.example.org",
        "n3.a.org": "n3.a.org",
        "h.a.org": "h.a.org",
    }
    assert named(["n1.a.org"], {"n1", "n1.a.org"}) == {"n1.a.org": "n1.a.org"}
    job = QueueJob("1.s", RUNNING, nodes=("n1.a.org", "x"), names=("n1.a.org",))
    ours = renamed(job, {"n1.a.org": "n1"})
    assert (ours.nodes, ours.names) == (("n1", "x"), ("n1",))


def test_no_name_is_left_out_of_the_batches() -> None:
    assert batches(["a", "b", "c"], 2) == [["a", "b"], ["c"]]
    assert batches([], 2) == []
