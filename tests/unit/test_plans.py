"""What operations mean for jobs, before they begin."""

from springtide.model import Kind, Node, NodeState
from springtide.plans import JobFate, make_plan
from springtide.ports import Job
from springtide.spec import parse

SPEC = """
cluster: blue
provider: {kind: containers}
groups: {general: {nodes: "n[1-2]"}}
"""


def test_a_job_that_is_over_but_for_its_cleaning_up_is_not_said_to_start_again() -> None:
    jobs = [Job("7", "RUNNING", nodes="n1"), Job("8", "COMPLETING", nodes="n1")]
    nodes = {"n1": Node("n1", "general", NodeState.READY)}
    killed = make_plan(Kind.SUSPEND, ["n1"], parse(SPEC, "x"), nodes, jobs, now=True)
    assert [(job.id, fate) for job, fate in killed.jobs] == [("7", JobFate.REQUEUED)]
    waits = make_plan(Kind.SUSPEND, ["n1"], parse(SPEC, "x"), nodes, jobs)
    assert {fate for _, fate in waits.jobs} == {JobFate.AWAITED}
