"""A health check that nodes would not find is told before the first one boots."""

import json
from pathlib import Path
from typing import Any

from springtide.cli.client import Client
from springtide.cli.health_checks import look_at_health
from springtide.cli.subject import Check, Subject, subject
from springtide.spec import parse

FAMILY = "images: {compute: {build: {base: host}}}\n"
GROUPS = 'g: {nodes: "c[1-2]", image: compute}'


def a_subject(state: Path, more: str = "", groups: str = 'g: {nodes: "c[1-2]"}') -> Subject:
    text = f"cluster: blue\nstate: {state}\ngroups: {{{groups}}}\n{more}"
    return subject(parse(text, "cluster.yaml"))


def found(subject: Subject) -> list[Check]:
    return list(look_at_health(subject))


class Told(Client):
    """A daemon that has built one image."""

    def get(self, path: str, **query: Any) -> Any:
        assert path == "/images"
        known = {"family": "compute", "number": 4, "arch": "x86_64", "group": "g"}
        where = {"provider": "containers", "made_from": "host", "state": "ready"}
        return {"images": [{**known, **where, "id": str(self.layout.images / "compute-4")}]}


def built(subject: Subject) -> Subject:
    """With an image of the family, as the daemon makes it."""
    daemon = Told(subject.spec.state)
    home = daemon.layout.images / "compute-4"
    (home / "layer").mkdir(parents=True)
    picture = {"name": "compute-4", "cluster": "blue", "created_at": 0.0, "arch": "x86_64"}
    (home / "image.json").write_text(json.dumps({**picture, "below": ["/"]}))
    return Subject(subject.spec, daemon, {})


def test_a_health_check_must_be_there_for_nodes_and_executable(tmp_path: Path) -> None:
    program = tmp_path / "check"
    mounts = f"provider: {{mounts: [{tmp_path}]}}\n"
    seen = a_subject(tmp_path / "s", f"{mounts}health: {program}\n")
    [line] = found(seen)
    assert (line.ok, line.todo) == (False, "make it, or correct `health`")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    [line] = found(seen)
    assert (line.ok, line.todo) == (False, f"run `chmod 755 {program}`")
    program.chmod(0o755)
    assert found(seen) == []


def test_a_health_check_is_looked_for_in_the_image_that_nodes_have(tmp_path: Path) -> None:
    images = f"images: {{base: {{path: {tmp_path}/base}}}}\n"
    groups = 'g: {nodes: "c[1-2]", image: base}'
    seen = a_subject(tmp_path / "s", f"{images}health: /opt/check\n", groups)
    [line] = found(seen)
    assert line.text.startswith(f"{tmp_path}/base/opt/check is no file, so nodes of image base")
    [line] = found(a_subject(tmp_path, "health: /run/check\n"))
    assert line.text == "nodes do not see /run/check: they have a /run and /tmp of their own"


def test_where_a_family_is_not_built_yet_its_base_is_looked_at(tmp_path: Path) -> None:
    seen = a_subject(tmp_path / "s", f"{FAMILY}health: /opt/no/check\n", GROUPS)
    [line] = found(seen)
    assert (line.ok, line.todo) == (None, "have a script of the build make it, or make it")
    assert line.text.startswith("/opt/no/check is no program, so images of compute have none")
    assert found(a_subject(tmp_path / "s", f"{FAMILY}health: /bin/true\n", GROUPS)) == []


def test_a_family_is_looked_through_down_to_its_base(tmp_path: Path) -> None:
    missing = a_subject(tmp_path / "s", f"{FAMILY}health: /opt/no/check\n", GROUPS)
    seen = built(missing)
    [line] = found(seen)
    assert (line.ok, line.text) == (
        False,
        "/opt/no/check is no program, so nodes of image compute@4 would fail the check",
    )
    program = seen.daemon.layout.images / "compute-4/layer/opt/no/check"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert found(seen) == []
    there = a_subject(tmp_path / "s", f"{FAMILY}health: /bin/true\n", GROUPS)
    assert found(Subject(there.spec, seen.daemon, {})) == []


def test_an_image_that_cannot_be_looked_into_is_told(tmp_path: Path) -> None:
    seen = built(a_subject(tmp_path / "s", f"{FAMILY}health: /opt/no/check\n", GROUPS))
    (seen.daemon.layout.images / "compute-4/image.json").unlink()
    [line] = found(seen)
    assert line.ok is None
    assert line.text.startswith("whether nodes of compute@4 have /opt/no/check cannot be seen: ")
