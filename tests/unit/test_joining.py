"""Nodes that join: one token for one instance, once; whoever else comes is refused and recorded."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from springtide.configure import node_ssh
from springtide.configure.ansible import ansible_of
from springtide.daemon import Daemon
from springtide.joining import Asked, BadAsked, NotAdmitted, parse_join, parse_report
from springtide.joining.asked import corrected
from springtide.joining.machines import refused_by_slurm
from springtide.model import NodeState, Phase
from springtide.node.fit import decide_fit
from springtide.steps.bootlogs import read_kept
from tests.unit.join_world import MACHINE, PEER, TEXT, VERSION, JoinWorld, join_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[JoinWorld]:
    async with join_world(tmp_path) as made:
        yield made


SILENT = "`tide events` on the control host says why"
"""What those hear who show nothing that was ever the node's."""


async def refusal(world: JoinWorld, asked: Asked, peer: str = PEER) -> str:
    with pytest.raises(NotAdmitted) as caught:
        await world.joining.join(asked, peer)
    assert caught.value.final
    return str(caught.value)


# --- tokens ------------------------------------------------------------------------------


@pytest.mark.accepts("X17")
async def test_a_node_gets_all_it_needs_for_its_token(world: JoinWorld) -> None:
    asked, answer = await world.joined()
    assert answer["features"][-1] == "slurmd"
    assert answer["slurmd"]["server"] == "127.0.0.1:6817"
    assert answer["munge"]["key"]
    assert await world.joining.report(asked, PEER) == {}
    (event,) = await world.events("node joined")
    assert event.node == "b1"
    assert event.detail == f"from {PEER}; slurmd {VERSION}, 2 cpus, 1000 MiB, x86_64"


@pytest.mark.accepts("X17")
async def test_a_token_is_good_once(world: JoinWorld) -> None:
    asked = await world.invited()
    await world.joining.join(asked, PEER)
    world.now += 1
    other = replace(asked, machine=replace(MACHINE, boot="boot-2"))
    assert "the token was used before" in await refusal(world, other)
    (event,) = await world.events("join refused")
    assert event.node == "b1"
    assert event.detail == f"the token was used before; asked from {PEER}"


async def test_a_node_whose_answer_got_lost_is_answered_again(world: JoinWorld) -> None:
    asked = await world.invited()
    first = await world.joining.join(asked, PEER)
    world.now += 1000
    again = await world.joining.join(asked, PEER)
    assert again["key"] != first["key"]
    with pytest.raises(NotAdmitted, match="b1 is not let in"):
        await world.joining.report(replace(asked, secret=first["key"]), PEER)
    await world.joining.report(replace(asked, secret=again["key"]), PEER)
    assert len(await world.events("node joined")) == 1


@pytest.mark.parametrize(("late_s", "peer"), [(1202, PEER), (1, "10.9.9.9")])
async def test_but_not_later_nor_from_elsewhere(world: JoinWorld, late_s: float, peer: str) -> None:
    asked = await world.invited()
    await world.joining.join(asked, PEER)
    world.now += late_s
    assert "the token was used before" in await refusal(world, asked, peer)


@pytest.mark.accepts("X17")
async def test_an_expired_token_is_refused(world: JoinWorld) -> None:
    asked = await world.invited()
    world.now += 1202
    assert "the token has expired" in await refusal(world, asked)


@pytest.mark.accepts("X17")
async def test_foreign_tokens_are_refused(world: JoinWorld) -> None:
    asked, other = await world.invited(), await world.invited("b2")
    for foreign in (
        replace(asked, cluster="red", secret="guess"),
        replace(asked, node="b99"),
        replace(asked, secret=other.secret),
        replace(asked, generation=7),
    ):
        told = await refusal(world, foreign)
        assert told == f"{foreign.node} is not let in: {SILENT}"
    assert [event.detail.partition(";")[0] for event in await world.events("join refused")] == [
        "it is of another cluster",
        "there is no such node",
        "the token is not this node's",
        "it is another instance than the node has now",
    ]
    await world.joining.join(asked, PEER)


async def test_the_token_of_a_former_instance_is_refused(world: JoinWorld) -> None:
    former = await world.invited()
    await world.moved("b1", NodeState.DELETING, NodeState.OFF)
    assert "to have no instance now" in await refusal(world, former)
    await world.invited()
    assert "another instance" in await refusal(world, former)
    forged = replace(former, generation=2)
    assert SILENT in await refusal(world, forged)


async def booting(world: JoinWorld, name: str = "b1") -> Asked:
    """What a node says whose address is known."""
    asked = await world.invited(name)
    node = world.parts.record.nodes[name]
    move = node.to(NodeState.BOOTING, instance="i-1", address=PEER)
    await world.parts.record.move([move], "instance created")
    return asked


TORQUE = (
    TEXT.replace("{kind: fake}", "{kind: torque}")
    + "partitions: {cloud: {groups: [general, bare]}}\nansible: {}\n"
)


async def test_a_program_waits_until_the_batch_system_is_told_where_its_node_is(
    tmp_path: Path,
) -> None:
    """A pbs_mom that Torque does not expect yet is refused by it, for 45 s."""
    async with join_world(tmp_path, TORQUE) as world:
        asked = await booting(world)
        told = await world.joining.join(asked, PEER)
        assert told["entry"]["early"] == "Torque is not told yet where this machine is"
        await world.moved("b1", NodeState.JOINING)
        told = await world.joining.refresh(replace(asked, secret=told["key"]), PEER)
        assert "early" not in told["entry"]


async def test_ansible_need_not_wait_for_the_batch_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy tells Torque where nodes are only after Ansible was on them."""
    async with join_world(tmp_path, TORQUE) as world:
        made = ansible_of(world.spec, world.parts.record.store, "head", world.layout.munge_key)
        assert made is not None
        monkeypatch.setattr(node_ssh, "unserved", AsyncMock(return_value=""))
        asked = await booting(world)
        assert "has not got our keys yet" in await made.kept_out(world.parts.record.nodes["b1"])
        told = await world.joining.join(asked, PEER)
        assert told["ssh"]["authorized"]
        phase = Phase("b1", asked.generation, "ssh", world.now, 1.0)
        await world.joining.report(replace(asked, secret=told["key"], phases=(phase,)), PEER)
        assert await made.kept_out(world.parts.record.nodes["b1"]) == ""


def cause(world: JoinWorld) -> str:
    """What is kept as the cause if b1 does not come up."""
    kept = read_kept(world.layout.boots, "b1", None)
    return kept.text.removeprefix("the node gave up: ").rstrip() if kept else ""


async def test_why_its_own_machine_was_refused_is_kept_as_the_cause_until_it_joins(
    world: JoinWorld,
) -> None:
    asked = await booting(world)
    await refusal(world, replace(asked, secret="guess"))
    assert cause(world) == f"it was not let in: the token is not this node's; asked from {PEER}"
    await world.joining.join(asked, PEER)
    assert cause(world) == ""
    await refusal(world, replace(asked, machine=replace(MACHINE, boot="boot-2")))
    assert cause(world) == f"it was not let in: the token was used before; asked from {PEER}"


async def test_so_it_is_if_its_token_has_expired_wherever_it_asks_from(world: JoinWorld) -> None:
    asked = await world.invited()
    world.now += 1202
    await refusal(world, asked)
    assert cause(world) == f"it was not let in: the token has expired; asked from {PEER}"


async def test_but_no_stranger_is_the_cause_of_what_becomes_of_a_node(world: JoinWorld) -> None:
    asked = await booting(world)
    await refusal(world, replace(asked, secret="guess"), "10.9.9.9")
    await world.joining.join(asked, PEER)
    await refusal(world, asked, "10.9.9.9")
    await world.moved("b1", NodeState.JOINING, NodeState.READY)
    await refusal(world, replace(asked, secret="guess"))
    assert cause(world) == ""


async def test_a_node_of_a_group_that_does_not_join_has_no_token(world: JoinWorld) -> None:
    node = await world.requested("x1")
    assert await world.parts.tickets.issue(world.spec, [node]) == {}
    asked = Asked("blue", "x1", 1, "1.x", MACHINE)
    assert SILENT in await refusal(world, asked)


async def test_who_asks_often_does_not_fill_the_disk(world: JoinWorld) -> None:
    asked = await world.invited()
    for _ in range(50):
        await refusal(world, replace(asked, secret="guess"))
        await refusal(world, replace(asked, node="nobody"))
        world.now += 1
    assert len(await world.events("join refused")) == 2
    world.now += 61
    await refusal(world, replace(asked, secret="guess"))
    assert len(await world.events("join refused")) == 3


async def test_no_event_tells_a_token_or_a_key(world: JoinWorld) -> None:
    asked, answer = await world.joined()
    token = (await world.invited("b2")).secret
    await refusal(world, replace(asked, secret=token))
    text = repr(await world.parts.record.store.events())
    assert answer["key"] not in text
    assert token not in text
    tickets = repr(await world.parts.record.store.tickets())
    assert answer["key"] not in tickets


async def test_before_the_deploy_a_node_is_asked_to_wait(tmp_path: Path) -> None:
    async with join_world(tmp_path) as world:
        asked = await world.invited()
        world.parts.site = None
        with pytest.raises(NotAdmitted, match="not deployed yet") as caught:
            await world.joining.join(asked, PEER)
        assert not caught.value.final
        await world.parts.load()
        await world.joining.join(asked, PEER)  # its token was not spent


async def test_what_the_control_host_lacks_is_told_and_no_token_is_spent(world: JoinWorld) -> None:
    asked = await world.invited()
    world.layout.munge_key.rename(world.layout.munge_key.with_name("away"))
    with pytest.raises(NotAdmitted, match=r"munge\.key: No such file") as caught:
        await world.joining.join(asked, PEER)
    assert not caught.value.final
    assert await world.events("nodes cannot join")
    world.layout.munge_key.with_name("away").rename(world.layout.munge_key)
    await world.joining.join(asked, PEER)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("users: {sssd: FILE}", "no text in UTF-8: invalid start byte"),
        ("certificates: [FILE]", "no certificate in PEM: invalid start byte"),
    ],
)
async def test_a_file_that_is_no_text_is_named_to_people_and_to_the_node(
    tmp_path: Path, more: str, why: str
) -> None:
    file = tmp_path / "file"
    file.write_text("größer", "latin-1")
    async with join_world(tmp_path, f"{TEXT}{more}\n".replace("FILE", str(file))) as world:
        asked = await world.invited()
        with pytest.raises(NotAdmitted) as caught:
            await world.joining.join(asked, PEER)
        words = f"the control host lacks something: {file}: {why}"
        assert (str(caught.value), caught.value.final) == (words, False)
        (event,) = await world.events("nodes cannot join")
        assert event.detail == f"{file}: {why}"
        kept = read_kept(world.layout.boots, "b1", None)
        assert kept is not None
        assert words in kept.text
        file.write_text("now it is")
        await world.joining.join(asked, PEER)


# --- keys --------------------------------------------------------------------------------


async def test_a_key_is_for_its_own_node(world: JoinWorld) -> None:
    one, _ = await world.joined("b1")
    two, _ = await world.joined("b2", "10.0.0.2")
    for do in (world.joining.report, world.joining.refresh):
        with pytest.raises(NotAdmitted, match="b2 is not let in"):
            await do(replace(two, secret=one.secret), PEER)


async def test_a_key_ends_with_its_instance(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    await world.moved("b1", NodeState.DELETING)
    with pytest.raises(NotAdmitted, match="to have no instance now"):
        await world.joining.refresh(asked, PEER)
    await world.moved("b1", NodeState.OFF)
    await world.invited()
    with pytest.raises(NotAdmitted, match="b1 is not let in"):
        await world.joining.refresh(asked, PEER)
    assert "another instance" in (await world.events("join refused"))[-1].detail


async def test_a_rebooted_node_asks_again_with_its_key(world: JoinWorld) -> None:
    asked, first = await world.joined()
    await world.token(world.parts.record.nodes["b1"])  # as a reboot issues one
    answer = await world.joining.refresh(asked, PEER)
    assert answer == {**{k: v for k, v in first.items() if k != "key"}}
    assert "key" not in answer


async def test_a_token_is_no_key(world: JoinWorld) -> None:
    asked = await world.invited()
    await world.joining.join(asked, PEER)
    with pytest.raises(NotAdmitted, match="the key is not this instance's"):
        await world.joining.report(asked, PEER)


# --- what they are -----------------------------------------------------------------------


async def test_a_machine_smaller_than_told_is_an_event_that_says_what_to_set(
    world: JoinWorld,
) -> None:
    asked = await world.invited()
    await world.joining.join(replace(asked, machine=replace(MACHINE, memory=900, cpus=1)), PEER)
    (event,) = await world.events("node smaller than told")
    assert "set memory of flavor small to 900M or less" in event.detail
    assert "it has 1 CPUs and Slurm is told 2: set cpus of flavor small to 1" in event.detail


@pytest.mark.accepts("N17")
async def test_another_version_of_slurm_is_told(world: JoinWorld) -> None:
    asked = await world.invited()
    await world.joining.join(replace(asked, machine=replace(MACHINE, slurm="21.08.5")), PEER)
    (event,) = await world.events("version differs")
    assert event.detail == (
        "its slurmd is 21.08.5, slurmctld is 22.05.8; use an image with 22.05.8"
    )


@pytest.mark.accepts("N17")
async def test_a_version_that_slurm_would_refuse_ends_the_boot(world: JoinWorld) -> None:
    asked = await world.invited()
    newer = replace(asked, machine=replace(MACHINE, slurm="24.11.5"))
    assert "24.11.5 is newer than slurmctld 22.05.8" in await refusal(world, newer)
    assert world.parts.gave_up["b1"][0] == 1
    (event,) = await world.events("join refused")
    assert "use an image with Slurm 22.05.8" in event.detail


@pytest.mark.parametrize(
    ("node", "control", "refused"),
    [
        ("22.05.8", "22.05.2", False),
        ("20.11.4", "22.05.8", False),
        ("20.02.7", "22.05.8", True),
        ("23.02.0", "22.05.8", True),
        ("23.02.1", "24.11.5", False),
        ("22.05.8", "24.11.5", True),
        ("24.05.1", "26.05.0", True),
        ("24.11.1", "26.05.0", False),
        ("", "22.05.8", False),
        ("22.05.8", "", False),
        ("unknown", "22.05.8", False),
    ],
)
def test_slurm_takes_two_older_releases_and_of_late_three(
    node: str, control: str, refused: bool
) -> None:
    assert bool(refused_by_slurm(replace(MACHINE, slurm=node), control)) is refused


RELEASES = [
    "20.11",
    "21.08",
    "22.05",
    "23.02",
    "23.11",
    "24.05",
    "24.11",
    "25.05",
    "25.11",
    "26.05",
]


@pytest.mark.parametrize("control", RELEASES[2:])
def test_an_image_knows_by_itself_which_slurmctld_takes_it(control: str) -> None:
    for node in RELEASES:
        known = refused_by_slurm(replace(MACHINE, slurm=node), control)
        alone = decide_fit({"slurm": node, "memory": 1, "cpus": 1}, {"version": control})
        assert bool(known) is bool(alone), node


# --- how it went -------------------------------------------------------------------------


async def test_phases_are_kept_once_though_they_are_told_twice(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    phases = tuple(
        Phase("b1", 1, name, world.now + at, 0.5) for at, name in enumerate(["started", "munge"])
    )
    world.now += 5
    for _ in range(3):
        await world.joining.report(replace(asked, machine=MACHINE, phases=phases), PEER)
    assert tuple(await world.parts.record.store.phases("b1")) == phases


async def test_the_phases_of_a_boot_seconds_after_another_are_all_kept(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    world.now += 5
    boots = [
        [
            Phase("b1", 1, "started", world.now - 3, 62.8),
            Phase("b1", 1, "slurmd", world.now - 2, 1),
        ],
        [
            Phase("b1", 1, "started", world.now - 1.5, 64.3),
            Phase("b1", 1, "slurmd", world.now - 0.5, 1),
        ],
    ]
    for phase in (phase for boot in boots for phase in boot):
        await world.joining.report(replace(asked, machine=MACHINE, phases=(phase,)), PEER)
    assert await world.parts.record.store.phases("b1") == [p for boot in boots for p in boot]


async def test_a_phase_that_succeeds_after_it_failed_is_kept(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    world.now += 5
    tries = (
        Phase("b1", 1, "mounts", world.now - 1, 0.1, "failed: nas does not answer"),
        Phase("b1", 1, "mounts", world.now, 1.1),
    )
    for phase in tries:
        await world.joining.report(replace(asked, machine=MACHINE, phases=(phase,)), PEER)
    assert tuple(await world.parts.record.store.phases("b1")) == tries


def test_phases_of_a_wrong_clock_are_corrected() -> None:
    phases = [Phase("b1", 1, "started", 5000.0), Phase("b1", 1, "joined", 5002.0)]
    assert [p.at for p in corrected(phases, 5002.0, 1002.0)] == [1000.0, 1002.0]
    assert [p.at for p in corrected(phases, None, 1002.0)] == [1000.0, 1002.0]
    assert corrected(phases, 5002.5, 5002.0) == phases


async def test_phases_of_a_report_are_corrected_by_the_clock_in_it(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    phase = {"name": "started", "at": world.now - 5002.0}
    body = {"cluster": "blue", "node": "b1", "generation": 1, "key": asked.secret}
    report = parse_report({**body, "phases": [phase], "clock": world.now - 5000.0})
    await world.joining.report(report, PEER)
    assert [one.at for one in await world.parts.record.store.phases("b1")] == [world.now - 2.0]
    with pytest.raises(BadAsked):
        parse_report({**body, "clock": "noon"})


@pytest.mark.accepts("X16")
async def test_a_failed_boot_leaves_its_reason_and_its_log(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    log = "mount: nas:/home: No route to host\n"
    failed = replace(asked, failed="mounts: /home cannot be mounted", log=log)
    await world.joining.report(failed, PEER)
    (event,) = await world.events("boot failed")
    assert (event.node, event.detail) == ("b1", "mounts: /home cannot be mounted")
    kept = read_kept(world.layout.boots, "b1", None)
    assert kept is not None
    assert kept.text == f"the node gave up: mounts: /home cannot be mounted\n{log}"
    assert world.parts.gave_up == {}


async def test_the_log_of_a_boot_that_succeeds_in_the_end_is_forgotten(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    await world.joining.report(replace(asked, failed="mounts: not yet", log="x"), PEER)
    last = Phase("b1", 1, "slurmd", world.now, 0.1)
    await world.joining.report(replace(asked, phases=(last,)), PEER)
    assert read_kept(world.layout.boots, "b1", None) is None


async def test_a_final_failure_is_known_to_who_waits_until_the_node_boots_anew(
    world: JoinWorld,
) -> None:
    asked, _ = await world.joined()
    await world.joining.report(replace(asked, failed="no slurmd", final=True), PEER)
    assert world.parts.gave_up == {"b1": (1, "no slurmd")}
    await world.joining.refresh(asked, PEER)  # as it does before it tries again
    assert world.parts.gave_up == {"b1": (1, "no slurmd")}
    await world.joining.refresh(replace(asked, machine=replace(MACHINE, boot="boot-2")), PEER)
    assert world.parts.gave_up == {}


async def restarted(world: JoinWorld) -> None:
    """All that is in memory is gone."""
    world.parts.gave_up.clear()
    world.daemon = Daemon(world.parts, world.layout)
    await world.joining.load()


async def test_a_final_failure_outlasts_the_daemon_but_not_the_boot(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    await world.joining.report(replace(asked, failed="no slurmd", final=True), PEER)
    await restarted(world)
    await world.joining.refresh(asked, PEER)
    assert world.parts.gave_up == {"b1": (1, "no slurmd")}
    await world.joining.refresh(replace(asked, machine=replace(MACHINE, boot="boot-2")), PEER)
    await restarted(world)
    assert world.parts.gave_up == {}


async def test_a_node_that_gave_up_and_succeeds_after_all_is_waited_for(world: JoinWorld) -> None:
    asked, _ = await world.joined()
    await world.joining.report(replace(asked, failed="no slurmd", final=True), PEER)
    last = Phase("b1", 1, "slurmd", world.now, 0.1)
    await world.joining.report(replace(asked, phases=(last,)), PEER)
    assert world.parts.gave_up == {}


# --- what they say -----------------------------------------------------------------------

GOOD = {
    "cluster": "blue",
    "node": "b1",
    "generation": 1,
    "token": "t",
    "machine": {"arch": "x86_64", "cpus": 2, "memory": 1000, "slurm": "", "boot": "b", "clock": 1},
    "phases": [{"name": "started", "at": 1.0, "took_s": 0.1, "detail": "a\x1b[2Jb"}],
}


def test_what_nodes_say_is_read() -> None:
    asked = parse_join(json.loads(json.dumps(GOOD)), "token")
    assert (asked.node, asked.secret, asked.machine.cpus) == ("b1", "t", 2)
    assert asked.phases == (Phase("b1", 1, "started", 1.0, 0.1, "a [2Jb"),)


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": None},
        {"node": ["b1"]},
        {"node": "b\n1"},
        {"node": "b" * 1000},
        {"generation": "1"},
        {"generation": True},
        {"generation": -1},
        {"token": ""},
        {"token": 5},
        {"machine": None},
        {"machine": {**GOOD["machine"], "cpus": 1e300}},  # type: ignore[dict-item]
        {"machine": {**GOOD["machine"], "clock": float("nan")}},  # type: ignore[dict-item]
        {"machine": {**GOOD["machine"], "host_keys": "x"}},  # type: ignore[dict-item]
        {"phases": "started"},
        {"phases": [1]},
        {"phases": [{"name": "; rm", "at": 1}]},
        {"phases": [{"name": "started", "at": float("inf")}]},
        {"phases": [{"name": "started", "at": 1, "detail": 7}]},
    ],
)
def test_what_is_not_of_the_protocol_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadAsked):
        parse_join({**GOOD, **change}, "token")


def test_a_report_is_cut_to_a_length() -> None:
    body = {**GOOD, "key": "k", "failed": "x\n" * 5000, "log": "y" * 200_000, "final": True}
    asked = parse_report(body)
    assert len(asked.failed) == 300
    assert len(asked.log) == 60_000
    assert asked.final
    for wrong in ({"final": 1}, {"log": 1}, {"failed": 3}):
        with pytest.raises(BadAsked):
            parse_report({**body, **wrong})
