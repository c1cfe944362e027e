"""Clusters whose batch system is read, put together: what they need, and how nodes boot."""

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from typing import Any

import pytest

from springtide import compose_queue
from springtide.batch import openpbs_mom, torque_mom
from springtide.batch.fake_queue import FakeQueue
from springtide.batch.gridengine_commands import TRUST
from springtide.batch.marks import Course, Mark
from springtide.batch.polled import Polled
from springtide.cli import checks, detached, queue_checks, serving
from springtide.cli.client import Client
from springtide.cli.subject import Check, subject
from springtide.compose import compose
from springtide.compose_queue import (
    NOWHERE,
    UNUSED,
    _nowhere,
    _servers,
    members,
    planned,
    queue_of,
)
from springtide.configure import lookup
from springtide.configure.membership import Around, Newcomer
from springtide.configure.queue_node import HERE
from springtide.daemon import Daemon, DaemonError, WrongFile
from springtide.layout import Layout
from springtide.model import Node
from springtide.ports import Member, Site, Unavailable
from springtide.spec import Cluster, SpecError, Torque, environment, parse
from tests.unit.cli_world import TIDE, run, wait_until

TEXT = """\
cluster: hy
state: {place}/state
batch: {{kind: {kind}, bin: {place}/bin, hosts: {place}/hosts}}
flavors:
  small: {{cpus: 2, memory: 2G, features: [cheap, old]}}
  large: {{cpus: 8, memory: 8G, features: [cheap]}}
provider: {{kind: command, create: [on], delete: [off], list: [list]}}
groups:
  general: {{nodes: "c[1-2]", flavors: [small, large], features: [blue]}}
  plain: {{nodes: "p1", flavors: [large], without: [join]}}
  boxes: {{nodes: "b1", flavors: [small], provider: {{kind: containers}}}}
naming: {{kind: hosts}}
partitions: {{cloud: {{groups: [general, boxes]}}, night: {{groups: [general, plain]}}}}
"""
COMMANDS = {
    "torque": ("pbsnodes", "qalter", "qmgr", "qrerun", "qstat"),
    "openpbs": ("pbsnodes", "qalter", "qmgr", "qrerun", "qstat"),
    "gridengine": ("qalter", "qconf", "qhost", "qmod", "qstat"),
}
ON_NODES = {"torque": "pbs_mom", "openpbs": "pbs_mom", "gridengine": "sge_execd"}
SITE = Site("10.0.0.1")
AWAY = "#!/bin/sh\necho 'cannot connect to server' >&2\nexit 255\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    return tmp_path


def spec_of(place: Path, kind: str) -> Cluster:
    return parse(TEXT.format(place=place, kind=kind), "cluster.yaml")


def with_commands(place: Path, kind: str) -> None:
    for name in COMMANDS[kind]:
        (place / "bin" / name).write_text(AWAY)
        (place / "bin" / name).chmod(0o755)


@pytest.fixture(params=COMMANDS)
async def daemon(place: Path, request: pytest.FixtureRequest) -> AsyncIterator[Daemon]:
    """Its server is away, as it may be when the machine boots."""
    with_commands(place, request.param)
    (place / "state").mkdir()
    made = compose(spec_of(place, request.param))
    yield made
    await made.parts.record.store.close()


# --- N13 --------------------------------------------------------------------------------------


@pytest.mark.accepts("N13")
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_daemon_without_commands_does_not_start_and_says_what_to_do(
    place: Path, kind: str
) -> None:
    with pytest.raises(DaemonError) as caught:
        compose(spec_of(place, kind))
    said = str(caught.value)
    assert f"batch.kind {kind} needs commands that are not there" in said
    assert all(name in said for name in COMMANDS[kind])
    assert "set batch.bin to their directory" in said
    assert not Layout(place / "state").record.exists(), "nothing was begun"


@pytest.mark.accepts("N13")
def test_the_command_ends_with_a_failure(place: Path) -> None:
    file = place / "cluster.yaml"
    file.write_text(TEXT.format(place=place, kind="torque"))
    done = subprocess.run([*TIDE, "daemon", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "batch.kind torque needs commands that are not there: pbsnodes" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "state").exists(), "there is no cluster that could be destroyed"


def deploy_in_vain(place: Path) -> None:
    """A deploy that is refused, because the server is away."""
    with_commands(place, "torque")
    file = place / "cluster.yaml"
    file.write_text(LIVES.format(place=place))
    done = subprocess.run([*TIDE, "deploy", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the batch system does not answer; nothing was changed" in done.stderr


def test_a_deploy_that_is_refused_leaves_neither_daemon_nor_state(place: Path) -> None:
    deploy_in_vain(place)
    assert not (place / "state").exists()


def watching_nothing(place: Path) -> Path:
    """A file of a cluster whose Slurm has no slurm.conf."""
    own, other = f"kind: torque, bin: {place}/bin", f"kind: slurm, attach: {place}/no.conf"
    text = LIVES.format(place=place).replace(own, f"{other}, polling: {{every: 10s}}")
    (place / "cluster.yaml").write_text(text)
    return place / "cluster.yaml"


def test_a_slurm_conf_that_is_not_there_is_told_before_anything_is_made(place: Path) -> None:
    done = run("deploy", str(watching_nothing(place)))
    assert (done.code, f"✗ slurm.conf: {place}/no.conf cannot be read" in done.err) == (1, True)
    assert not (place / "state").exists()


def deploy_without_a_look(client: Client, file: Path) -> None:
    with serving.undone_if_refused(client):
        client.stored_spec.write_text(file.read_text())
        detached.start(client, file)


@pytest.mark.parametrize("known", [False, True])
def test_a_daemon_that_does_not_start_leaves_only_state_that_was_there(
    place: Path, known: bool
) -> None:
    file, client = watching_nothing(place), Client(place / "state")
    client.layout.state.mkdir()
    if known:
        client.stored_spec.write_text(file.read_text())
    with pytest.raises(detached.NotStarted, match=r"did not start: .*no\.conf cannot be read"):
        deploy_without_a_look(client, file)
    assert client.layout.state.exists() is known


def test_what_was_there_before_a_deploy_that_is_refused_stays(place: Path) -> None:
    with_commands(place, "torque")
    file, client = place / "cluster.yaml", Client(place / "state")
    file.write_text(LIVES.format(place=place))
    with subprocess.Popen([*TIDE, "daemon", str(file)], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: detached.answers(client))
            deploy_in_vain(place)
            assert detached.answers(client)
            assert detached.stop(client)
        finally:
            process.kill()
    deploy_in_vain(place)
    assert not detached.answers(client), "this one was started for the deploy"
    assert client.layout.record.exists()


@pytest.mark.accepts("N13")
def test_check_says_the_same(place: Path) -> None:
    spec = spec_of(place, "torque")
    first, *_ = queue_checks.look_at_commands(subject(spec))
    assert first.ok is False
    assert first.text.startswith("batch.kind torque needs commands that are not there: pbsnodes, ")
    assert first.todo.startswith("install the commands of torque on this machine, or set batch.bin")
    assert list(queue_checks.look_at_server(subject(spec))) == []


def test_a_server_that_is_away_is_told_and_waited_for(place: Path) -> None:
    with_commands(place, "torque")
    spec = spec_of(place, "torque")
    first, *_ = queue_checks.look_at_commands(subject(spec))
    assert first.ok is True
    (server,) = queue_checks.look_at_server(subject(spec))
    assert server.ok is None
    assert server.text.startswith("does not answer: ")
    assert "until it answers the daemon waits, and touches no node" in server.todo
    batch = {"kind": "torque", "version": None, "problem": "Torque does not answer"}
    status = {"control_address": "10.77.0.1", "batch": batch}
    (told,) = checks.look_at_batch(replace(subject(spec), status=status))
    assert (told.ok, told.todo) == (None, "start it; all goes on by itself then")


def test_a_queue_that_the_server_does_not_have_is_seen(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answers(FakeQueue):
        async def require(self, members: Iterable[Member]) -> None:
            raise Unavailable(f"no queue {next(iter(members)).queues[0]}; make it")

    with_commands(place, "torque")
    queue = Answers(lambda address: None)
    monkeypatch.setattr(compose_queue, "queue_of", lambda spec: queue)
    server, queues = queue_checks.look_at_server(subject(spec_of(place, "torque")))
    assert server.ok is True
    assert (queues.ok, queues.text, queues.todo) == (False, "no queue cloud", "make it")


def test_a_wrong_hosts_file_is_seen_before_anything_begins(place: Path) -> None:
    spec = spec_of(place, "torque")
    assert queue_checks.look_at_hosts in checks.REQUIRED
    (well,) = queue_checks.look_at_hosts(subject(spec))
    assert well.ok is True
    (place / "hosts").unlink()
    (line,) = queue_checks.look_at_hosts(subject(spec))
    assert line.ok is False
    assert "No such file or directory" in line.text
    assert line.todo == "make it a file that root can write, or correct batch.hosts"


LIVES = """\
cluster: hy
state: {place}/state
batch: {{kind: torque, bin: {place}/bin}}
provider: {{kind: none}}
groups: {{g: {{nodes: "c[1-2]"}}}}
partitions: {{cloud: {{groups: [g]}}}}
"""


@pytest.mark.accepts("N14")
@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ("CLEANUP_NODE_WAIT_TIME=300\n", []),
        (
            "PROVIDER_NAME=none\nBATCH_SYSTEM=openpbs\n",
            [
                "batch.kind cannot change from torque to openpbs while the cluster lives: the "
                "batch system runs; put it back, or destroy the cluster and deploy it again",
                "hy.env:2:1: BATCH_SYSTEM: it sets batch.kind to openpbs, which goes before the "
                "cluster file; put it back here",
            ],
        ),
        (
            "PROVIDER_NAME=containers\n",
            [
                "nodes of group g cannot move from none to containers; give nodes elsewhere a "
                "group and names of their own",
                "hy.env:1:1: PROVIDER_NAME: it sets provider.kind to containers, which goes before "
                "the cluster file; put it back here",
            ],
        ),
    ],
)
async def test_a_restart_with_another_environment_refuses_what_apply_would(
    place: Path, monkeypatch: pytest.MonkeyPatch, variables: str, refused: list[str]
) -> None:
    monkeypatch.setattr(environment, "PLACE", place)
    with_commands(place, "torque")
    text = LIVES.format(place=place)
    await live(place, text)
    (place / "hy.env").write_text(variables)
    after = compose(parse(text, "cluster.yaml"))
    try:
        if not refused:
            await after.parts.load()
            assert await after.parts.refusals() == ()
            return
        with pytest.raises(WrongFile) as caught:
            async with after.running():
                pass
        assert str(caught.value).replace(f"{place}/", "").splitlines() == refused
    finally:
        await after.parts.record.store.close()


async def live(place: Path, text: str) -> None:
    """As a cluster that was deployed from this file."""
    (place / "state").mkdir()
    daemon = compose(parse(text, "cluster.yaml"))
    await daemon.parts.load()
    await daemon.parts.keep_site(SITE)
    await daemon.parts.record.store.close()


@pytest.mark.accepts("N14")
def test_a_file_that_cannot_be_followed_is_a_wrong_one_for_systemd_too(place: Path) -> None:
    """Else the unit would start the daemon again and again."""
    text = LIVES.format(place=place)
    for kind in ("torque", "openpbs"):
        with_commands(place, kind)
    asyncio.run(live(place, text))
    file = place / "cluster.yaml"
    file.write_text(text.replace("kind: torque", "kind: openpbs"))
    done = subprocess.run([*TIDE, "daemon", str(file)], capture_output=True, text=True, check=False)
    assert "batch.kind cannot change from torque to openpbs while" in done.stderr
    assert done.returncode == 2


def test_nothing_is_attached_to_it(place: Path) -> None:
    file = place / "cluster.yaml"
    file.write_text(TEXT.format(place=place, kind="torque"))
    done = run("attach", str(file))
    assert done.code != 0
    assert "torque that is watched and stays as it is" in done.err
    assert "`tide deploy`" in done.err


# --- what is put together ---------------------------------------------------------------------


def test_nodes_are_known_by_what_all_their_flavors_have(place: Path) -> None:
    found = members(spec_of(place, "torque"))
    assert found["c1"] == Member("c1", "", 2, 2048, ("blue", "cheap"), ("cloud", "night"))
    assert found["p1"].queues == ("night",)
    assert found["b1"].features == ("cheap", "old")


async def test_the_batch_system_is_read_and_reboots_nothing(daemon: Daemon) -> None:
    assert isinstance(daemon.parts.batch, Polled)
    assert not daemon.parts.batch.reboots
    assert daemon.parts.rebuilds_via == "direct"


async def test_marks_are_shared_by_all_parts_that_are_made_anew(daemon: Daemon) -> None:
    assert daemon.parts.remade is not None
    again = daemon.parts.remade(daemon.parts.spec)
    assert isinstance(again.batch, Polled)
    assert isinstance(daemon.parts.batch, Polled)
    assert again.batch._book is daemon.parts.batch._book


async def test_a_node_that_does_not_join_knows_all_names_of_the_control_host(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose_queue, "control_names", lambda: "head.site head")
    with_commands(place, "torque")
    (place / "state").mkdir()
    parts = compose(spec_of(place, "torque")).parts
    boots = parts.configurator.user_data(Node("p1", "plain"), SITE)
    await parts.record.store.close()
    assert boots.startswith("set -eu\ncontrol='head.site head' address=10.0.0.1\n")


async def test_each_group_boots_in_its_way(daemon: Daemon) -> None:
    def boots(group: str) -> str:
        return daemon.parts.configurator.user_data(Node("n1", group), SITE)

    assert "TIDE_PIN=" in boots("general")
    assert "springtide-node-name" in boots("plain")
    assert "phase entry" in boots("boxes")
    assert ON_NODES[daemon.parts.spec.batch.kind] in boots("boxes")
    for group in ("general", "plain", "boxes"):
        assert "munged" not in boots(group)
        assert boots(group) == boots(group)


async def test_names_of_nodes_follow_into_the_hosts_file_and_out_of_it(
    daemon: Daemon, place: Path
) -> None:
    parts = daemon.parts
    await parts.configurator.prepare(SITE)
    await parts.configurator.publish(SITE, {"b1": "10.0.0.7"})
    assert "10.0.0.7 b1" in (place / "hosts").read_text().splitlines()
    await parts.configurator.stop()
    assert (place / "hosts").read_text() == "127.0.0.1 localhost\n"


@pytest.mark.parametrize(
    ("address", "known"),
    [
        ("10.9.9.9", {"pbs.site": "10.9.9.9"}),
        ("127.0.0.1", {"pbs.site": HERE}),
        (None, {"pbs.site": ""}),
    ],
)
def test_a_server_elsewhere_is_known_by_its_name(
    place: Path, monkeypatch: pytest.MonkeyPatch, address: str | None, known: dict[str, str]
) -> None:
    found(monkeypatch, address)
    text = LIVES.format(place=place).replace("kind: torque", "kind: torque, server: pbs.site")
    spec = parse(text.replace("kind: none", "kind: containers"), "cluster.yaml")
    assert _servers(spec, queue_of(spec)) == known


def found(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """Have the name server say so of all names."""

    def told(name: str) -> str:
        if address is None:
            raise OSError(f"Temporary failure in name resolution: {name}")
        return address

    monkeypatch.setattr("socket.gethostbyname", told)


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize(("address", "told"), [("10.9.9.9", "10.9.9.9"), ("127.0.1.1", "10.0.0.1")])
@pytest.mark.parametrize("naming", ["hosts", "dns"])
async def test_nodes_that_join_know_a_server_that_only_its_own_files_name(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str, address: str, told: str, naming: str
) -> None:
    """Elsewhere, or this machine by another name."""
    monkeypatch.setattr(compose_queue, "control_names", lambda: "head.site head")
    found(monkeypatch, address)
    named_in_files(place, monkeypatch)
    with_commands(place, kind)
    (place / "state").mkdir()
    text = TEXT.format(place=place, kind=kind).replace("naming: {kind: hosts}", "")
    text += f"naming: {{kind: {naming}}}\n"
    made = compose(parse(text, "cluster.yaml"))
    hosts = welcome_of(made)["names"]["hosts"]
    if naming == "hosts":
        await made.parts.configurator.publish(SITE, {"b1": "10.0.0.7"})
        lines = (Layout(place / "state").conf / "hosts").read_text().splitlines()
        assert f"{told} batch.site" in lines, "container nodes know it too"
    await made.parts.record.store.close()
    assert hosts["head"] == hosts["head.site"] == "10.0.0.1"
    assert hosts["batch.site"] == told


@pytest.mark.parametrize("naming", ["hosts", "dns"])
async def test_nodes_find_openpbs_on_this_machine_where_it_has_registered(
    place: Path, monkeypatch: pytest.MonkeyPatch, naming: str
) -> None:
    """Elsewhere it never answers them."""
    monkeypatch.setattr(compose_queue, "control_names", lambda: "head.site head")
    monkeypatch.setattr(compose_queue, "is_here", lambda address: True)
    monkeypatch.setattr("socket.gethostname", lambda: "head.site")
    monkeypatch.setenv("PBS_CONF_FILE", str(place / "none"))
    found(monkeypatch, "192.0.2.7")
    with_commands(place, "openpbs")
    (place / "state").mkdir()
    text = TEXT.format(place=place, kind="openpbs").replace("naming: {kind: hosts}", "")
    made = compose(parse(f"{text}naming: {{kind: {naming}}}\n", "cluster.yaml"))
    hosts = welcome_of(made)["names"]["hosts"]
    assert hosts["head"] == hosts["head.site"] == "192.0.2.7"
    if naming == "hosts":
        await made.parts.configurator.publish(SITE, {})
        file = Layout(place / "state").conf / "hosts"
        assert "192.0.2.7 head.site" in file.read_text().splitlines()
        before = file.read_text()
        found(monkeypatch, None)
        await made.parts.configurator.publish(SITE, {})
        assert file.read_text() == before, "a name server that is away takes nothing back"
    await made.parts.record.store.close()


async def test_the_daemon_does_not_wait_for_a_name_server(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose_queue, "control_names", lambda: "head.site head")
    monkeypatch.setattr(compose_queue, "is_here", lambda address: True)
    monkeypatch.setattr("socket.gethostname", lambda: "head.site")
    monkeypatch.setenv("PBS_CONF_FILE", str(place / "none"))
    monkeypatch.setattr(lookup, "AGAIN_S", 0.0)
    address, asked_by = "192.0.2.7", set[int]()

    def gethostbyname(name: str) -> str:
        asked_by.add(threading.get_ident())
        return address

    monkeypatch.setattr("socket.gethostbyname", gethostbyname)
    with_commands(place, "openpbs")
    (place / "state").mkdir()
    for again in (False, True):
        made = compose(spec_of(place, "openpbs"))
        configurator = made.parts.configurator
        if not again:
            await configurator.prepare(SITE)
        script = configurator.user_data(Node("node", "plain"), SITE)
        await made.parts.record.store.close()
        assert "address=192.0.2.7\n" in script, "a daemon that starts knows it from before"
    address = "192.0.2.8"
    wait_until(lambda: "192.0.2.8" in configurator.user_data(Node("node", "plain"), SITE))
    assert asked_by
    assert threading.get_ident() not in asked_by


def test_a_pbs_server_of_this_machine_may_have_registered_by_another_name(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = place / "pbs.conf"
    monkeypatch.setenv("PBS_CONF_FILE", str(conf))
    for lines, name in (
        ("PBS_SERVER=head\n", "head"),
        ("PBS_SERVER=head\nPBS_START_SERVER=1\nPBS_LEAF_NAME=head-lan,head-ib\n", "head-lan"),
        ("PBS_SERVER=head\nPBS_LEAF_NAME=client\n", "head"),
    ):
        conf.write_text(lines)
        assert openpbs_mom.pbs_mom("n1", None, "").registered == name


def test_where_nodes_of_torque_will_be_is_known_while_they_are_off(place: Path) -> None:
    """pbs_server resolves their names when it starts."""
    site = Site("10.77.0.1", {"bridge": "tide-x", "subnet": "10.77.0.0/20"})
    spec = spec_of(place, "torque")
    assert planned(spec, site) == {"b1": "10.77.0.2"}
    assert planned(spec, SITE) == {}
    assert planned(spec_of(place, "openpbs"), site) == {}
    openstack = """\
cluster: hy
state: {place}/state
batch: {{kind: torque, hosts: {place}/hosts}}
provider: {{kind: openstack, cloud: c, network: lan, addresses: {{c1: 10.1.0.1, x9: 10.1.0.9}}}}
images: {{base: {{id: x}}}}
flavors: {{large: {{type: m1, cpus: 4, memory: 8G}}}}
groups: {{g: {{nodes: "c[1-2]", flavors: [large], image: base}}}}
partitions: {{cloud: {{groups: [g]}}}}
"""
    assert planned(parse(openstack.format(place=place), "cluster.yaml"), SITE) == {"c1": "10.1.0.1"}


async def test_container_nodes_wait_until_the_batch_system_expects_them(daemon: Daemon) -> None:
    """Torque alone refuses those that it does not expect."""
    parts = daemon.parts
    if not isinstance(parts.spec.batch, Torque):
        pytest.skip("nodes of others need not wait")
    await parts.configurator.prepare(SITE)
    await parts.configurator.publish(SITE, {"b1": "10.0.0.7"})
    hosts = Layout(parts.spec.state).conf / "hosts"
    assert "10.0.0.7 b1" not in hosts.read_text().splitlines()
    assert isinstance(parts.batch, Polled)
    mark = Mark(Course.STARTING, 0.0, "10.0.0.7")
    await parts.batch._book.change(lambda marks: marks.marked({"b1": mark}))
    await parts.configurator.publish(SITE, {"b1": "10.0.0.7"})
    assert "10.0.0.7 b1" in hosts.read_text().splitlines()


def named_in_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch system's own files have the name of its server, and the cluster file has not."""
    (place / "server_name").write_text("batch.site\n")
    monkeypatch.setattr(torque_mom, "HOME", place)
    (place / "pbs.conf").write_text("PBS_SERVER=batch.site:15001\n")
    monkeypatch.setenv("PBS_CONF_FILE", str(place / "pbs.conf"))
    (place / "sge/default/common").mkdir(parents=True)
    (place / "sge/default/common/act_qmaster").write_text("batch.site\n")
    monkeypatch.setenv("SGE_ROOT", str(place / "sge"))


def test_names_that_are_off_have_addresses_that_nobody_has(place: Path) -> None:
    text = LIVES.format(place=place).replace("kind: none", "kind: containers")
    found = {}
    for cluster in ("hy", "other"):
        named = _nowhere(parse(text.replace("cluster: hy", f"cluster: {cluster}"), "cluster.yaml"))
        assert list(named) == ["c1", "c2"]
        found[cluster] = {ip_address(each) for each in named.values()}
        assert all(each in UNUSED for each in found[cluster])
        assert len(found[cluster]) == 2
    assert not found["hy"] & found["other"]
    (address,) = _nowhere(parse(text.replace("torque", "gridengine"), "cluster.yaml")).values()
    assert address == NOWHERE
    assert _nowhere(parse(text.replace("torque", "openpbs"), "cluster.yaml")) == {}


def test_more_nodes_than_addresses_are_no_error(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose_queue, "UNUSED", IPv4Network("198.18.0.0/30"))
    text = LIVES.format(place=place).replace("kind: none", "kind: containers")
    named = _nowhere(parse(text.replace("c[1-2]", "c[1-3]"), "cluster.yaml"))
    assert set(named.values()) == {"198.18.0.1", "198.18.0.2"}


def test_a_slurm_that_cannot_be_read_leaves_nothing_behind(place: Path) -> None:
    text = LIVES.format(place=place).replace(
        f"kind: torque, bin: {place}/bin", f"kind: slurm, attach: {place}/slurm.conf, polling: {{}}"
    )
    with pytest.raises(DaemonError, match=r"slurm\.conf"):
        compose(parse(text, "cluster.yaml"))
    assert not (place / "state").exists()


def gridengine_says(place: Path, qconf: str) -> list[Check]:
    """What is told of a Grid Engine whose qconf does this, and whose other commands work."""
    with_commands(place, "gridengine")
    qhost = "#!/bin/sh\necho \"<qhost><host name='global'/></qhost>\"\n"
    (place / "bin" / "qhost").write_text(qhost)
    (place / "bin" / "qstat").write_text("#!/bin/sh\necho 'GE 8.1.9'\n")
    (place / "bin" / "qconf").write_text(f"#!/bin/sh\n{qconf}\n")
    return list(queue_checks.look_at_server(subject(spec_of(place, "gridengine"))))


def test_a_grid_engine_without_queues_answers_and_lacks_ours(place: Path) -> None:
    none = """
case $1 in
-sql) echo 'no cqueue list defined' >&2; exit 1 ;;
-sq) echo 'No cluster queue or queue instance matches the phrase "*"' >&2; exit 1 ;;
esac"""
    server, queues = gridengine_says(place, none)
    assert (server.ok, queues.ok) == (True, False)
    assert "Grid Engine has no queue cloud" in queues.text
    assert "create it (qconf -aq cloud)" in queues.todo


@pytest.mark.parametrize(
    "said",
    [
        'commlib error: access denied (client IP resolved to host name "a". This is not "b")',
        'denied: host "a" is neither submit nor admin host',
    ],
)
def test_a_grid_engine_that_does_not_take_this_machine_need_not_be_started(
    place: Path, said: str
) -> None:
    (server,) = gridengine_says(place, f"echo 'error: {said}' >&2; exit 1")
    assert (server.ok, said in server.text) == (None, True)
    assert (server.todo, "start it" in server.todo) == (TRUST, False)
    batch = {"kind": "gridengine", "problem": f"{server.text}; {TRUST}"}
    status = {"control_address": "x", "batch": batch}
    spec = spec_of(place, "gridengine")
    (told,) = checks.look_at_batch(replace(subject(spec), status=status))
    assert (told.text, told.todo) == (server.text, TRUST)


async def test_nodes_that_join_get_an_entry_and_nothing_of_slurm(daemon: Daemon) -> None:
    assert daemon.parts.membership is not None
    gets = daemon.parts.spec.gets("general")
    assert gets[-1] == "entry"
    assert not {"munge", "slurmd"} & set(gets)
    assert daemon.parts.membership.groups == ("general",)


def welcome_of(daemon: Daemon) -> dict[str, Any]:
    """What a node on a cloud is told when it joins."""
    assert daemon.parts.membership is not None
    around = Around(SITE, "", 0.0, {}, {})
    return daemon.parts.membership.welcome(Newcomer(Node("c1", "general"), "10.0.0.7"), around)


async def test_the_health_check_speaks_of_no_slurm_that_there_is_not(daemon: Daemon) -> None:
    text = welcome_of(daemon)["health"]["text"]
    assert "and the batch system is told $memory" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("control: container\n", "set `control: here`"),
        ("ansible: {control: true}\n", "ansible.control sets up a Slurm"),
    ],
)
def test_what_is_for_slurm_alone_is_refused(place: Path, more: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(TEXT.format(place=place, kind="torque") + more, "cluster.yaml")
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", ["torque", "openpbs", "gridengine"])
def test_which_queue_a_group_serves_is_not_guessed(place: Path, kind: str) -> None:
    """Its nodes would serve no job, or those of all queues."""
    text = (
        LIVES.format(place=place).replace("torque", kind).replace("kind: none", "kind: containers")
    )
    queue = "partitions: {cloud: {groups: [g]}}\n"
    assert list(parse(text, "cluster.yaml").partitions) == ["cloud"]
    for wrong in (
        text.replace(queue, ""),
        text.replace("groups: {g:", 'groups: {h: {nodes: "h1"}, g:'),
    ):
        with pytest.raises(SpecError) as caught:
            parse(wrong, "cluster.yaml")
        (problem,) = caught.value.problems
        assert "serves no queue; name it in `partitions`" in str(problem)
        assert problem.line == 5
    unmade = text.replace("groups: {g:", 'groups: {h: {nodes: "h1", provider: {kind: none}}, g:')
    assert list(parse(unmade, "cluster.yaml").partitions) == ["cloud"]
