"""Where nothing is launched for a while: how long, what is left, and what people read."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from springtide.decide import Choice, choices
from springtide.holds import (
    FIRST_S,
    FORGOTTEN_S,
    LONGEST_S,
    Open,
    Stage,
    allowance,
    boots,
    choice_key,
    describe,
    group_key,
    held_groups,
    lasts_s,
    open_choices,
    place_key,
    provider_key,
    renewed,
    stage,
    summary,
)
from springtide.model import Cause, Hold
from springtide.spec import parse

NOW = 1_000_000.0  # 13:46:40 UTC
SPEC = parse(
    """
cluster: blue
batch: {kind: fake}
provider: {kind: fake}
flavors: {small: {cpus: 1, memory: 1G}, big: {cpus: 2, memory: 2G}}
groups:
  general: {nodes: "g[1-9]", flavors: [small, big], zones: [a, b]}
  other: {nodes: "o[1-9]", flavors: [big], zones: [b]}
""",
    "cluster.yaml",
)
ALL = choices(SPEC, "general")


def place(flavor: str, zone: str | None, until: float, count: int = 1) -> Hold:
    key = place_key("fake", zone, flavor)
    return Hold(key, Cause.CAPACITY, f"{zone} is full", count, NOW - 60, until)


def of(*holds: Hold) -> dict[str, Hold]:
    return {hold.key: hold for hold in holds}


def course(cause: Cause, failures: int) -> list[Hold]:
    """A hold whose every probe fails."""
    hold, now, all_of_them = None, NOW, list[Hold]()
    for _ in range(failures):
        hold = renewed(hold, "group:general", cause, "still so", now)
        all_of_them.append(hold)
        now = hold.until
    return all_of_them


@pytest.mark.accepts("X4")
@pytest.mark.parametrize(
    ("cause", "minutes"),
    [
        (Cause.CAPACITY, [2, 4, 8, 16, 32, 60, 60]),
        (Cause.QUOTA, [10, 20, 40, 60, 60]),
        (Cause.DENIED, [5, 10, 20, 30, 30]),
        (Cause.BOOTS, [5, 10, 20, 40, 60, 60]),
    ],
)
def test_each_cause_cools_down_longer_with_every_failure(cause: Cause, minutes: list[int]) -> None:
    holds = course(cause, len(minutes))
    began = [NOW, *(hold.until for hold in holds)]
    assert [(hold.until - at) / 60 for hold, at in zip(holds, began, strict=False)] == minutes
    assert [hold.count for hold in holds] == list(range(1, len(minutes) + 1))
    assert {hold.since for hold in holds} == {NOW}


def test_many_nodes_that_fail_together_are_one_failure() -> None:
    first = renewed(None, "group:general", Cause.CAPACITY, "n1 refused", NOW)
    second = renewed(first, "group:general", Cause.CAPACITY, "n2 refused", NOW + 1)
    assert second == replace(first, reason="n2 refused")


def test_another_cause_begins_anew_but_frees_nothing_earlier() -> None:
    full = course(Cause.CAPACITY, 6)[-1]
    assert full.until - NOW > 3600
    assert renewed(full, full.key, Cause.DENIED, "revoked", full.until - 3000) == full
    later = renewed(full, full.key, Cause.DENIED, "revoked", full.until)
    assert (later.count, later.until) == (1, full.until + FIRST_S[Cause.DENIED])


def test_a_failure_of_long_ago_does_not_lengthen_the_next_hold() -> None:
    old = course(Cause.CAPACITY, 6)[-1]
    now = old.until + FORGOTTEN_S + 1
    new = renewed(old, old.key, Cause.CAPACITY, "full again", now)
    assert (new.count, new.since, new.until) == (1, now, now + FIRST_S[Cause.CAPACITY])


Failures = st.lists(
    st.tuples(st.sampled_from(Cause), st.floats(0, 3 * FORGOTTEN_S, allow_nan=False)), min_size=1
)


@given(Failures)
@pytest.mark.accepts("X4")
def test_a_hold_never_ends_earlier_than_it_was_said_to(failures: list[tuple[Cause, float]]) -> None:
    hold, now, untils = None, NOW, list[float]()
    for cause, pause_s in failures:
        now += pause_s
        hold = renewed(hold, "group:general", cause, "", now)
        untils.append(hold.until)
    assert all(before <= after for before, after in pairwise(untils))


@given(Failures)
def test_a_hold_lasts_at_most_as_long_as_the_longest(failures: list[tuple[Cause, float]]) -> None:
    hold, now = None, NOW
    for cause, pause_s in failures:
        now += pause_s
        hold = renewed(hold, "group:general", cause, "", now)
        assert stage(hold, now) is Stage.HELD
        assert now < hold.until <= now + max(LONGEST_S.values())
        assert hold.since <= now
        assert hold.count >= 1


@given(st.sampled_from(Cause), st.integers(1, 10**9))
def test_growth_is_bounded_and_never_turns(cause: Cause, count: int) -> None:
    assert FIRST_S[cause] <= lasts_s(cause, count) <= lasts_s(cause, count + 1) <= LONGEST_S[cause]


def test_a_hold_probes_when_its_time_is_over() -> None:
    hold = place("small", "a", until=NOW)
    assert stage(hold, NOW - 0.001) is Stage.HELD
    assert stage(hold, NOW) is Stage.PROBING


def test_one_node_may_probe_and_none_while_it_is_held() -> None:
    nodes = ["g1", "g2", "g3"]
    assert nodes[: allowance(None)] == nodes
    assert nodes[: allowance(Stage.PROBING)] == ["g1"]
    assert nodes[: allowance(Stage.HELD)] == []


@pytest.mark.parametrize(("failures", "broken"), [(0, False), (2, False), (3, True), (4, True)])
def test_the_breaker_opens_after_three_failed_boots(failures: int, broken: bool) -> None:
    assert boots(failures) is broken


@pytest.mark.accepts("X4")
@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([], Open(tuple(ALL))),
        ([("small", "a", 60)], Open(tuple(ALL[1:]))),
        ([("small", "b", 60)], Open((ALL[0], *ALL[2:]))),
        ([("small", "a", -1)], Open(tuple(ALL[1:]), probes=(ALL[0],))),
        ([("big", "b", -1)], Open(tuple(ALL[:3]))),
        (
            [("small", "a", 90), ("small", "b", -1), ("big", "a", 60), ("big", "b", 0)],
            Open((ALL[1], ALL[3]), Stage.PROBING),
        ),
        (
            [("small", "a", 90), ("small", "b", 30), ("big", "a", 60), ("big", "b", 70)],
            Open((), Stage.HELD),
        ),
    ],
    ids=["nothing held", "first held", "second held", "first due", "last due", "due", "all held"],
)
def test_the_choices_that_are_left(held: list[tuple[str, str, float]], expected: Open) -> None:
    holds = of(*(place(flavor, zone, NOW + rest_s) for flavor, zone, rest_s in held))
    assert open_choices(ALL, holds, "fake", NOW) == expected


def test_a_place_is_held_for_its_provider_and_market_alone() -> None:
    holds = of(place("small", "a", NOW + 60))
    plain: list[Choice] = [("small", "a", None)]
    assert open_choices(plain, holds, "fake", NOW).stage is Stage.HELD
    assert open_choices(plain, holds, "other", NOW).stage is None
    assert open_choices([("small", "a", "spot")], holds, "fake", NOW).stage is None


Words = st.sampled_from(["a", "b", "a/b", "b/", "/", "a@b", "a%2Fb"])
Places = st.tuples(Words | st.none(), Words, Words | st.none())


@given(Places, Places)
@example(("a", "b", "b/"), ("a/b", "b", None))
def test_different_places_have_different_keys(
    one: tuple[str | None, str, str | None], two: tuple[str | None, str, str | None]
) -> None:
    assert (place_key("fake", *one) == place_key("fake", *two)) == (one == two)


def test_keys_are_as_people_read_them() -> None:
    assert place_key("aws", "eu-1a", "c7.large", "spot") == "place:eu-1a/c7.large/spot@aws"
    assert choice_key("containers", ("default", None, None)) == "place:/default/@containers"
    assert group_key("general") == "group:general"
    assert provider_key("aws") == "provider:aws"


def test_a_group_is_held_by_itself_its_provider_or_all_its_places() -> None:
    group = Hold(group_key("general"), Cause.QUOTA, "10 of 10", 1, NOW, NOW + 600)
    provider = Hold(provider_key("fake"), Cause.DENIED, "revoked", 1, NOW, NOW + 300)
    places = [place(flavor, zone, NOW + 60 + n) for n, (flavor, zone, _) in enumerate(ALL)]
    assert held_groups(SPEC, {}, NOW) == {}
    assert set(held_groups(SPEC, of(group), NOW)) == {"general"}
    assert set(held_groups(SPEC, of(provider), NOW)) == {"general", "other"}
    assert held_groups(SPEC, of(*places[:3]), NOW) == {}
    assert held_groups(SPEC, of(*places), NOW) == {
        "general": ("no capacity for small in a", NOW + 60),
        "other": ("no capacity for big in b", NOW + 63),
    }


def test_the_reason_of_a_group_is_what_lasts_longest() -> None:
    group = Hold(group_key("general"), Cause.QUOTA, "10 of 10", 1, NOW, NOW + 200)
    provider = Hold(provider_key("fake"), Cause.DENIED, "revoked", 1, NOW, NOW + 300)
    held = held_groups(SPEC, of(group, provider), NOW)
    assert held["general"] == (summary(provider), NOW + 300)
    later = held_groups(SPEC, of(replace(group, until=NOW + 400), provider), NOW)
    assert later["general"] == (summary(group), NOW + 200 + 200)


def test_a_group_whose_time_is_over_is_held_no_more() -> None:
    group = Hold(group_key("general"), Cause.BOOTS, "they die", 1, NOW - 300, NOW)
    assert held_groups(SPEC, of(group), NOW) == {}


@pytest.mark.parametrize(
    ("hold", "words"),
    [
        (
            place("small", "a", NOW + 120, count=3),
            "no capacity for small in a, tried 3 times; next try 13:48 UTC",
        ),
        (place("small", "a", NOW - 1), "no capacity for small in a; the next node tries it again"),
        (
            Hold(place_key("aws", None, "c7", "spot"), Cause.CAPACITY, "", 1, NOW, NOW + 120),
            "no capacity for spot c7; next try 13:48 UTC",
        ),
        (
            Hold("group:general", Cause.CAPACITY, "", 1, NOW, NOW + 120),
            "no capacity for group general; next try 13:48 UTC",
        ),
        (
            Hold("group:general", Cause.QUOTA, "10 of 10 cores", 1, NOW, NOW + 600),
            "the account's quota is used up for group general (10 of 10 cores): have it raised; "
            "next try 13:56 UTC",
        ),
        (
            Hold("provider:aws", Cause.DENIED, "", 2, NOW, NOW + 600),
            "our credentials are refused by provider aws: renew them, tried 2 times; "
            "next try 13:56 UTC",
        ),
        (
            Hold("group:general", Cause.BOOTS, "no slurmd came up", 2, NOW, NOW + 600),
            "nodes do not start any more in group general (no slurmd came up), tried 2 times; "
            "next try 13:56 UTC",
        ),
    ],
)
def test_people_read_what_is_held_why_and_until_when(hold: Hold, words: str) -> None:
    assert describe(hold, NOW) == words
