"""Which nodes are too many by the calendar, for a batch system that starts nodes itself."""

from datetime import UTC, datetime

from springtide.bounds import Bounds, Scene, bounds
from springtide.calendar import limits
from springtide.model import Node, NodeState
from springtide.ports import BatchNode, Power
from springtide.spec import parse

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
SPEC = """
cluster: blue
batch: {kind: fake}
provider: {kind: fake}
groups: {general: {nodes: "c[1-6]"}}
calendar: {time_zone: UTC, entries: [
  {daily: "08:00-18:00", max: 2}, {daily: "18:00-20:00", min: 3}]}
"""
NODES = {
    "off": (NodeState.OFF, Power.DOWN, "IDLE"),
    "starting": (NodeState.JOINING, Power.GOING_UP, "ALLOCATED"),
    "idle": (NodeState.READY, Power.UP, "IDLE"),
    "busy": (NodeState.READY, Power.UP, "ALLOCATED"),
    "gone": (NodeState.OFF, Power.GOING_DOWN, "IDLE"),
    "leaving": (NodeState.READY, Power.UP, "ALLOCATED"),
    "drained": (NodeState.READY, Power.UP, "IDLE"),
}


def decided(*states: str) -> Bounds:
    """With c1, c2 and so on as told; the others are off."""
    spec = parse(SPEC, "c.yaml")
    told = dict(zip(spec.managed, [*states, *["off"] * 6], strict=False))
    nodes = {n: Node(n, "general", NODES[how][0]) for n, how in told.items()}
    seen = {
        name: BatchNode(
            name,
            NODES[how][2],
            flags=frozenset({"POWER_DOWN"} if how == "leaving" else ()),
            power=NODES[how][1],
            registered=NODES[how][1] is Power.UP,
            busy=NODES[how][2] == "ALLOCATED",
            drained=how == "drained",
            owner="alice" if how == "drained" else None,
        )
        for name, how in told.items()
    }
    return bounds(Scene(spec, limits(spec, NOW), nodes, seen), NOW)


def test_as_many_as_may_start_are_left_open_and_they_are_the_first() -> None:
    why = "calendar: at most 2 until 18:00"
    assert decided().held == dict.fromkeys(("c3", "c4", "c5", "c6"), why)
    assert list(decided("off", "off", "busy").held) == ["c2", "c4", "c5", "c6"]
    assert list(decided("off", "busy", "starting").held) == ["c1", "c4", "c5", "c6"]


def test_what_is_gone_and_counts_as_leaving_stays_closed_like_what_is_off() -> None:
    assert list(decided("busy", "busy", "gone").held) == ["c3", "c4", "c5", "c6"]


def test_idle_ones_go_first_and_then_the_last_of_the_file() -> None:
    assert decided("busy", "idle").surplus == ()
    assert decided("idle", "busy", "busy", "idle").surplus == ("c4", "c1")
    assert decided("busy", "busy", "busy", "busy").surplus == ("c4", "c3")


def test_no_other_goes_in_place_of_one_that_ends_its_jobs_and_then_goes() -> None:
    assert decided("busy", "leaving", "busy", "leaving").surplus == ()
    assert decided("idle", "busy", "leaving", "leaving").surplus == ()
    assert decided("idle", "busy", "busy", "leaving").surplus == ("c1",)


def test_what_is_starting_goes_once_it_is_up_and_no_other_goes_in_its_place() -> None:
    assert decided("busy", "busy", "starting", "starting").surplus == ()
    assert decided("busy", "busy", "busy", "starting").surplus == ("c3",)


def test_what_a_person_drained_counts_and_stays() -> None:
    found = decided("busy", "busy", "drained")
    assert (found.surplus, list(found.held)) == (("c2",), ["c4", "c5", "c6"])


def test_idle_nodes_that_are_kept_up_at_other_times_may_go() -> None:
    assert decided("idle", "busy").spare == ("c1",)
    assert decided("off", "off", "off", "idle").spare == (), "Slurm lets it go itself"
