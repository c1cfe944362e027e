"""Container nodes of batch systems that are read: their boot script, run for real."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.configure import health, node_users
from springtide.configure.health import Checks, render_check
from springtide.configure.queue_cloud import QueueCloudNode
from springtide.configure.queue_node import QueueNode, render_boot
from springtide.failures import classify
from springtide.model import Node, NodeState
from springtide.ports import Entry, Instance, InstanceState, Site
from tests.unit.agent_world import Machine, fresh_machine, slow_is_fine, until

CASES = Path(__file__).parents[1] / "cases" / "queue_node"
CONF = Path("/srv/conf")
SITE = Site("10.0.0.1")
EXECD = """\
#!/bin/sh
[ "$1" != -version ] || { echo "execd of Grid Engine $(cat /etc/execd-version), yes"; exit 1; }
echo "execd $* as $SGE_CELL, $(cat '/etc/sge conf')" >>/run/calls
[ "$(wc -l </run/calls)" -gt "$(cat /etc/refusals)" ]
"""


def entry(name: str) -> Entry:
    return Entry(
        command=("execd", "-n", name),
        environment={"SGE_CELL": "it's default"},
        files={Path("/etc/sge conf"): f"{name}'s $HOME\n"},
        directories=(Path("/var/spool/execd"),),
        version="8.1.9",
        versions=("execd", "-version"),
    )


NODE = QueueNode(
    hosts=CONF / "hosts",
    control="head.site head",
    entry=entry,
    host_key=Path("/srv/key/host_key"),
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Its filesystems answer, though this machine may stand still for a while."""
    monkeypatch.setattr(health, "MOUNT_S", 200)
    with fresh_machine(tmp_path) as one:
        one.write("usr/local/sbin/execd", EXECD, 0o755)
        one.write("etc/execd-version", "8.1.9\n")
        one.write("etc/refusals", "0\n")
        one.write("srv/conf/version", "GE 8.1.9\n")
        one.write("srv/conf/hosts", "10.0.0.1 head\n10.0.0.7 n7\n")
        one.write("run/calls", "", 0o666)
        with_checks(one, NODE)
        yield one


def with_checks(machine: Machine, node: QueueNode) -> None:
    machine.write("srv/conf/health", render_check(Checks(mounts=node.mounts)), 0o755)


def boot(machine: Machine, node: QueueNode = NODE, before: str = "") -> None:
    machine.write("run/boot", before + render_boot(node, node.entry("n7")))
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    told = {"TIDE_NODE": "n7", "TIDE_ADDRESS": "10.0.0.7", "PATH": path}
    machine.start(["sh", "/run/boot"], told)


def ended(machine: Machine) -> int:
    return slow_is_fine(machine.running[-1])


async def test_a_node_is_named_when_the_batch_system_expects_it_and_not_before(
    tmp_path: Path,
) -> None:
    """So its program starts then: Torque refuses one that reports before, for 45 s."""
    joined: set[str] = set()

    async def expected() -> set[str]:
        return joined

    node = replace(NODE, hosts=tmp_path / "hosts", joined=expected)
    addresses = {"n7": "10.0.0.7"}
    await node.publish(SITE, addresses)
    assert "10.0.0.7 n7" not in node.hosts.read_text().splitlines()
    joined.add("n7")
    await node.publish(SITE, addresses)
    assert "10.0.0.7 n7" in node.hosts.read_text().splitlines()
    joined.clear()
    await node.publish(SITE, addresses)
    assert "10.0.0.7 n7" in node.hosts.read_text().splitlines(), "it may be on its way again"
    await node.publish(SITE, {})
    await node.publish(SITE, addresses)
    assert "10.0.0.7 n7" not in node.hosts.read_text().splitlines()


async def test_a_server_on_this_machine_is_named_where_it_answers(tmp_path: Path) -> None:
    others = dict.fromkeys(("head.site", "head"), "192.0.2.7")
    node = replace(NODE, hosts=tmp_path / "hosts", others=lambda: others)
    await node.publish(SITE, {})
    lines = ["127.0.0.1 localhost", "192.0.2.7 head", "192.0.2.7 head.site"]
    assert node.hosts.read_text().splitlines() == lines
    cloud = QueueCloudNode("head.site head", entry, None, node.others)
    assert "control='head.site head' address=192.0.2.7\n" in cloud.user_data(SITE)


def test_the_boot_script_is_this() -> None:
    node = replace(NODE, mounts=(Path("/home"), Path("/srv/my data")))
    assert render_boot(node, entry("n7")) == (CASES / "boot.sh").read_text()


def test_a_node_gets_files_and_runs_the_program(machine: Machine) -> None:
    boot(machine)
    assert ended(machine) == 0, machine.console
    assert machine.calls == ["execd -n n7 as it's default, n7's $HOME"]
    assert machine.path("var/spool/execd").is_dir()
    assert machine.phases() == [
        *("started", "configuration", "mounts", "users", "files", "health", "entry"),
    ]


USERS = """\
ann:x:5001:5001::/home/ann:/bin/sh
b.c:x:5002:5002::/home/b.c:/bin/sh
joan:x:5003:5003::/home/joan:/bin/sh
eve:x:5004:5004::/home/eve:/bin/sh
"""


def test_people_whom_the_image_knows_otherwise_are_not_taken_over_and_that_is_told(
    machine: Machine,
) -> None:
    names = [line.split(":")[0] for line in USERS.splitlines()]
    groups = "".join(f"{name}:x:{5001 + i}:\n" for i, name in enumerate(names))
    machine.write("srv/conf/users/passwd", USERS)
    machine.write("srv/conf/users/group", groups)
    machine.write("srv/conf/users/shadow", "".join(f"{name}:*:::::::\n" for name in names))
    machine.write(
        "etc/passwd", "root:x:0:0::/:/bin/sh\nbxc:x:900:900::/:\nown:x:5003:9::/:\neve:x:77:9::/:\n"
    )
    machine.write("etc/group", "root:x:0:\n")
    machine.write("etc/shadow", "joann:*:::::::\n")
    without = node_users.render_boot(CONF / "users", None).replace(node_users.LIBRARY, "nothing")
    machine.write("run/boot", f"set -eu\n{without}")
    for _ in range(2):
        machine.start(["sh", "/run/boot"], {"PATH": "/usr/bin:/bin"})
        assert ended(machine) == 0, machine.console
    added = machine.path("etc/passwd").read_text().splitlines()[4:]
    assert added == USERS.splitlines()[:2]
    assert machine.path("etc/group").read_text() == "root:x:0:\n" + groups
    assert machine.path("etc/shadow").read_text().split(":*:::::::\n") == [
        "joann",
        "ann",
        "b.c",
        "",
    ]
    told = (
        "joan (5003) of the cluster is not known here, for /etc/passwd of the image has own:x:5003:"
    )
    assert told in machine.console
    assert "eve (5004) of the cluster is not known here" in machine.console
    noted = machine.path("etc/springtide.people").read_text().splitlines()
    assert [one for one in noted if not one.startswith("group")] == [
        *("passwd ann", "shadow ann", "passwd b.c", "shadow b.c"),
    ]


@pytest.mark.accepts("N16")
def test_a_node_waits_until_it_is_named_where_it_is(machine: Machine) -> None:
    machine.write("srv/conf/hosts", "10.0.0.1 head\n10.0.0.99 n7\n")
    boot(machine)
    until(lambda: "waiting for n7 to be named in /srv/conf/hosts" in machine.console)
    assert machine.calls == []
    machine.write("srv/conf/hosts", "10.0.0.1 head\n10.0.0.7 n7\n10.0.0.8 n8\n")
    assert ended(machine) == 0
    assert machine.path("etc/hosts").readlink() == Path("/srv/conf/hosts")


@pytest.mark.accepts("N7")
def test_no_node_joins_before_its_filesystems_are_mounted(machine: Machine) -> None:
    node = replace(NODE, mounts=(Path("/srv/shared"),))
    with_checks(machine, node)
    boot(machine, node)
    until(lambda: "waiting for /srv/shared to be mounted" in machine.console)
    machine.path("srv/shared").mkdir()
    assert ended(machine) == 1, "it is a directory, but nothing is mounted there"
    assert "health check failed: /srv/shared is not mounted" in machine.console
    assert machine.calls == []
    boot(machine, node, before="/usr/bin/mount -t tmpfs shared /srv/shared\n")
    assert ended(machine) == 0, machine.console
    assert len(machine.calls) == 1


@pytest.mark.accepts("N17")
def test_another_version_is_told_and_does_not_join(machine: Machine) -> None:
    machine.write("etc/execd-version", "8.1.8\n")
    boot(machine)
    assert ended(machine) == 1
    said = "cannot join: it has version 8.1.8, and the batch system has 8.1.9: use another image"
    assert said in machine.console
    assert machine.calls == []
    node = Node("n7", "general", NodeState.JOINING, 1, "blue.n7.1", "10.0.0.7")
    instance = Instance("blue.n7.1", "blue", "n7", 1, InstanceState.BROKEN, "10.0.0.7")
    console = f"{machine.console}the boot script ended with status 1\n"
    found = classify(node, instance, None, console)
    assert found.words == f"its instance died while it booted: {said}"


def test_versions_that_nobody_knows_are_no_reason(machine: Machine) -> None:
    machine.path("srv/conf/version").unlink()
    machine.write("etc/execd-version", "8.1.8\n")
    boot(machine)
    assert ended(machine) == 0
    assert "cannot open" not in machine.console


def test_a_program_that_is_not_there_is_told(machine: Machine) -> None:
    machine.path("usr/local/sbin/execd").unlink()
    boot(machine)
    assert ended(machine) == 1
    assert "cannot join: execd is not there: the image must have it" in machine.console


def test_who_comes_before_it_is_expected_tries_again(machine: Machine) -> None:
    machine.write("etc/refusals", "1\n")
    boot(machine)
    assert ended(machine) == 0
    assert len(machine.calls) == 2


def test_a_node_waits_until_the_batch_system_would_take_it(machine: Machine) -> None:
    """Some programs hang for long if they come before that."""
    node = replace(NODE, entry=lambda name: replace(entry(name), ready=("test", "-e", "/run/ok")))
    boot(machine, node)
    until(lambda: "waiting for the batch system to know this machine" in machine.console)
    assert machine.calls == []
    machine.write("run/ok", "")
    assert ended(machine) == 0
    assert len(machine.calls) == 1


# --- the control host -------------------------------------------------------------------------


async def test_names_and_version_are_published_where_nodes_see_them(tmp_path: Path) -> None:
    node = replace(
        NODE,
        hosts=tmp_path / "conf" / "hosts",
        host_key=tmp_path / "key" / "host",
        others=lambda: {"server": "10.9.9.9"},
    )
    await node.prepare(SITE)
    await node.publish(SITE, {"n7": "10.0.0.7"})
    assert node.hosts.read_text() == (
        "10.0.0.1 head.site head\n127.0.0.1 localhost\n10.0.0.7 n7\n10.9.9.9 server\n"
    )
    assert (tmp_path / "conf" / "version").read_text() == "8.1.9\n"
    assert os.access(tmp_path / "conf" / "health", os.X_OK)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o700


async def test_a_lookup_that_fails_takes_the_server_from_nobody(tmp_path: Path) -> None:
    """Nodes that run would lose it, and their jobs with it."""
    found = {"server": "10.9.9.9"}
    hosts, key = tmp_path / "hosts", tmp_path / "key" / "host"
    node = replace(NODE, hosts=hosts, host_key=key, others=lambda: found)
    await node.publish(SITE, {"n7": "10.0.0.7"})
    found = {"server": "", "other": ""}
    await node.publish(SITE, {"n7": "10.0.0.7", "n8": "10.0.0.8"})
    assert hosts.read_text().splitlines()[2:] == ["10.0.0.7 n7", "10.0.0.8 n8", "10.9.9.9 server"]
    found = {}
    await node.publish(SITE, {"n8": "10.0.0.8"})
    assert hosts.read_text().splitlines()[2:] == ["10.0.0.8 n8"]


async def test_what_takes_its_time_holds_up_nobody(tmp_path: Path) -> None:
    """Names are looked up, and files of the batch system may be on another machine."""
    threads: set[int] = set()

    def slow_entry(name: str) -> Entry:
        threads.add(threading.get_ident())
        return entry(name)

    def slow_others() -> dict[str, str]:
        threads.add(threading.get_ident())
        return {}

    node = replace(NODE, hosts=tmp_path / "hosts", entry=slow_entry, others=slow_others)
    await node.publish(SITE, {"n7": "10.0.0.7"})
    assert threads
    assert threading.get_ident() not in threads


def test_what_a_node_boots_with_does_not_depend_on_versions_of_servers() -> None:
    """It would be drift: nodes would be replaced because a server was asked."""
    later = replace(NODE, entry=lambda name: replace(entry(name), version="9"))
    node = Node("n7", "general")
    assert NODE.user_data(node, SITE) == later.user_data(node, SITE)


# --- clouds, without joining ------------------------------------------------------------------


def test_nodes_of_a_cloud_that_do_not_join_share_one_text(machine: Machine) -> None:
    text = QueueCloudNode("head", entry).user_data(SITE)
    assert text == (CASES / "cloud.sh").read_text()
    machine.write("run/boot", text + "wait\n")
    machine.path("var/log").mkdir(exist_ok=True)
    path = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    log = "/usr/bin/mount -t tmpfs log /var/log; "
    machine.start(["sh", "-c", log + "exec sh /run/boot"], {"TIDE_NODE": "n7", "PATH": path})
    assert ended(machine) == 0, machine.console
    assert machine.calls == ["execd -n n7 as it's default, n7's $HOME"]
    assert "10.0.0.1 head\n127.0.1.1 n7\n" in machine.text("etc/hosts")
