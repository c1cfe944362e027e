"""Where the time of a boot went, from events of the daemon and phases of the node."""

import pytest

from springtide.cli.timeline import render_rows, render_typical
from springtide.model import Event, Phase
from springtide.timeline import Row, Timeline, timeline, typical
from tests.unit.cli_world import served

EVENTS = [
    Event(100.0, "node requested", "c1", 1, "generation 1"),
    Event(101.0, "instance created", "c1", 1, "i-1"),
    Event(104.0, "node failed", "c1", 1, "its instance died"),
    Event(150.0, "node deleted", "c1", 1),
    Event(200.0, "node requested", "c1", 2, "generation 2"),
    Event(201.5, "instance created", "c1", 2, "i-2 at 10.0.0.2, small, image host"),
    Event(202.0, "address told", "c1", 2),
    Event(209.0, "node joined", "c1", None, "from 10.0.0.2; slurmd 22.05.8"),
    Event(214.0, "node registered", "c1", 2),
    Event(900.0, "node failed", "c1", 3, "its instance died"),
]
PHASES = [
    Phase("c1", 1, "started", 103.0, 2.0),
    Phase("c1", 2, "started", 208.0, 6.0),
    Phase("c1", 2, "joined", 209.1, 1.0),
    Phase("c1", 2, "mounts", 212.0, 2.9, "slow"),
    Phase("c1", 2, "slurmd", 213.5, 1.5),
]


@pytest.mark.accepts("X16")
def test_the_last_boot_is_told_from_its_request_to_its_registration() -> None:
    found = timeline("c1", EVENTS, PHASES)
    assert found is not None
    assert (found.generation, found.requested_at, found.over) == (2, 200.0, True)
    assert found.rows == (
        Row("requested", 0.0, 0.0),
        Row("instance", 1.5, 1.5, "i-2 at 10.0.0.2, small, image host"),
        Row("address told", 2.0, 0.5),
        Row("started", 8.0, 6.0),
        Row("joined", 9.1, 1.0, "from 10.0.0.2; slurmd 22.05.8"),
        Row("mounts", 12.0, 2.9, "slow"),
        Row("slurmd", 13.5, 1.5),
        Row("registered", 14.0, 0.5),
    )


def test_an_instance_is_there_before_its_node_tells_anything() -> None:
    """The provider's answer may come after the first words of a node that boots fast."""
    events = [Event(10.0, "node requested", "c1", 1), Event(10.3, "instance created", "c1", 1)]
    phases = [Phase("c1", 1, "started", 10.2, 0.0), Phase("c1", 1, "munge", 10.25, 0.05)]
    found = timeline("c1", events, phases)
    assert found is not None
    assert [(row.phase, row.at_s, row.took_s) for row in found.rows] == [
        ("requested", 0.0, 0.0),
        ("instance", 0.2, 0.2),
        ("started", 0.2, 0.0),
        ("munge", 0.25, 0.05),
    ]


def test_an_earlier_boot_is_told_by_its_generation() -> None:
    found = timeline("c1", EVENTS, PHASES, 1)
    assert found is not None
    assert [row.phase for row in found.rows] == ["requested", "instance", "started", "given up"]
    assert found.rows[-1].remark == "its instance died"
    assert timeline("c1", EVENTS, PHASES, 7) is None
    assert timeline("c1", [], PHASES) is None


def test_a_boot_under_way_is_told_as_far_as_it_is() -> None:
    found = timeline("c1", EVENTS[4:6], PHASES[:2])
    assert found is not None
    assert not found.over
    assert [row.phase for row in found.rows] == ["requested", "instance", "started"]


def test_a_reboot_is_a_boot_of_its_own() -> None:
    again = [
        Event(1000.0, "reboot requested", "c1", 4),
        Event(1001.0, "instance rebooted", "c1", 4),
        Event(1010.0, "node registered", "c1", 4),
    ]
    phases = [*PHASES, Phase("c1", 2, "started", 1008.0, 5.0)]
    found = timeline("c1", [*EVENTS[4:9], *again], phases, 2)
    assert found is not None
    assert [row.phase for row in found.rows] == ["requested", "instance", "started", "registered"]


@pytest.mark.parametrize("behind_s", [0.0, 4.0])
def test_what_was_told_of_the_boot_before_is_no_part_of_a_reboot_soon_after(
    behind_s: float,
) -> None:
    """Though a clock that is a little behind is forgiven."""
    again = [Event(215.0, "reboot requested", "c1", 4), Event(220.0, "node registered", "c1", 4)]
    told = [("started", 217.0), ("joined", 218.0), ("slurmd", 219.5)]
    phases = [*PHASES, *(Phase("c1", 2, name, at - behind_s, 0.5) for name, at in told)]
    found = timeline("c1", [*EVENTS[4:9], *again], phases, 2)
    assert found is not None
    names = [row.phase for row in found.rows]
    assert sorted(names) == ["joined", "registered", "requested", "slurmd", "started"]
    assert names.index("joined") < names.index("slurmd")


def test_a_boot_that_failed_says_where() -> None:
    failed = [
        *EVENTS[4:8],
        Event(211.0, "boot failed", "c1", None, "mounts: no route"),
        Event(212.0, "node failed", "c1", 2, "its boot failed: mounts: no route"),
    ]
    phases = [*PHASES[1:3], Phase("c1", 2, "mounts", 210.9, 1.8, "failed: no route")]
    found = timeline("c1", failed, phases)
    assert found is not None
    assert [row.phase for row in found.rows[-3:]] == ["mounts", "failed", "given up"]
    assert [row.remark for row in found.rows[-3:-1]] == ["failed: no route", "mounts: no route"]


def test_a_kernel_that_is_older_than_the_request_did_not_start_in_it() -> None:
    shared = [Phase("c1", 2, "started", 208.0, 49_617.0)]
    found = timeline("c1", EVENTS[4:6], shared)
    assert found is not None
    assert found.rows[-1] == Row("started", 8.0, 6.5)


def test_of_several_boots_the_median_is_typical() -> None:
    boots = [
        Timeline(f"c{n}", 1, 0.0, (Row("requested", 0, 0), Row("slurmd", 2.0 * n, 1.0 * n)))
        for n in (1, 2, 9)
    ]
    first, second = typical(boots)
    assert (first.phase, first.count) == ("requested", 3)
    assert (second.at_s, second.took_s, second.slowest_s, second.slowest) == (4.0, 2.0, 9.0, "c9")


@pytest.mark.accepts("X16")
def test_tide_shows_a_timeline() -> None:
    with served() as world:
        assert world.run("resume", "c[1-2]").code == 0
        shown = world.run("timeline", "c1")
        assert shown.code == 0, shown.err
        phases = [line.split()[0] for line in shown.out.splitlines()]
        assert phases[1:3] == ["requested", "instance"]
        assert "boot 1 of c1, requested at" in shown.err
        both = world.run("timeline", "c[1-2]")
        assert "medians of 2 boots" in both.err
        assert world.run("timeline", "c[1-2]", "-g", "1").code == 2
        never = world.run("timeline", "c3")
        assert never.code == 2
        assert "nothing is known of a boot of c3" in never.err
        assert world.run("timeline", "zz").code == 2


def test_rows_are_rendered_with_their_times() -> None:
    row = {"phase": "munge", "at_s": 1.234, "took_s": 0.1, "remark": "x"}
    assert render_rows([row]) == [["munge", "+1.23s", "0.10s", "x"]]
    many = {**row, "count": 3, "slowest_s": 4.0, "slowest": "c1"}
    assert render_typical([many]) == [["munge", "3", "+1.23s", "0.10s", "4.00s", "c1"]]
