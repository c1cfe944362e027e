"""libvirt: machines that exist are switched on and off, and those of others are left alone."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from springtide.ports import Instance, InstanceState, Provider, Rejected
from springtide.providers.libvirt.marks import SPACE
from tests.libvirt.daemon import NETWORK, connected, libvirt
from tests.libvirt.daemon import Libvirt as Running
from tests.providers.conformance import Conformance
from tests.providers.libvirt_world import Place, clean, place, powered
from tests.providers.world import BLUE, GREEN, World, delete_until_gone, instances, launch, prepared
from tests.providers.world import running as all_running

pytestmark = pytest.mark.real

COUNT = 6
BOTH = 3
ADD, DHCP_HOST = 3, 4


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """The site has bound addresses to its machines."""
    with libvirt() as running:
        with connected(running) as connection:
            network = connection.networkLookupByName(NETWORK)
            for number in range(COUNT):
                entry = f"<host mac='{mac(number)}' ip='{running.subnet[20 + number]}'/>"
                network.update(ADD, DHCP_HOST, -1, entry, BOTH)
        yield running


def mac(number: int) -> str:
    return f"52:54:00:00:00:{number:02x}"


def machine(number: int) -> str:
    return f"""\
<domain type='qemu'>
  <name>n{number}</name>
  <memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/><tcg><tb-cache unit='MiB'>8</tb-cache></tcg></features>
  <devices>
    <interface type='network'>
      <mac address='{mac(number)}'/><source network='{NETWORK}'/><rom enabled='no'/>
    </interface>
    <memballoon model='none'/>
    <controller type='usb' model='none'/>
  </devices>
</domain>
"""


@pytest.fixture
def here(running: Running) -> Iterator[Place]:
    one = place(running)
    with connected(running) as connection:
        for number in range(COUNT):
            connection.defineXML(machine(number))
    yield one
    clean(one)


@pytest.fixture
def world(here: Place) -> World:
    return powered(here)


@pytest.mark.accepts("C30", "B3")
class TestPower(Conformance):
    async def test_clusters_with_the_same_node_names_do_not_touch_each_other(
        self, world: World
    ) -> None:
        """A machine is one cluster's at a time: here the other is refused until it is off."""
        blue, green = await prepared(world, BLUE), await prepared(world, GREEN)
        await blue.create([launch(world, BLUE, "n0")])
        refused = (await green.create([launch(world, GREEN, "n0")]))["n0"]
        assert isinstance(refused, Rejected)
        assert BLUE in str(refused)
        assert await green.list(GREEN) == []
        await green.remove(GREEN)
        assert len(await all_running(blue, BLUE, 1)) == 1
        await delete_until_gone(blue, BLUE)
        assert len(instances(await green.create([launch(world, GREEN, "n0")]))) == 1


def switch(here: Place, name: str, on: bool) -> None:
    with connected(here.running) as connection:
        domain = connection.lookupByName(name)
        (domain.create if on else domain.destroy)()


def is_on(here: Place, name: str) -> bool:
    with connected(here.running) as connection:
        return bool(connection.lookupByName(name).isActive())


def definition(here: Place, name: str) -> str:
    with connected(here.running) as connection:
        return str(connection.lookupByName(name).XMLDesc(2))


@pytest.mark.accepts("B3")
async def test_a_machine_is_on_and_marked_or_off_as_it_was_before(
    here: Place, world: World
) -> None:
    provider, before = await prepared(world, BLUE), definition(here, "n1")
    (made,) = instances(await provider.create([launch(world, BLUE, "n1")]))
    assert is_on(here, "n1")
    assert SPACE in definition(here, "n1")
    assert made.address == str(here.running.subnet[21])
    await delete_until_gone(provider, BLUE)
    assert not is_on(here, "n1")
    assert definition(here, "n1").replace("  <metadata/>\n", "") == before


@pytest.mark.accepts("B3")
async def test_a_machine_that_runs_without_us_is_never_touched(here: Place, world: World) -> None:
    provider = await prepared(world, BLUE)
    switch(here, "n2", on=True)
    answer = (await provider.create([launch(world, BLUE, "n2")]))["n2"]
    assert isinstance(answer, Rejected)
    assert "not by us" in str(answer)
    ghost = Instance(f"{BLUE}.n2.1", BLUE, "n2", 1, InstanceState.RUNNING)
    assert await provider.delete([ghost]) == {}
    assert isinstance((await provider.reboot([launch(world, BLUE, "n2")]))["n2"], Rejected)
    await provider.remove(BLUE)
    assert is_on(here, "n2")
    switch(here, "n2", on=False)
    assert len(instances(await provider.create([launch(world, BLUE, "n2")]))) == 1


async def test_a_switch_on_that_broke_off_is_completed(here: Place, world: World) -> None:
    """The mark was written, and then the daemon died."""
    provider = await prepared(world, BLUE)
    await provider.create([launch(world, BLUE, "n3")])
    mark = definition(here, "n3").partition("<metadata>")[2].partition("</metadata>")[0]
    switch(here, "n3", on=False)
    with connected(here.running) as connection:
        begun = mark.replace('starting="0"', 'starting="1"')
        assert begun != mark
        connection.defineXML(definition(here, "n3").replace(mark, begun))
    await provider.close()
    other = world.open(BLUE)
    assert await other.list(BLUE) == []
    (made,) = instances(await other.create([launch(world, BLUE, "n3")]))
    assert [one.id for one in await all_running(other, BLUE, 1)] == [made.id]


async def test_a_machine_is_asked_to_shut_down_and_cut_off_when_it_does_not(here: Place) -> None:
    """These have nobody who could listen."""
    patient: Provider = here.open(BLUE, nodes="power", grace=1.0)
    world = replace(powered(here), open=lambda _: patient)
    made = instances(await patient.create([launch(world, BLUE, "n4")]))
    assert await patient.delete(made) == {}
    (going,) = await patient.list(BLUE)
    assert going.state is InstanceState.DELETING
    assert is_on(here, "n4")
    await delete_until_gone(patient, BLUE)
    assert not is_on(here, "n4")


async def test_a_machine_that_shut_down_as_asked_is_gone_and_can_come_again(here: Place) -> None:
    patient: Provider = here.open(BLUE, nodes="power", grace=600)
    world = replace(powered(here), open=lambda _: patient)
    made = instances(await patient.create([launch(world, BLUE, "n5")]))
    await patient.delete(made)
    switch(here, "n5", on=False)
    assert await patient.list(BLUE) == []
    (again,) = instances(await patient.create([launch(world, BLUE, "n5", 2)]))
    assert again.generation == 2
    assert [one.id for one in await all_running(patient, BLUE, 1)] == [again.id]
