"""What `tide check` says of Torque's queues."""

from pathlib import Path

import pytest

from springtide.batch.torque_rules import require_queues
from springtide.batch.torque_text import parse_queues
from springtide.cli.subject import Check, subject
from springtide.cli.torque_checks import decide_checks, look_at_queues
from springtide.ports import Member, Unavailable
from springtide.spec import parse

RECORDED = Path(__file__).parents[1] / "recorded" / "torque-6.1.3.h5__qstat-Qf.out"
MEMBERS = [Member("c1", "", 1, 1, ("big",), ("cloud",))]
TEXT = """\
cluster: hy
state: {place}/state
batch: {{kind: torque, bin: {place}}}
groups: {{g: {{nodes: "c[1-2]"}}}}
partitions: {{cloud: {{groups: [g]}}}}
"""


def told(text: str, *served: str) -> list[Check]:
    return list(decide_checks(parse_queues(text), served or ("cloud",), MEMBERS, {"house1"}))


def with_needed(cloud: str, batch: str = "1:house", key: str = "neednodes") -> str:
    """Queues as a server printed them, with what their jobs ask for."""
    text = RECORDED.read_text()
    for name, wanted in (("cloud", cloud), ("batch", batch)):
        lines = f"Queue: {name}\n    resources_default.{key} = {wanted}\n"
        text = text.replace(f"Queue: {name}\n", lines)
    return text


def test_queues_that_ask_for_no_nodes_of_their_own_are_told() -> None:
    ours, others = told(RECORDED.read_text())
    assert (ours.ok, others.ok) == (None, None)
    assert 'qmgr -c "set queue cloud resources_default.neednodes = 1:cloud"' in ours.todo
    assert others.text.startswith("jobs of batch ask for no nodes of their own")


@pytest.mark.parametrize("wanted", ["1:cloud", "1:ppn=2:big", "1:springtide", "c1", "2:cloud#excl"])
def test_queues_that_do_are_in_order(wanted: str) -> None:
    assert told(with_needed(wanted)) == []
    assert told(with_needed(wanted, "house1")) == []


def test_what_they_ask_for_may_stand_in_nodes_too() -> None:
    text = with_needed("1:ppn=1:cloud", "1:house", "nodes").replace(
        "_default.nodes = 1\n", "_x = 1\n"
    )
    assert told(text) == []


@pytest.mark.parametrize("wanted", ["cloud", "cloud:ppn=2", "1:cloud+big"])
def test_a_property_without_a_number_is_a_node_that_there_is_not(wanted: str) -> None:
    """Jobs fail with it, as a real Torque showed."""
    (ours,) = told(with_needed(wanted))
    assert ours.ok is False
    assert ours.text.startswith('jobs of cloud without -l nodes fail with "Unknown node": in ')
    assert "resources_default.neednodes = 1:" in ours.todo


def test_it_is_told_of_queues_of_others_too() -> None:
    (others,) = told(with_needed("1:cloud", "house"))
    assert others.ok is None
    assert others.text.startswith('jobs of batch without -l nodes fail with "Unknown node"')
    assert others.todo == 'run `qmgr -c "set queue batch resources_default.neednodes = 1:house"`'


@pytest.mark.parametrize("wanted", ["1:house", "1:ppn=2", "1:cloud:house", "house1"])
def test_asking_for_what_our_nodes_do_not_have_is_told(wanted: str) -> None:
    (ours,) = told(with_needed(wanted))
    assert ours.text.startswith("jobs of cloud do not ask for nodes of cloud")


def test_a_queue_that_is_not_there_is_wrong() -> None:
    (missing,) = told(with_needed("1:cloud"), "cloud", "night")
    assert missing.ok is False
    assert missing.text == "there is no queue night"


def test_the_server_is_asked(tmp_path: Path) -> None:
    (tmp_path / "queues").write_text(with_needed("1:cloud"))
    for name in ("pbsnodes", "qalter", "qmgr", "qrerun", "qstat"):
        (tmp_path / name).write_text(f'#!/bin/sh\n[ "$*" = "-Q -f" ] && cat {tmp_path}/queues\n')
        (tmp_path / name).chmod(0o755)
    asked = subject(parse(TEXT.format(place=tmp_path), "cluster.yaml"))
    done, _ = look_at_queues(asked)
    assert done == Check("Torque's queues", True, "each says which nodes are its own: cloud")
    (tmp_path / "qstat").write_text("#!/bin/sh\nexit 111\n")
    assert list(look_at_queues(asked)) == []


def test_a_queue_that_is_not_there_is_refused() -> None:
    member = Member("n1", "", 1, 100, (), ("clod",))
    with pytest.raises(Unavailable, match=r"Torque has no queue clod; make it .*`partitions`"):
        require_queues({"cloud": {}}, [member])
    require_queues({"cloud": {}, "clod": {}}, [member])
