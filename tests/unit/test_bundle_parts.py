"""Parts of a bundle: how much of a file, from when on, and in which order."""

import sys
import time
from pathlib import Path

from springtide.bundle import disk
from springtide.bundle.files import Reader, younger
from springtide.bundle.masks import Masks
from springtide.bundle.pack import Label, manifest, pack
from springtide.bundle.parts import MOST, Lack, Part, Parts
from springtide.spec import parse
from tests.unit.cli_world import SPEC
from tests.unit.test_bundle import opened


def test_it_holds_no_more_than_so_much() -> None:
    parts = Parts()
    for name in ("a", "b", "c"):
        parts.add(Part(name, bytes(MOST // 2)))
    assert [part.name for part in parts.had] == ["a", "b"]
    assert [lack.name for lack in parts.lacking] == ["c"]


def test_of_a_long_log_the_end_is_taken_and_that_is_told(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_bytes(b"old\n" * 1000 + b"new\n" * 256)
    parts = Parts()
    Reader(parts).take(log, "long.log", most=1024)
    Reader(parts).take(tmp_path / "none.log", "none.log")
    assert parts.had == [Part("long.log", b"new\n" * 256, "the last 1 KiB of 4 KiB")]
    assert parts.lacking == []


def test_lines_before_the_time_that_is_asked_for_are_left_out() -> None:
    now = time.time()
    old, new = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)).encode()
        for at in (now - 7200, now - 60)
    )
    lines = b"[%s.000] a\n more\n[%s.000] b\n more\n" % (old, new)
    assert younger(lines, now - 3600) == b"[%s.000] b\n more\n" % new
    assert younger(lines, now) == b""
    assert younger(b"no time\n", now) == b"no time\n"


def test_equal_parts_make_equal_names_in_order() -> None:
    parts = Parts()
    for name in ("z.txt", "a/b.txt", "a/a.txt"):
        parts.add(Part(name, b"x"))
    raw = pack(Label("sim", "1", 1.0, 0.0), parts, Masks([]))
    assert list(opened(raw)) == ["MANIFEST.md", "a/a.txt", "a/b.txt", "z.txt"]


def test_secrets_that_were_looked_for_by_shape_alone_are_named_in_whole_sentences() -> None:
    lacking = [Lack("a search for what the daemon's environment holds", "no daemon answers")]
    page = manifest(Label("sim", "1", 1.0, 0.0), [], lacking, {})
    assert "by name and shape alone:** what the daemon's environment holds\n" in page


def test_where_the_batch_systems_version_is_not_to_be_had_that_is_said(tmp_path: Path) -> None:
    spec = parse(SPEC, "cluster.yaml")
    assert "batch system fake: not known" in disk.versions(spec)
    assert f"python {sys.version.split()[0]}" in disk.versions(None)
