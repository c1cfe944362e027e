"""What failed boots said is kept, is bounded, and is there to be read by those who may."""

import os
import resource
from pathlib import Path

import pytest

from springtide.api.boot import both
from springtide.cli.log import render_text
from springtide.model import Node, NodeState
from springtide.steps import bootlogs
from springtide.steps.bootlogs import KEPT, keep, push, read_kept
from tests.unit.cli_world import served


def node(name: str = "c1", generation: int = 1) -> Node:
    return Node(name, "general", NodeState.JOINING, generation)


def test_the_last_failed_boot_is_found_and_so_are_those_before(tmp_path: Path) -> None:
    boots = tmp_path / "boots"
    for generation in (2, 9, 10):
        keep(boots, {node(generation=generation): f"boot {generation}"})
    keep(boots, {node("c1.7", 11): "of another node"})
    last = read_kept(boots, "c1", None)
    assert last is not None
    assert (last.generation, last.text) == (10, "boot 10")
    earlier = read_kept(boots, "c1", 9)
    assert earlier is not None
    assert earlier.text == "boot 9"
    assert read_kept(boots, "c1", 3) is None
    assert read_kept(boots, "c2", None) is None


def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    boots = tmp_path / "boots"
    umask = os.umask(0)
    try:
        keep(boots, {node(): "text"})
    finally:
        os.umask(umask)
    assert (boots.stat().st_mode & 0o777) == 0o750
    assert ((boots / "c1.1.log").stat().st_mode & 0o777) == 0o640


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    keep(tmp_path, {node(f"c{n}"): "old" for n in range(KEPT)})
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    keep(tmp_path, {node(f"d{n}"): "new" for n in range(KEPT - 1)})
    assert len(list(tmp_path.glob("d*.log"))) == KEPT - 1
    assert len(list(tmp_path.glob("c*.log"))) == 1
    keep(tmp_path, {node(f"e{n}"): "new" for n in range(10 * KEPT)})
    assert len(list(tmp_path.glob("*.log"))) == KEPT


def test_what_cannot_be_written_is_not_kept_and_stops_nobody(tmp_path: Path) -> None:
    keep(tmp_path / "no" / "such", {node(): "text"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        keep(tmp_path, {node(): "text", node("../c2"): "text", node("x" * 300): "text"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c3.1.log").symlink_to("/etc/hostname")
    keep(tmp_path, {node("c3"): "text", node("../c2"): "text", node("c4"): "text"})
    assert read_kept(tmp_path, "c4", None)
    assert not (tmp_path.parent / "c2.1.log").exists()
    assert Path("/etc/hostname").read_text() != "text"


def test_the_log_of_a_node_is_its_console_or_that_of_its_last_failed_boot() -> None:
    with served() as world:
        boots = world.layout.boots
        keep(boots, {node("c2", 3): "its slurmd ended: …\n\nslurmd: \x1b[31mfatal\x00: gone\n"})
        assert world.run("resume", "c1").code == 0
        live = world.run("log", "c1")
        assert (live.code, live.out, live.err) == (0, "c1 booted\n", "tide: boot 1 of c1\n")
        kept = world.run("log", "c2")
        assert kept.out == "its slurmd ended: …\n\nslurmd: \\x1b[31mfatal\\x00: gone\n"
        assert kept.err.startswith("tide: boot 3 of c2 failed at 20")
        assert world.run("log", "c2", "--generation", "3").out == kept.out
        for wrong in (["c3"], ["c2", "-g", "4"], ["c2", "-g", "x"], ["c[1-2]"], ["zz"]):
            refused = world.run("log", *wrong)
            assert (refused.code, refused.out) == (2, "")
            assert refused.err
        world.faults.denied = True
        assert world.run("log", "c2").out == kept.out
        assert world.run("log", "c1").code == 1


def test_a_user_may_not_read_what_machines_said_at_boot() -> None:
    with served() as world:
        keep(world.layout.boots, {node(): "secret"})
        refused = world.as_user("nobody", "log", "c1")
        assert refused.returncode == 1
        assert refused.stderr == (
            "tide: nobody may not read boot logs; ask an admin of the cluster\n"
        )


@pytest.mark.parametrize("name", ["../../etc/passwd", "c1/..", "", ".", "*"])
def test_names_that_are_no_nodes_read_nothing(tmp_path: Path, name: str) -> None:
    keep(tmp_path, {node(): "text"})
    assert read_kept(tmp_path, name, None) is None
    assert read_kept(tmp_path, name, 1) is None
    assert bootlogs.read_kept(tmp_path, "c1", 1)


def test_what_a_machine_said_can_neither_command_a_terminal_nor_turn_its_letters_round() -> None:
    said = "a\tb  c\r\n\x1b[31mred\n\u202egnp.exe\u2066\x9b\nä 漢\n\n"
    assert render_text(said).split("\n") == [
        "a       b  c",
        "\\x1b[31mred",
        "\\x202egnp.exe\\x2066\\x9b",
        "ä 漢",
    ]


def test_what_a_node_sent_is_shown_with_what_its_cloud_shows() -> None:
    live = {"generation": 2, "live": True, "kept_at": None, "text": "Linux boots\n"}
    kept = {"generation": 2, "live": False, "kept_at": 1.0, "text": "the node gave up: no slurmd\n"}
    shown = both(live, kept)
    assert shown == {**live, "text": "Linux boots\n\nthe node gave up: no slurmd\n"}
    assert both({**live, "text": ""}, kept) == {**live, "text": kept["text"]}
    assert both(live, {**kept, "text": "why\n\nLinux boots\n"}) == {
        **live,
        "text": "why\n\nLinux boots\n",
    }
    assert both(live, {**kept, "generation": 1}) == live
    assert both(None, kept) == kept


def test_what_a_node_sent_is_kept_until_more_is_known(tmp_path: Path) -> None:
    node = Node("c1", "general", NodeState.JOINING, 3)
    push(tmp_path / "boots", node, "no slurmd", "the end\n")
    found = read_kept(tmp_path / "boots", "c1", None)
    assert found is not None
    assert (found.generation, found.text) == (3, "the node gave up: no slurmd\nthe end\n")
    keep(tmp_path / "boots", {node: "its boot failed: no slurmd\n\nall of it"})
    found = read_kept(tmp_path / "boots", "c1", 3)
    assert found is not None
    assert found.text.endswith("all of it")
    (path,) = (tmp_path / "boots").glob("*.said")
    assert path.stat().st_mode & 0o007 == 0
