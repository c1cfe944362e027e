"""`tide bundle`: all that support needs, whoever is down, and never a secret."""

import io
import json
import os
import pwd
import random
import socket
import stat
import subprocess
import tarfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from springtide.bundle.made import Order, make
from springtide.bundle.masks import Masks
from springtide.bundle.parts import Lack, Parts
from springtide.cli import bundle, bundle_asked
from springtide.cli import client as asking
from springtide.layout import Layout
from springtide.model import Node, NodeState
from springtide.providers.fake import FakeProvider
from springtide.spec import parse
from springtide.steps.bootlogs import keep
from tests.unit.cli_world import SPEC, World, run, served

KEY = random.Random(3).randbytes(1024)
CANARY = "canary-5e1f-not-for-support"
Members = dict[str, bytes]


def opened(raw: bytes | Path) -> Members:
    """By name below the one directory that all are in."""
    content = raw.read_bytes() if isinstance(raw, Path) else raw
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        found = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        assert {name.partition("/")[0] for name in found} == {"tide-bundle-sim"}
        assert next(iter(found)) == "tide-bundle-sim/MANIFEST.md", "what is read first is first"
        return {name.partition("/")[2]: file.read() for name, file in found.items() if file}


def page(members: Members, heading: str) -> str:
    """A part of the manifest."""
    return members["MANIFEST.md"].decode().partition(f"## {heading}\n")[2].partition("\n## ")[0]


def furnish(layout: Layout) -> None:
    """What a real cluster has in its state directory, with a secret in many places."""
    for path in (layout.conf, layout.log, layout.spool, layout.munge_key.parent, layout.join):
        path.mkdir(exist_ok=True)
    layout.join.chmod(0o700)
    layout.munge_key.write_bytes(KEY)
    (layout.join / "secret").write_bytes(KEY[::-1][:32])
    (layout.join / "tls.key").write_text(
        f"-----BEGIN PRIVATE KEY-----\n{b64encode(KEY[:48]).decode()}\n-----END PRIVATE KEY-----\n"
    )
    (layout.conf / "slurm.conf").write_text("ClusterName=sim\nAccountingStoragePass=opensesame\n")
    (layout.log / "daemon.log").write_text(
        f"timestamp=2001-01-01T00:00:00Z event=ancient\n"
        f"timestamp=2999-01-01T00:00:00Z event=recent detail={CANARY}\n"
    )
    (layout.log / "slurmctld.log").write_bytes(b"[2999-01-01T00:00:00] " + b64encode(KEY) + b"\n")
    keep(
        layout.boots,
        {Node("c2", "general", NodeState.JOINING, 3): f"slurmd: fatal: gone\n{KEY[:48].hex()}\n"},
    )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("OS_PASSWORD", CANARY)
    with served(SPEC + "admin_group: games\n") as world:
        furnish(world.layout)
        yield world


def holds(members: Members) -> list[str]:
    """Names of those with a secret in them."""
    wanted = [CANARY.encode(), KEY[:24], b64encode(KEY[:24]), KEY[:24].hex().encode()]
    return [name for name, text in members.items() if any(one in text for one in wanted)]


# --- with the daemon ---------------------------------------------------------------------


@pytest.mark.accepts("C24")
def test_it_has_all_that_tells_of_a_cluster(world: World, tmp_path: Path) -> None:
    assert world.run("resume", "c1").code == 0
    target = tmp_path / "b.tar.gz"
    made = world.run("bundle", "--out", str(target))
    assert (made.code, made.out) == (0, f"{target}\n"), made.err
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    members = opened(target)
    assert {
        *("MANIFEST.md", "status.json", "nodes.json", "operations.json", "events.jsonl"),
        *("plan.json", "check.json", "versions.txt", "state.txt", "cluster.json"),
        *("conf/slurm.conf", "logs/daemon.log", "logs/slurmctld.log", "boots/c2.3.log"),
        *("timelines/c1.json", "record/facts.json", "holds.json", "machines.json"),
    } <= members.keys(), page(members, "What could not be had")
    assert json.loads(members["status.json"])["cluster"] == "sim"
    rows = {row["name"]: row["state"] for row in json.loads(members["nodes.json"])["nodes"]}
    assert rows["c1"] == "ready"
    assert b"event=recent" in members["logs/daemon.log"]
    assert b"ancient" not in members["logs/daemon.log"], "it is older than two days"
    assert b"springtide " in members["versions.txt"]
    assert json.loads(members["record/facts.json"])["rows"]["nodes"] > 0
    assert b"key/munge.key" in members["state.txt"], "names tell what is there"
    assert parse(members["cluster.json"].decode(), "x").groups == world.spec.groups
    assert b"the cheap ones" not in members["cluster.json"], "comments are for nobody else"
    listed = page(members, "What is in it")
    assert all(f"`{name}`" in listed for name in members if name != "MANIFEST.md")


def test_its_name_is_the_clusters_and_not_that_of_a_directory(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = world.run("bundle")
    assert made.code == 0, made.err
    assert [path.name[:16] for path in tmp_path.glob("*.tar.gz")] == ["tide-bundle-sim-"]


@pytest.mark.accepts("C24", "N15")
def test_a_planted_secret_is_found_wherever_it_is(world: World, tmp_path: Path) -> None:
    """Else an empty bundle would pass: what is masked is told, and where."""
    target = tmp_path / "b.tar.gz"
    assert world.run("bundle", "--out", str(target)).code == 0
    members = opened(target)
    assert holds(members) == []
    masked = page(members, "What was masked")
    assert "`logs/daemon.log`: OS_PASSWORD of the environment (1 ×)" in masked
    assert "`conf/slurm.conf`: the value of AccountingStoragePass (1 ×)" in masked
    assert f"`logs/slurmctld.log`: {world.layout.munge_key} (1 ×)" in masked
    assert f"`boots/c2.3.log`: {world.layout.munge_key} (1 ×)" in masked
    assert b"opensesame" not in b"".join(members.values())
    assert members["logs/slurmctld.log"].startswith(b"left out: ")
    assert "- `logs/slurmctld.log`: a log, left out whole" in page(members, "What is in it")
    lacking = page(members, "What could not be had")
    assert f"- `logs/slurmctld.log`: left out: {world.layout.munge_key} was in it" in lacking


def test_that_scan_can_fail(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Masks, "apply", lambda self, content: _unmasked(content))
    monkeypatch.setattr(Masks, "clean", lambda self, part: _unmasked(part.content))
    target = tmp_path / "b.tar.gz"
    assert world.run("bundle", "--out", str(target)).code == 0
    assert set(holds(opened(target))) == {
        "logs/daemon.log",
        "logs/slurmctld.log",
        "boots/c2.3.log",
    }


def _unmasked(content: bytes) -> object:
    from collections import Counter

    from springtide.bundle.masks import Masked

    return Masked(content, Counter())


@pytest.mark.accepts("C24")
def test_a_part_that_fails_costs_itself_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect(self: FakeProvider, cluster: str) -> object:
        raise KeyError("InstanceId")

    def surrogate(which: list[str]) -> bytes:
        raise OSError("\ud800 is no letter")

    monkeypatch.setattr(FakeProvider, "list", defect)
    monkeypatch.setattr(bundle, "_check", surrogate)
    (world.layout.log / "munged.log").symlink_to("/etc/shadow")
    os.mkfifo(world.layout.log / "dnsmasq.log")
    (world.layout.log / os.fsdecode(b"\xff.log")).write_text("of nobody")
    (world.layout.conf / os.fsdecode(b"\xff.conf")).write_text("strange")
    target = tmp_path / "b.tar.gz"
    made = world.run("bundle", "--out", str(target), "--since", "999999999999d")
    assert made.code == 0, made.err
    members = opened(target)
    lacking = page(members, "What could not be had")
    assert "`nodes.json`: the daemon failed (500 Internal Server Error); see" in lacking
    assert "`logs/munged.log`" in lacking
    assert "`logs/dnsmasq.log`: it is no regular file" in lacking
    assert "`check.json`: \\ud800 is no letter" in lacking
    assert {"status.json", "logs/daemon.log", "conf/\\udcff.conf"} <= members.keys()
    assert "record/nodes.json" in members, "of what it does not answer, the disk has some"
    assert b"ancient" in members["logs/daemon.log"], "it is long since"


@pytest.mark.accepts("C24")
def test_a_check_that_says_much_is_no_reason_to_have_none(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = json.dumps({"checks": ["x" * 100] * 20_000}).encode()
    monkeypatch.setattr(bundle, "_check", lambda which: said)
    target = tmp_path / "b.tar.gz"
    assert world.run("bundle", "--out", str(target)).code == 0
    assert json.loads(opened(target)["check.json"]) == json.loads(said)


@pytest.mark.accepts("C24", "N15")
@pytest.mark.parametrize("user", ["games", "nobody"])
def test_only_root_gets_one_and_the_daemon_makes_none(world: World, user: str) -> None:
    """What others send is searched for root's secrets nowhere, so that nobody can guess them."""
    refused = _as(user, world, "--out", f"{world.file.parent}/x/b.tar.gz")
    assert refused.returncode == 1
    assert "only root can make a bundle" in refused.stderr
    assert list((world.file.parent / "x").iterdir()) == []
    with pytest.raises(asking.Refused, match="Not Found"):
        asking.Client(world.layout.state).post("/bundle", {"parts": {"check.json": CANARY}})


def _as(user: str, world: World, *arguments: str) -> "subprocess.CompletedProcess[str]":
    place = world.file.parent / "x"
    place.mkdir()
    os.chown(place, pwd.getpwnam(user).pw_uid, -1)
    return world.as_user(user, "bundle", *arguments)


def test_what_is_there_already_is_left_alone(world: World, tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    target.write_text("mine")
    refused = world.run("bundle", "--out", str(target))
    assert (refused.code, refused.out) == (2, "")
    assert "is there already; name another with --out" in refused.err
    assert target.read_text() == "mine"
    assert "no time" in world.run("bundle", "--since", "soon").err
    nowhere = world.run("bundle", "--out", f"{tmp_path}/no/b.tar.gz")
    assert (nowhere.code, "name another place with --out" in nowhere.err) == (2, True)


# --- without it --------------------------------------------------------------------------


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A cluster whose daemon is gone."""
    monkeypatch.setenv("OS_PASSWORD", CANARY)
    with served() as world:
        furnish(world.layout)
        assert world.run("resume", "c1").code == 0
        world.stop()
        yield world


@pytest.mark.accepts("C24")
def test_without_a_daemon_it_has_what_the_disk_has(left: World, tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    made = left.run("bundle", "--out", str(target))
    assert (made.code, made.out) == (0, f"{target}\n"), made.err
    assert "taking what the disk has" in made.err
    members = opened(target)
    assert "`answers of the daemon`: no daemon answers" in page(members, "What could not be had")
    nodes = {row["name"]: row["state"] for row in json.loads(members["record/nodes.json"])}
    assert nodes["c1"] == "ready"
    happened = [json.loads(line)["what"] for line in members["record/events.jsonl"].splitlines()]
    assert "node registered" in happened
    assert {"check.json", "cluster.json", "logs/daemon.log", "boots/c2.3.log"} <= members.keys()
    assert holds(members) == []


@pytest.mark.accepts("C24")
def test_a_broken_file_and_a_broken_record_are_no_reason_to_have_none(
    left: World, tmp_path: Path
) -> None:
    left.layout.stored_spec.write_text("cluster: [\n")
    left.layout.record.write_text("no database")
    for suffix in ("wal", "shm"):
        (left.layout.state / f"record.db-{suffix}").unlink(missing_ok=True)
    target = tmp_path / "b.tar.gz"
    assert left.run("bundle", "--out", str(target)).code == 0
    with tarfile.open(target) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        first = archive.extractfile(archive.getmembers()[0])
        assert first is not None
        text = first.read().decode()
    assert "logs/daemon.log" in names
    assert "cluster.json" not in names
    assert "`cluster.json`: " in text
    assert "`what the cluster file names`" in text
    assert "`record/facts.json`: DatabaseError: file is not a database" in text


@pytest.mark.accepts("C24")
def test_a_daemon_that_hangs_is_done_without(
    left: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_asked, "PATIENCE_S", 0.3)
    monkeypatch.setattr(bundle, "CHECK_S", 0.3)
    left.layout.socket.unlink(missing_ok=True)
    target = tmp_path / "b.tar.gz"
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(left.layout.socket))
        silent.listen()
        assert left.run("bundle", "--out", str(target)).code == 0
    lacking = page(opened(target), "What could not be had")
    assert "does not answer; see" in lacking
    assert "`check.json`: `tide check` took longer than 0.3 s" in lacking


def test_without_a_copy_of_the_file_that_of_the_people_is_taken(left: World) -> None:
    left.layout.stored_spec.unlink()
    order = Order(left.layout, 0.0, alone=True)
    members = opened(make(order, Parts()))
    assert parse(members["cluster.json"].decode(), "x").groups == left.spec.groups
    left.file.write_text("cluster: [")
    parts = Parts()
    make(order, parts)
    assert "what the cluster file names" in [one.name for one in parts.lacking]
    left.file.unlink()
    parts = Parts()
    make(order, parts)
    assert Lack("cluster.json", f"there is no {left.file}") in parts.lacking


def test_where_there_is_no_cluster_there_is_no_bundle(tmp_path: Path) -> None:
    refused = run("--state", str(tmp_path), "bundle", "--out", str(tmp_path / "b"))
    assert (refused.code, refused.err) == (2, f"tide: there is no cluster in {tmp_path}\n")
    assert list(tmp_path.iterdir()) == []
