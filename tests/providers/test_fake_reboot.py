"""The fake cloud reboots in place, and goes wrong at that as it was told to."""

from dataclasses import replace

import pytest

from springtide.ports import Denied, Instance, InstanceState, Launch, Rejected, Transient
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from tests.providers.test_fake import CLUSTER, create, launches, made, states, virtual

pytestmark = pytest.mark.looptime


async def started(*nodes: str, faults: Faults | None = None) -> tuple[FakeCloud, FakeProvider]:
    """A cloud where these nodes run, which took as long as their boot."""
    cloud = FakeCloud(faults or Faults(boot_s=30, delete_s=10))
    provider = FakeProvider(cloud)
    await create(provider, *nodes)
    await virtual(cloud.faults.boot_s)
    return cloud, provider


async def rebooted(provider: FakeProvider, launch: Launch) -> Instance:
    return made((await provider.reboot([launch]))[launch.node])


async def test_a_rebooted_instance_is_pending_then_running() -> None:
    cloud, provider = await started("n1")
    heard: list[tuple[str, str]] = []
    cloud.on_running.append(lambda i: heard.append(("runs", i.state)))
    cloud.on_stopped.append(lambda i: heard.append(("stopped", i.state)))
    [launch] = launches("n1")
    assert (await rebooted(provider, launch)).state is InstanceState.PENDING
    await virtual(29)
    assert states(await provider.list(CLUSTER)) == {"n1": "pending"}
    await virtual(1)
    [instance] = await provider.list(CLUSTER)
    assert (instance.created_at, instance.booted_at) == (0, 30)
    assert heard == [("stopped", "pending"), ("runs", "running")]
    assert cloud.node_at(str(instance.address)) == "n1"


async def test_only_the_user_data_changes() -> None:
    cloud, provider = await started("n1")
    [before] = cloud.alive()
    [launch] = launches("n1", zone="west")
    other = replace(launch, image="newer", flavor="large", user_data="new")
    after = await rebooted(provider, other)
    assert replace(after, state=before.state, booted_at=before.booted_at) == before
    assert cloud.user_data(after.id) == "new"


async def test_a_boot_that_a_reboot_cut_short_does_not_count() -> None:
    cloud, provider = await started("n1")
    for _ in range(2):
        await provider.reboot(launches("n1"))
        await virtual(20)
    assert states(cloud.alive()) == {"n1": "pending"}
    await virtual(10)
    assert states(cloud.alive()) == {"n1": "running"}


async def test_a_reboot_saves_from_the_death_that_awaited_the_boot_before() -> None:
    faults = Faults(boot_s=1, deaths=1, death_after_s=60, dies_as=InstanceState.BROKEN)
    cloud, provider = await started("n1", faults=faults)
    faults.deaths = 0
    await provider.reboot(launches("n1"))
    await virtual(600)
    assert states(cloud.alive()) == {"n1": "running"}


async def test_a_stale_list_shows_when_it_booted_before() -> None:
    cloud, provider = await started("n1")
    cloud.faults.stale_s = 5
    await provider.reboot(launches("n1"))
    [past] = await provider.list(CLUSTER)
    assert (past.state, past.booted_at) == (InstanceState.PENDING, 0)
    await virtual(5)
    [now] = await provider.list(CLUSTER)
    assert (now.state, now.booted_at) == (InstanceState.PENDING, 30)


# What goes wrong


async def test_an_instance_that_is_being_deleted_is_not_rebooted() -> None:
    cloud, provider = await started("n1")
    await provider.delete(cloud.alive())
    answers = await provider.reboot(launches("n1"))
    assert isinstance(answers["n1"], Transient)
    assert "being deleted" in str(answers["n1"])
    await virtual(10)
    assert isinstance((await provider.reboot(launches("n1")))["n1"], Rejected)


async def test_chosen_nodes_are_refused_and_go_on_as_they_were() -> None:
    cloud, provider = await started("n1", "n2")
    cloud.faults.refused_nodes["n2"] = Rejected("no such image")
    answers = await provider.reboot(launches("n1", "n2"))
    assert isinstance(answers["n2"], Rejected)
    assert states(cloud.alive()) == {"n1": "pending", "n2": "running"}


async def test_chance_refuses_some_reboots() -> None:
    names = [f"n{number}" for number in range(100)]
    cloud, provider = await started(*names)
    cloud.faults.refused_reboots = 0.3
    answers = await provider.reboot(launches(*names))
    refused = [node for node, answer in answers.items() if isinstance(answer, Transient)]
    assert 10 < len(refused) < 60
    assert {node for node, state in states(cloud.alive()).items() if state == "running"} == {
        *refused
    }


async def test_a_lost_reply_to_a_reboot_still_reboots() -> None:
    cloud, provider = await started("n1")
    cloud.faults.lost_replies = 1
    assert isinstance((await provider.reboot(launches("n1")))["n1"], Transient)
    assert states(cloud.alive()) == {"n1": "pending"}


async def test_a_throttled_or_denied_reboot_changes_nothing() -> None:
    cloud, provider = await started("n1")
    cloud.faults.throttled_until = 60
    assert isinstance((await provider.reboot(launches("n1")))["n1"], Transient)
    cloud.faults.denied = True
    assert isinstance((await provider.reboot(launches("n1")))["n1"], Denied)
    assert states(cloud.alive()) == {"n1": "running"}
    assert cloud.calls["reboot"] == 2


async def test_a_rebooted_instance_may_never_come_back() -> None:
    cloud, provider = await started("n1")
    cloud.faults.stuck_boots = 1
    await provider.reboot(launches("n1"))
    await virtual(100_000)
    assert states(cloud.alive()) == {"n1": "pending"}


async def test_a_severed_client_reboots_nothing() -> None:
    cloud, provider = await started("n1")
    provider.sever()
    with pytest.raises(RuntimeError, match="severed"):
        await provider.reboot(launches("n1"))
    assert states(cloud.alive()) == {"n1": "running"}
