"""`tide check` on Google: what is wrong is said, with what to do about it."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from springtide.ports import Check, Launch, Need
from springtide.providers.google import provider
from springtide.spec.clouds import Google
from tests.providers.google_world import CATALOG, Place, google_place
from tests.providers.servers.google_state import PROJECT, SUBNETWORK, ZONES
from tests.providers.world import BLUE

NEED = Need("general", 10, "base", ["small"])


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with google_place() as place:
        yield place


def wrong(checks: Sequence[Check]) -> dict[str, Check]:
    return {each.name: each for each in checks if each.ok is False}


async def test_all_is_well_and_what_cannot_be_known_is_said(place: Place) -> None:
    checks = await place.open().check(BLUE, [NEED])
    assert wrong(checks) == {}
    assert [each.name for each in checks if each.ok is None] == ["rights"]
    assert {each.name for each in checks if each.ok} == {
        "credentials",
        "project",
        "network",
        "rights on network",
        f"zone {ZONES[0]}",
        "image base",
        "flavor small",
        "quota INSTANCES",
        "quota N2_CPUS",
    }
    assert place.server.state.machines == {}


async def test_names_that_google_does_not_know_are_told_with_what_to_do(place: Place) -> None:
    needs = [Need("general", 1, "none", ["huge"], [ZONES[0], "mars-1", "us-east1-b"])]
    provider = place.open(subnetwork="regions/europe-west4/subnetworks/gone")
    found = wrong(await provider.check(BLUE, needs))
    assert found.keys() == {
        "network",
        "zone mars-1",
        "zone us-east1-b",
        "image none",
        "flavor huge",
    }
    assert all(each.todo for each in found.values())
    assert "machine-types list" in found["flavor huge"].todo
    assert "subnets list" in found["network"].todo


async def test_an_image_of_another_architecture_is_told(place: Place) -> None:
    found = wrong(await place.open().check(BLUE, [Need("g", 1, "other", ["arm"])]))
    assert "aarch64" in found["image other"].todo


@pytest.mark.accepts("C5")
async def test_the_quota_counts_what_is_there_already_and_ours_but_once(place: Place) -> None:
    state = place.server.state
    state.limits["INSTANCES"] = 11
    client = place.open()
    others = [Launch("others", "control", 1, "g", "base", "small")]
    ours = [Launch(BLUE, f"n{i}", 1, "g", "base", "small") for i in range(4)]
    await client.create([*others, *ours])
    assert wrong(await client.check(BLUE, [NEED])) == {}
    state.limits["INSTANCES"] = 10
    found = wrong(await client.check(BLUE, [NEED]))
    assert "1 more of INSTANCES" in found["quota INSTANCES"].todo


async def test_missing_rights_are_told(place: Place) -> None:
    place.server.state.denied.add("compute.subnetworks.use")
    found = wrong(await place.open().check(BLUE, [NEED]))
    assert "role" in found["rights on network"].todo
    place.server.refuse("projects.get", 403, "forbidden")
    checks = await place.open().check(BLUE, [NEED])
    assert wrong(checks).keys() == {"project"}
    assert "docs/providers/google.md" in wrong(checks)["project"].text


@pytest.mark.accepts("A25")
async def test_a_key_that_became_readable_to_others_is_told(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text("{}")
    key.chmod(0o644)
    wanted = Google(
        project=PROJECT,
        zone=ZONES[0],
        subnetwork=SUBNETWORK,
        credentials=key,
        endpoint="http://127.0.0.1:9",
    )
    client = provider(wanted, CATALOG, tmp_path)
    found = wrong(await client.check(BLUE, [NEED]))
    assert "chmod 600" in found["credentials"].todo
    await client.close()
