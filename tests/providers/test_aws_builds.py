"""An image built on a cloud: the machine switches itself off, and nodes are made from its image."""

import asyncio
import time
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from springtide.batch.fake import FakeBatch
from springtide.builds import Builds
from springtide.configure.anonymise import OFF, UNHEARD, done
from springtide.configure.fake import FakeConfigurator
from springtide.configure.refreshing import Refreshing
from springtide.engine import Engine
from springtide.model import Making
from springtide.people import People
from springtide.ports import Instance, Launch, Site
from springtide.providers.aws import provider
from springtide.providers.cloud import Catalog
from springtide.record import Record
from springtide.spec import Cluster
from springtide.steps import Parts
from springtide.store import SqliteStore
from springtide.store.sqlite import connect
from tests.providers.servers.aws import Server, serving
from tests.providers.servers.aws_world import SMALL, Account, account_of

LIMIT_S = 200.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def account(server: Server, tmp_path: Path) -> Iterator[Account]:
    with account_of(server, tmp_path) as account:
        yield account


@pytest.fixture
async def builds(account: Account, tmp_path: Path) -> AsyncIterator[Builds]:
    about = {
        "cluster": "blue",
        "state": str(tmp_path),
        "batch": {"kind": "fake"},
        "provider": account.spec().model_dump(mode="json"),
        "images": {"base": {"id": account.images["base"]}, "soft": {"build": {"base": "base"}}},
        "flavors": {"small": {"type": SMALL, "cpus": 2, "memory": "3G"}},
        "groups": {"cloud": {"nodes": "c[1-2]", "flavors": ["small"], "image": "soft"}},
    }
    spec = Cluster.model_validate(about)
    store = SqliteStore(connect(":memory:"))
    nobody = FakeBatch((), lambda address: None)
    parts = Parts(spec, Record(store, time.time), {}, nobody, nobody, FakeConfigurator())  # type: ignore[arg-type]
    catalog = Catalog(ChainMap(parts.gallery.known, dict(spec.images)), spec.flavors)
    cloud = provider(account.spec(), catalog, tmp_path)
    parts.home, parts.providers, parts.site = cloud, {"cloud": cloud}, Site("10.1.2.3")
    made = Builds(parts, People(parts, Engine(parts)), Refreshing(tmp_path))
    try:
        yield made
    finally:
        await made.stop()
        await cloud.close()
        await store.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.mark.accepts("C21")
async def test_a_machine_of_a_cloud_switches_itself_off_when_its_image_is_to_be_taken(
    builds: Builds, account: Account
) -> None:
    ec2, cloud = account.server.ec2, builds.parts.home
    await builds.build("soft", "ann")
    await until(lambda: len(ec2.booted) == 1)
    (machine,) = ec2.living()
    (told,) = await cloud.list("blue")
    assert told.node == "tide-build-soft-1-x86-64"
    assert ec2.booted[machine.id].endswith(OFF)
    ec2.console = f"booted\n{done('soft-1-x86-64')}\n"
    ec2.die(machine.id)
    await until(lambda: builds.made[0].state is not Making.BUILDING)
    (image,) = builds.made
    assert image.state is Making.READY, image.detail
    await until(lambda: not ec2.living())

    wanted = builds.parts.wanted_image("cloud")
    launch = Launch("blue", "c1", 1, "cloud", wanted, "small")
    node = (await cloud.create([launch]))["c1"]
    assert isinstance(node, Instance)
    assert (wanted, node.image) == ("soft@1", "soft@1")
    assert [one.image_id for one in ec2.living()] == [image.id]
    assert (await builds.plan_clean(None, 0)).kept == {"soft@1": "new nodes of cloud get it"}
    await cloud.delete([node])


async def test_a_machine_that_is_off_before_its_scripts_have_ended_gives_no_image(
    builds: Builds, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its console may tell later what it said; here nobody waits for that."""
    monkeypatch.setattr("springtide.configure.anonymise.LAG_S", 0.0)
    ec2 = account.server.ec2
    await builds.build("soft", "ann")
    await until(lambda: len(ec2.booted) == 1)
    ec2.die(ec2.living()[0].id)
    await until(lambda: builds.made[0].state is Making.FAILED)
    assert (builds.made[0].detail, builds.made[0].log) == (UNHEARD, "booted\n")
    await until(lambda: not ec2.living())


async def test_a_spot_machine_is_rebooted_with_the_script_that_it_has(builds: Builds) -> None:
    cloud = builds.parts.home
    assert cloud.renews(())
    assert cloud.renews(("on-demand",))
    assert not cloud.renews(("on-demand", "spot"))
