"""Jobs that Grid Engine does not start beside free nodes, because a resource quota is used up."""

from collections.abc import Iterator

import pytest

from tests.e2e import test_gridengine
from tests.e2e.real import until
from tests.e2e.test_gridengine import Site, site
from tests.gridengine.bed import USER

pytestmark = pytest.mark.real

QUOTA = f"""{{
   name         few
   description  NONE
   enabled      TRUE
   limit        users {USER} to slots=3
}}
"""
WHOLE = ("-pe", "smp", "2")
"""As much as a node has."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """With a Springtide that doubts soon, but not before a busy machine has started the job of a
    node that is free, or has seen that node."""
    quick = test_gridengine.SPEC.replace("every: 500ms", "every: 500ms, doubt: 30s")
    monkeypatch.setattr(test_gridengine, "SPEC", quick)
    with site() as found:
        rules = found.bed.shared / "quota"
        rules.write_text(QUOTA)
        found.bed.run("qconf", "-Arqs", str(rules))
        yield found


def why(here: Site, job: str) -> str:
    return str(here.real.client.get(f"/why/{job}")["now"])


@pytest.mark.accepts("N2", "B18")
@pytest.mark.timeout(400)
def test_a_job_beyond_a_quota_keeps_no_node_and_gets_one_when_the_quota_has_room(
    here: Site,
) -> None:
    """Which only a node more can tell: what has become free on the first one is too small."""
    halves = [here.held_open(sign) for sign in ("ends", "stays")]
    for half in halves:
        here.runs(half)
    waits = here.held_open("waits", *WHOLE)
    until(lambda: here.up() == ["sg1", "sg2"])
    until(lambda: here.states()["sg2"] == "off")
    assert here.up() == ["sg1"]
    assert [here.state(job) for job in (*halves, waits)] == ["r", "r", "qw"]
    assert here.resumes() == ["sg2", "sg1"]
    assert here.told(f"jobs of {USER} (such as {waits}): nodes that would hold them stood free")
    until(lambda: "stood free, and Grid Engine did not start it; a quota" in why(here, waits))
    here.release("ends")
    here.runs(waits)
    assert here.resumes() == ["sg2", "sg2", "sg1"]
    for sign in ("stays", "waits"):
        here.release(sign)
    here.all_off()
