"""`tide holds`: where nothing is launched, in words, and how a person ends it."""

import json
import re
from typing import Any

import pytest

from springtide.api.steering import find
from springtide.cli.endings import Exit
from springtide.cli.holds import render_holds
from springtide.decide import choices
from springtide.ports import CloudError, Denied, NoCapacity, QuotaExceeded, Rejected
from tests.unit.cli_world import World, served

NOW = 1_000_000.0


def refuse(world: World, error: CloudError) -> None:
    """The cloud says no to a node of the group."""
    choice = choices(world.spec, "general")[0]
    world.call(lambda: world.daemon.parts.holding.refused(world.spec, "general", choice, error))


def keys(world: World) -> list[str]:
    return [hold["key"] for hold in json.loads(world.run("holds", "--json").out)["holds"]]


def test_what_is_held_is_said_with_why_and_until_when() -> None:
    with served() as world:
        assert world.run("holds").out == "nothing is held\n"
        refuse(world, QuotaExceeded("16 cores"))
        head, row = world.run("holds").out.splitlines()
        assert head.split() == ["HOLD", "SINCE", "UNTIL", "WHY"]
        assert re.match(r"group:general  \d+s ago  in (9|10)m", row)
        assert "the account's quota is used up for group general (16 cores): have it raised" in row
        assert "; next try " in row


def test_a_hold_that_does_not_end_by_itself_says_so() -> None:
    with served() as world:
        wrong = {"c1": Rejected("no image base")}
        world.call(lambda: world.daemon.parts.holding.rejected(world.spec, wrong))
        row = world.run("holds").out.splitlines()[1]
        assert re.match(r"node:c1  \d+s ago  until lifted  requests for node c1 are refused", row)
        assert row.endswith(
            "(no image base): mend the cluster file, or the cause and run "
            "`tide holds --lift node:c1`"
        )


def test_held_groups_are_in_the_status() -> None:
    with served() as world:
        refuse(world, QuotaExceeded("16 cores"))
        said = world.run("status").out
        assert "held general  the account's quota is used up for group general (16 cores)" in said
        assert world.run("holds", "--lift", "general").code == 0
        assert "held" not in world.run("status").out


def test_one_can_be_ended_by_its_key_or_by_the_name_behind_it() -> None:
    with served() as world:
        for error, word in (
            (QuotaExceeded("16 cores"), "general"),
            (QuotaExceeded("16 cores"), "group:general"),
            (Denied("expired"), "fake"),
            (NoCapacity("full"), "place:/default/@fake"),
        ):
            refuse(world, error)
            [key] = keys(world)
            done = world.run("holds", "--lift", word)
            assert (done.code, done.out) == (
                0,
                f"{key}: held no more; the next job that needs it tries it\n",
            )
            assert keys(world) == []


def test_who_ended_it_is_told_by_the_events() -> None:
    with served() as world:
        refuse(world, QuotaExceeded("16 cores"))
        world.run("holds", "--lift", "general")
        assert "hold lifted: group:general by root: 16 cores" in world.run("events").out


def test_what_is_not_held_cannot_be_ended() -> None:
    with served() as world:
        done = world.run("holds", "--lift", "general")
        assert (done.code, "nothing holds 'general'" in done.err) == (Exit.WRONG, True)


def test_a_dry_run_ends_nothing() -> None:
    with served() as world:
        refuse(world, QuotaExceeded("16 cores"))
        done = world.run("holds", "--lift", "general", "--dry-run")
        assert (done.code, done.err) == (0, "nothing was changed\n")
        assert keys(world) == ["group:general"]


def test_whoever_may_not_change_the_cluster_may_look() -> None:
    with served() as world:
        refuse(world, QuotaExceeded("16 cores"))
        refused = world.as_user("nobody", "holds", "--lift", "general")
        assert (refused.returncode, "may not change this cluster" in refused.stderr) == (1, True)
        assert "group:general" in world.as_user("nobody", "holds").stdout


def hold(**other: Any) -> dict[str, Any]:
    return {"key": "group:g", "since_at": NOW - 60, "until_at": NOW + 90, "text": "why"} | other


@pytest.mark.parametrize(("left_s", "said"), [(90.0, "in 2m"), (0.0, "tried next")])
def test_it_is_said_how_long_it_lasts(left_s: float, said: str) -> None:
    assert render_holds([hold(until_at=NOW + left_s)], NOW) == [["group:g", "1m ago", said, "why"]]


def test_a_group_is_meant_before_a_provider_of_the_same_name() -> None:
    assert find("aws", ["provider:aws", "group:aws"]) == "group:aws"
    assert find("aws", ["provider:aws"]) == "provider:aws"
    assert find("x", ["group:y"]) is None
