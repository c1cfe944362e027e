"""What `tide check` says of Oracle's cloud."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.ports import Check, Launch, Need
from springtide.providers.cloud import Catalog
from springtide.spec import Flavor, Image
from tests.providers.servers.oci import CATALOG, Place, open_place, serving
from tests.providers.servers.oci_cloud import IMAGE
from tests.providers.world import BLUE, GREEN, running

NEED = Need("general", 4, "linux", ["small"])
OTHERS = Launch(GREEN, "control", 1, "control", "linux", "small")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    with serving() as server:
        async with open_place(server, tmp_path) as place:
            yield place


async def checked(place: Place, *needs: Need, catalog: Catalog = CATALOG) -> dict[str, Check]:
    found = await place.open(catalog).check(BLUE, needs or [NEED])
    return {one.name: one for one in found}


async def test_all_is_well_and_nothing_is_changed(place: Place) -> None:
    found = await checked(place)
    assert {name: one.ok for name, one in found.items() if one.ok is not True} == {"rights": None}
    assert "8 cpus and 65536 MiB" in found["flavor small"].text
    assert [call for call in place.cloud.calls if not call.startswith("GET")] == []


@pytest.mark.accepts("C5")
async def test_what_is_in_use_already_counts_against_the_limit(place: Place) -> None:
    """As the management node does, if it is of the same shape."""
    place.cloud.limits["standard-e4-core-count"] = 16
    assert (await checked(place))["limits of group general"].ok
    await place.open().create([OTHERS])
    found = (await checked(place))["limits of group general"]
    assert found.ok is False
    assert found.text.startswith("4 wanted, 3 possible; room for 3 of small (standard-e4-core")
    assert "raise the limit" in found.todo
    assert (await checked(place, replace(NEED, count=3)))["limits of group general"].ok


@pytest.mark.accepts("C5")
async def test_nodes_of_the_cluster_itself_need_no_room_twice(place: Place) -> None:
    place.cloud.limits["standard-e4-core-count"] = 16
    provider = place.open()
    await provider.create([replace(OTHERS, cluster=BLUE, node=f"n{i}") for i in range(3)])
    await running(provider, BLUE, 3)
    assert (await checked(place))["limits of group general"].ok
    found = await checked(place, replace(NEED, count=3), replace(NEED, group="other", count=3))
    assert found["limits of group other"].text.startswith("3 wanted, 1 possible")


async def test_groups_share_a_limit_and_zones_add_up(place: Place) -> None:
    place.cloud.limits["standard-e4-core-count"] = 16
    other = replace(NEED, group="other")
    found = await checked(place, NEED, other)
    assert found["limits of group general"].ok
    assert found["limits of group other"].text.startswith("4 wanted, 0 possible")
    assert (await checked(place, replace(NEED, count=8, zones=["1", "AD-3"])))[
        "limits of group general"
    ].ok


@pytest.mark.accepts("A25")
@pytest.mark.parametrize("name", ["config", "key.pem"])
async def test_credentials_that_others_can_read_are_told(place: Place, name: str) -> None:
    path = place.config.parent / name
    path.chmod(0o640)
    found = (await checked(place))[f"file {path}"]
    assert (found.ok, found.todo) == (False, f"chmod 600 {path}")


async def test_a_compartment_that_is_not_ours_is_a_matter_of_credentials(place: Place) -> None:
    place.cloud.compartments = ["ocid1.compartment.oc1..other"]
    found = (await checked(place))["credentials"]
    assert found.ok is False
    assert "404 NotAuthorizedOrNotFound" in found.text
    assert "policy" in found.todo


async def test_wrong_names_are_told_each_with_what_to_do(place: Place) -> None:
    place.cloud.images[IMAGE].turn("DELETED")
    need = replace(NEED, flavors=["small", "unheard-of"], zones=["1", "9"], markets=["spot"])
    found = await checked(place, need)
    assert found["zone 1"].ok
    assert found["zone 9"].ok is False
    assert found["market spot"].todo == "write preemptible or on-demand"
    assert "VM.Standard.E4.Flex" in found["flavor unheard-of"].todo
    assert found["image linux"].ok is False


async def test_a_subnet_that_is_not_there_is_told(place: Place) -> None:
    found = await place.open(subnet="ocid1.subnet.oc1.phx.none").check(BLUE, [NEED])
    (one,) = (one for one in found if one.name.startswith("subnet"))
    assert one.ok is False


@pytest.mark.accepts("C6")
@pytest.mark.parametrize(
    ("flavor", "todo"),
    [
        ({"memory": 64000}, "set flavors.mine.memory to 62658M or less"),
        ({"cpus": 16}, "set flavors.mine.cpus to 8 or less"),
        ({"arch": "aarch64"}, "set flavors.mine.arch to it"),
        ({"type": "VM.Standard.E4.Flex.99.64"}, "correct flavors.mine.type"),
    ],
)
async def test_a_flavor_that_promises_more_than_its_shape_has_is_told(
    place: Place, flavor: dict[str, object], todo: str
) -> None:
    known = {"type": "VM.Standard.E4.Flex.4.64", "cpus": 8, "memory": 60000}
    catalog = Catalog(CATALOG.images, {"mine": Flavor.model_validate({**known, **flavor})})
    found = (await checked(place, replace(NEED, flavors=["mine"]), catalog=catalog))["flavor mine"]
    assert (found.ok, found.todo) == (False, todo)


@pytest.mark.accepts("C8")
async def test_an_image_that_is_missing_or_of_another_architecture_is_told(place: Place) -> None:
    images = {"linux": Image(id={"x86_64": IMAGE}), "wrong": Image(id=IMAGE)}
    catalog = Catalog(images, CATALOG.flavors)
    need = replace(NEED, flavors=["arm"])
    missing = (await checked(place, need, catalog=catalog))["image linux"]
    assert (missing.ok, missing.todo) == (False, "set images.linux.id")
    assert "no image for aarch64" in missing.text
    wrong = (await checked(place, replace(need, image="wrong"), catalog=catalog))["image wrong"]
    assert "does not run on VM.Standard.A1.Flex" in wrong.text
