"""Who is let in and who is not, where it is close: lost answers, shared user data, and crowds."""

import asyncio
import hmac
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from springtide.joining import Asked, BadAsked, NotAdmitted, parse_join
from springtide.model import NodeState, Phase
from springtide.ports import Unavailable
from springtide.spec import SpecError, parse
from springtide.steps.tickets import TOKEN_BYTES
from tests.unit.join_world import MACHINE, PEER, TEXT, VERSION, JoinWorld, Slurmlike, join_world

ONE, TWO, GATEWAY = "10.0.0.1", "10.0.0.2", "192.0.2.1"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[JoinWorld]:
    async with join_world(tmp_path) as made:
        yield made


def located(world: JoinWorld, name: str, address: str) -> None:
    """As a cloud tells it."""
    nodes = world.parts.record.nodes
    nodes[name] = replace(nodes[name], address=address)


# --- lost answers --------------------------------------------------------------------------


@pytest.mark.accepts("X17")
async def test_a_token_is_worth_nothing_once_the_key_was_used(world: JoinWorld) -> None:
    asked = await world.invited()
    first = await world.joining.join(asked, PEER)
    own = replace(asked, secret=first["key"])
    await world.joining.report(own, PEER)
    with pytest.raises(NotAdmitted, match="the token was used before"):
        await world.joining.join(asked, PEER)  # as any user of the node could
    await world.joining.report(own, PEER)


async def test_a_node_that_asks_again_before_it_was_answered_is_let_in(world: JoinWorld) -> None:
    asked = await world.invited()
    answers = await asyncio.gather(*(world.joining.join(asked, PEER) for _ in range(3)))
    good = 0
    for answer in answers:
        try:
            await world.joining.report(replace(asked, secret=answer["key"]), PEER)
            good += 1
        except NotAdmitted:
            pass
    assert good == 1
    assert len(await world.events("node joined")) == 1


async def test_of_two_machines_with_one_token_one_is_let_in(world: JoinWorld) -> None:
    asked = await world.invited()
    other = replace(asked, machine=replace(MACHINE, boot="boot-2"))
    both = (world.joining.join(asked, ONE), world.joining.join(other, TWO))
    answers = await asyncio.gather(*both, return_exceptions=True)
    (refused,) = [answer for answer in answers if isinstance(answer, NotAdmitted)]
    assert "the token was used before" in str(refused)


async def test_a_node_that_boots_with_its_key_has_no_use_for_a_token(world: JoinWorld) -> None:
    own, _ = await world.joined()
    world.now += 100
    token = await world.token(world.parts.record.nodes["b1"])  # as it is started afresh
    fresh = replace(own, secret=token, machine=replace(MACHINE, boot="boot-2"))
    started = Phase("b1", 1, "started", world.now, 5.0)
    await world.joining.refresh(replace(own, machine=fresh.machine, phases=(started,)), PEER)
    with pytest.raises(NotAdmitted, match="the token was used before"):
        await world.joining.join(fresh, PEER)
    await world.joining.report(own, PEER)


async def test_a_node_that_is_made_anew_in_place_joins_with_its_fresh_token(
    world: JoinWorld,
) -> None:
    own, _ = await world.joined()
    world.now += 100
    token = await world.token(world.parts.record.nodes["b1"])
    await world.joining.refresh(own, PEER)  # its former system, before it goes down
    fresh = replace(own, secret=token, machine=replace(MACHINE, boot="boot-2"))
    answer = await world.joining.join(fresh, PEER)
    assert answer["key"] not in (own.secret, token)
    assert len(await world.events("node joined")) == 2


# --- tokens that others can read -------------------------------------------------------------


@pytest.mark.accepts("X17")
@pytest.mark.parametrize("known", [True, False])
async def test_a_node_does_not_join_in_the_place_of_another(world: JoinWorld, known: bool) -> None:
    await world.joined("b1", ONE)
    if known:
        located(world, "b1", ONE)
    asked = await world.invited("b2")
    with pytest.raises(NotAdmitted, match="from the address of another node"):
        await world.joining.join(asked, ONE)
    (event,) = await world.events("join refused")
    assert (event.node, event.detail) == (
        "b2",
        f"it asks from the address of another node, b1; asked from {ONE}",
    )
    await world.joining.join(asked, TWO)


async def test_nodes_behind_one_gateway_join(world: JoinWorld) -> None:
    for name, address in (("b1", ONE), ("b2", TWO)):
        asked = await world.invited(name)
        located(world, name, address)
        await world.joining.join(asked, GATEWAY)
    assert [event.node for event in await world.events("node joined")] == ["b1", "b2"]


async def test_an_address_that_the_cloud_gave_to_the_node_is_its_own(world: JoinWorld) -> None:
    await world.joined("b1", ONE)
    located(world, "b1", ONE)  # it is leaving, and the cloud has let go of its address
    asked = await world.invited("b2")
    with pytest.raises(NotAdmitted) as caught:
        await world.joining.join(asked, ONE)
    assert not caught.value.final
    located(world, "b2", ONE)
    await world.joining.join(asked, ONE)


async def test_the_address_of_a_former_instance_is_nobodys(world: JoinWorld) -> None:
    await world.joined("b1", ONE)
    await world.moved("b1", NodeState.DELETING, NodeState.OFF)
    await world.joined("b2", ONE)
    assert [event.node for event in await world.events("node joined")] == ["b1", "b2"]
    assert await world.events("join refused") == []


# --- time ----------------------------------------------------------------------------------


async def test_a_launch_that_is_repeated_late_has_time_to_boot(world: JoinWorld) -> None:
    node = await world.requested()
    first = await world.token(node)
    world.now += 590
    assert await world.token(node) == first
    world.now += 20
    later = await world.token(node)
    assert later != first
    assert float(later.partition(".")[0]) >= world.now + world.spec.timing.start


# --- crowds --------------------------------------------------------------------------------


class Slow(Slurmlike):
    """That counts how often it is asked, and may not answer."""

    asked = 0
    down = False

    async def version(self) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        if self.down:
            raise Unavailable("slurmctld is away")
        return VERSION


async def test_one_question_for_its_version_serves_all_who_come_at_once(world: JoinWorld) -> None:
    batch = Slow(world.spec.node_group, lambda address: None)
    world.parts.batch = batch
    come = [(await world.invited(name), peer) for name, peer in (("b1", ONE), ("b2", TWO))]
    await asyncio.gather(*(world.joining.join(asked, peer) for asked, peer in come))
    assert batch.asked == 1


async def test_a_slurmctld_that_is_away_is_not_asked_each_time(world: JoinWorld) -> None:
    world.parts.batch = batch = Slow(world.spec.node_group, lambda address: None)
    batch.down = True
    asked, _ = await world.joined()
    await world.joining.refresh(asked, PEER)
    assert batch.asked == 1
    world.now += 6
    await world.joining.refresh(asked, PEER)
    assert batch.asked == 2


async def test_strangers_cause_few_events_and_hide_no_others(tmp_path: Path) -> None:
    async with join_world(tmp_path, TEXT.replace("b[1-4]", "b[1-100]")) as world:
        token = await world.invited()
        for number in range(1, 101):
            with pytest.raises(NotAdmitted):
                await world.joining.join(Asked("blue", f"b{number}", 7, "x", MACHINE), GATEWAY)
        assert len(await world.events("join refused")) == 20
        world.now += 1202
        with pytest.raises(NotAdmitted, match="expired"):
            await world.joining.join(token, PEER)
        assert "expired" in (await world.events("join refused"))[-1].detail


async def test_strangers_do_not_learn_which_nodes_there_are(world: JoinWorld) -> None:
    await world.requested("b1")
    heard = set()
    for name, generation in (("b1", 1), ("b1", 7), ("b2", 0), ("b9", 1)):
        with pytest.raises(NotAdmitted) as caught:
            await world.joining.join(Asked("blue", name, generation, "x", MACHINE), GATEWAY)
        heard.add(str(caught.value).removeprefix(name))
    assert len(heard) == 1


# --- what they get -------------------------------------------------------------------------


async def test_a_refresh_may_ask_for_some_features_only(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    world.layout.munge_key.unlink()  # nobody looks
    answer = await world.joining.refresh(replace(asked, only=("names", "users", "magic")), PEER)
    assert answer["features"] == ["names", "users"]
    assert not {"munge", "ssh", "health", "slurmd"} & set(answer)


def test_what_a_node_asks_for_is_a_list_of_names() -> None:
    body = {"cluster": "blue", "node": "b1", "generation": 1, "key": "k"}
    machine = {"cpus": 1, "memory": 1, "clock": 1}
    assert parse_join({**body, "machine": machine, "only": ["names"]}, "key").only == ("names",)
    for wrong in ("names", [1], {"names": 1}):
        with pytest.raises(BadAsked):
            parse_join({**body, "machine": machine, "only": wrong}, "key")


async def test_a_node_whose_group_left_the_file_is_refused(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    nodes = world.parts.record.nodes
    nodes["b1"] = replace(nodes["b1"], group="former")
    with pytest.raises(NotAdmitted, match="its group former is not in the cluster file"):
        await world.joining.refresh(asked, PEER)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://git.example/site.git", True),
        ("ssh://git@git.example/site.git", True),
        ("https://git.example/a@b.git", True),
        ("https://me:secret@git.example/site.git", False),
        ("https://secret@git.example/site.git", False),
        ("ssh://git:secret@git.example/site.git", False),
    ],
)
def test_an_address_that_nodes_are_told_has_no_password(url: str, good: bool) -> None:
    text = TEXT.replace("STATE", "/tmp/x").replace("PORT", "6821")
    text += f'ansible: {{pull: {{url: "{url}"}}}}\n'
    if good:
        parse(text, "blue.yaml")
        return
    with pytest.raises(SpecError) as caught:
        parse(text, "blue.yaml")
    assert "without user and password" in str(caught.value)
    assert "secret" not in str(caught.value)


# --- what tokens are made with -------------------------------------------------------------


@pytest.mark.accepts("X17")
async def test_no_tokens_are_made_with_a_secret_that_a_power_failure_left_empty(
    world: JoinWorld,
) -> None:
    secret = world.layout.join / "secret"
    secret.write_bytes(b"")
    asked = await world.invited("b1")
    expiry = asked.secret.partition(".")[0]
    forged = hmac.new(b"", f"blue\nb1\n1\n{expiry}".encode(), sha256).digest()[:TOKEN_BYTES]
    assert asked.secret != f"{expiry}.{urlsafe_b64encode(forged).decode().rstrip('=')}"
    assert (await world.joining.join(asked, PEER))["key"]
