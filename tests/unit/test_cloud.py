"""What clouds share: rosters, scripts, and a provider over a driver."""

import asyncio
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    InstanceState,
    Launch,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.cloud import Cloud, Driver, roster, script
from springtide.providers.cloud.cloud import decide_batches

NAMES = st.builds(
    lambda head, number, width: f"{head}{number:0{width}}",
    st.sampled_from(["n", "gpu", "rack1-", "a-b"]),
    st.integers(0, 3000),
    st.integers(1, 4),
)
MEMBERS = st.dictionaries(NAMES, st.integers(1, 9), min_size=1, max_size=120)


@settings(max_examples=300, deadline=None)
@given(MEMBERS, st.integers(40, 250))
def test_an_index_means_the_same_node_in_tags_and_script(
    nodes: Mapping[str, int], longest: int
) -> None:
    members = roster.ordered([*nodes.items()])
    tags = roster.write(members, longest)
    assert roster.read(tags) == members
    assert sorted(members) == sorted(nodes.items())
    assert all(len(value) <= longest for value in tags.values())


def test_a_roster_of_strangers_is_none() -> None:
    assert roster.read({}) == []
    assert roster.read({"springtide-nodes": "what is this"}) == []


def test_an_instance_finds_out_which_node_it_is() -> None:
    launch = Launch(
        "blue",
        "",
        0,
        "g",
        "base",
        "small",
        user_data='echo "$TIDE_CLUSTER $TIDE_NODE $TIDE_GENERATION $TIDE_TOKEN"\n',
    )
    members = [("n1", 3), ("n2", 4), ("n-with:colon", 5)]
    launches = [replace(launch, node=n, generation=g, token=f"9.{n[:2]}") for n, g in members]
    for index, (node, generation) in enumerate(members):
        text = script.indexed(launches, f"echo {index}")
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
        assert done.stdout == f"blue {node} {generation} 9.{node[:2]}\n"
    lost = subprocess.run(["sh", "-c", script.indexed(launches, "false")], check=False)
    assert lost.returncode == 1


def launch(node: str, **more: Any) -> Launch:
    return Launch("blue", node, 1, "g", "base", "small", **more)


def test_one_call_makes_what_is_alike() -> None:
    wanted = [launch(f"n{i}") for i in range(5)] + [launch("m0", zone="b")]
    batches = decide_batches(wanted, 2)
    assert [[one.node for one in batch] for batch in batches] == [
        ["n0", "n1"],
        ["n2", "n3"],
        ["n4"],
        ["m0"],
    ]


class Slow:
    """A driver whose calls take as long as somebody lets them."""

    batch, in_place = 10, False

    def __init__(self) -> None:
        self.go = threading.Event()
        self.listing: CloudError | None = None
        self.hangs = False
        self.launched: list[str] = []

    def list(self, cluster: str) -> Sequence[Instance]:
        if self.hangs:
            self.go.wait(100)
        if self.listing:
            raise self.listing
        return [made(node) for node in self.launched]

    def launch(self, launches: Sequence[Launch]) -> Mapping[str, Instance]:
        self.launched += [one.node for one in launches]
        return {one.node: made(one.node) for one in launches}

    def reboot(self, instance: Instance, launch: Launch) -> Instance:
        self.go.wait(100)
        return instance

    def close(self) -> None:
        """Nothing is held open."""


def made(node: str) -> Instance:
    return Instance(node, "blue", node, 1, InstanceState.RUNNING)


def opened(driver: Slow) -> Cloud:
    return Cloud(cast(Driver, driver))


async def test_a_list_that_hangs_holds_up_nobody_who_has_no_time() -> None:
    driver = Slow()
    cloud = opened(driver)
    driver.hangs = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await cloud.list("blue")
    assert not driver.go.is_set()
    driver.go.set()
    await cloud.close()


async def test_a_launch_does_not_wait_behind_reboots() -> None:
    driver = Slow()
    cloud = opened(driver)
    old = [launch(f"n{i}") for i in range(40)]
    await cloud.create(old)
    rebooting = asyncio.create_task(cloud.reboot(old))
    async with asyncio.timeout(60):
        assert "new" in await cloud.create([launch("new")])
    assert not rebooting.done()
    driver.go.set()
    assert len(await rebooting) == 40
    await cloud.close()


async def test_once_throttled_the_rest_of_a_create_is_not_asked_for() -> None:
    driver = Slow()
    asked = []

    def refuse(launches: Sequence[Launch]) -> Mapping[str, Instance]:
        asked.append(launches)
        raise Throttled("slow down")

    driver.launch = refuse  # type: ignore[method-assign]
    cloud = opened(driver)
    answers = await cloud.create([launch(f"n{i:03}") for i in range(1000)])
    assert {type(one) for one in answers.values()} == {Throttled}
    assert len(answers) == 1000
    assert len(asked) <= 16 < 1000 // driver.batch
    await cloud.close()


@pytest.mark.parametrize(
    ("error", "told"), [(Rejected, Transient), (Denied, Denied), (Transient, Transient)]
)
async def test_a_look_that_fails_is_no_refusal_of_the_launch(
    error: type[CloudError], told: type[CloudError]
) -> None:
    driver = Slow()
    cloud = opened(driver)
    driver.listing = error("the list is garbled")
    with pytest.raises(told, match="the list is garbled"):
        await cloud.create([launch("n0")])
    assert driver.launched == []
    await cloud.close()
