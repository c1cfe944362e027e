"""Secrets of clouds are given by reference, and the daemon leaves them nowhere."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from base64 import b64encode
from pathlib import Path

import pytest

from springtide.bundle.masks import Masks
from springtide.bundle.parts import Parts
from springtide.bundle.secrets import Sources, known_secrets
from springtide.compose import compose
from springtide.configure.membership import Around, Newcomer
from springtide.model import Node, NodeState
from springtide.node.bundle import agent
from springtide.ports import Launch, Site
from springtide.spec import SpecError, parse
from tests.unit.cli_world import TIDE
from tests.unit.join_world import join_world

SECRET = "tide-test-secret-7f3a"
LIMIT_S = 200.0
DAEMON = f"""\
from springtide.api import app as api
from springtide.cli.main import app
api.PATIENCE_S = {LIMIT_S}
app()
"""
"""`tide`, with patience for commands: what they say is looked for, not that they were slow."""
BUNDLE = "bundle.tar.gz"
TEXT = """\
cluster: hy
state: {place}/state
batch: {{kind: {kind}, bin: {place}/bin}}
provider: {{kind: command, create: [{place}/bin/on], delete: [off], list: [{place}/bin/list]}}
flavors: {{small: {{cpus: 2, memory: 2G}}}}
groups:
  general: {{nodes: "c[1-2]", flavors: [small]}}
  plain: {{nodes: "p1", flavors: [small], without: [join]}}
  boxes: {{nodes: "b1", flavors: [small], provider: {{kind: containers}}}}
partitions: {{cloud: {{groups: [general, plain, boxes]}}}}
"""
NOBODY: dict[str, list[str]] = {"users": [], "groups": []}
QSTAT = '#!/bin/sh\nenv >>"{place}/environments"\necho "cannot connect to server" >&2\nexit 255\n'


@pytest.fixture(params=["torque", "openpbs"])
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "bin").mkdir()
    for name in ("pbsnodes", "qalter", "qmgr", "qrerun", "qstat"):
        program = tmp_path / "bin" / name
        program.write_text(QSTAT.format(place=tmp_path))
        program.chmod(0o755)
    found = tmp_path / "cluster.yaml"
    found.write_text(TEXT.format(place=tmp_path, kind=request.param))
    return found


def served(file: Path, planted: str = "") -> bytes:
    """What a daemon says that has secrets in its environment, as systemd gives them to it.

    With something in its log that it has not written.
    """
    environment = {**os.environ, "AWS_SECRET_ACCESS_KEY": SECRET, "OS_PASSWORD": SECRET}
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, "daemon", str(file)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        ends = time.monotonic() + LIMIT_S
        while not (file.parent / "state" / "tide.sock").exists():
            assert daemon.poll() is None, daemon.stdout and daemon.stdout.read()
            assert time.monotonic() < ends
            time.sleep(0.05)
        with (file.parent / "state" / "log" / "daemon.log").open("a") as log:
            log.write(planted)
        words = ["--state", str(file.parent / "state")]
        for command in (["status"], ["bundle", "--out", str(file.parent / BUNDLE)]):
            subprocess.run(
                [*TIDE, *command, *words], capture_output=True, check=False, timeout=LIMIT_S
            )
    finally:
        daemon.send_signal(signal.SIGTERM)
        said, _ = daemon.communicate(timeout=LIMIT_S)
    return said


def leaks(place: Path) -> list[str]:
    """Files with the secret in them by their paths, and parts of the bundle."""
    texts = {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }
    with tarfile.open(place / BUNDLE) as archive:
        parts = {one.name: archive.extractfile(one) for one in archive}
        texts |= {name: part.read() for name, part in parts.items() if part}
    seen = {"state/record.db", "environments", "tide-bundle-hy/logs/daemon.log"}
    assert seen <= texts.keys(), "it did something"
    forms = (SECRET.encode(), b64encode(SECRET.encode()), SECRET.encode().hex().encode())
    return [name for name, text in texts.items() if any(form in text for form in forms)]


@pytest.mark.accepts("N15")
def test_the_daemon_leaves_its_secrets_nowhere(file: Path) -> None:
    said = served(file)
    assert SECRET.encode() not in said
    assert leaks(file.parent) == []


@pytest.mark.accepts("N15")
@pytest.mark.parametrize("file", ["torque"], indirect=True)
def test_a_secret_that_got_into_a_log_is_found_there_and_not_in_the_bundle(file: Path) -> None:
    """The scan can fail; and what a program of the site prints is not passed on."""
    (file.parent / "bin" / "qstat").write_text(f"#!/bin/sh\necho {SECRET} >&2\nexit 255\n")
    served(file, f"event=failed detail={SECRET}\n")
    found = leaks(file.parent)
    assert "state/log/daemon.log" in found
    assert [name for name in found if name.startswith("tide-bundle")] == []
    with tarfile.open(file.parent / BUNDLE) as archive:
        page = archive.extractfile("tide-bundle-hy/MANIFEST.md")
        assert page is not None
        masked = page.read().decode().partition("## What was masked")[2]
    for name in ("logs/daemon.log", "status.json"):
        assert f"`{name}`: " in masked, "it was there; the daemon tells what commands say"


@pytest.mark.accepts("N15")
async def test_nothing_that_nodes_get_has_any(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "OS_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    (file.parent / "state").mkdir()
    parts = compose(parse(file.read_text(), str(file))).parts
    site = Site("10.0.0.1")
    try:
        for node in (Node("c1", "general"), Node("p1", "plain"), Node("b1", "boxes")):
            assert SECRET not in parts.configurator.user_data(node, site)
        assert parts.membership is not None
        newcomer = Newcomer(Node("c1", "general", NodeState.JOINING, 1), "10.0.0.7")
        around = Around(site, "1.2.3", 1_800_000_000.0, {"c2": "10.0.0.8"}, NOBODY)
        told = parts.membership.welcome(newcomer, around)
        assert {"entry", "names", "ssh"} <= told.keys(), "all that it gets"
        assert SECRET not in str(told)
    finally:
        await parts.record.store.close()
    assert SECRET.encode() not in agent()


@pytest.mark.accepts("N15")
async def test_programs_of_the_site_see_nothing_of_the_daemons_secrets(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have their own, where they look for them; what they are given they may print."""
    monkeypatch.setenv("OS_PASSWORD", SECRET)
    for name in ("on", "list"):
        program = file.parent / "bin" / name
        program.write_text(f'#!/bin/sh\nenv >>"{file.parent}/environments"\n')
        program.chmod(0o755)
    (file.parent / "state").mkdir()
    parts = compose(parse(file.read_text(), str(file))).parts
    try:
        await parts.home.create([Launch("hy", "c1", 1, "general", "host", "small")])
    finally:
        await parts.record.store.close()
        await parts.home.close()
    seen = (file.parent / "environments").read_text()
    assert "TIDE_CLUSTER=hy" in seen
    assert SECRET not in seen


@pytest.mark.accepts("N15")
@pytest.mark.parametrize("key", ["secret_access_key", "password", "access_key"])
def test_a_cluster_file_has_no_key_for_a_secret(key: str) -> None:
    """Everybody who may read the file would have it; the credentials are a file of their own."""
    text = f"cluster: hy\nprovider: {{kind: aws, region: r, {key}: {SECRET}}}\n"
    with pytest.raises(SpecError) as caught:
        parse(text, "cluster.yaml")
    assert SECRET not in str(caught.value)


@pytest.mark.accepts("N15")
async def test_a_node_that_joins_a_slurm_gets_the_munge_key_and_no_other_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked for as a bundle is: the cluster's own keys, and credentials of the environment."""
    monkeypatch.setenv("OS_PASSWORD", SECRET)
    async with join_world(tmp_path) as world:
        _, told = await world.joined()
        parts = Parts()
        sources = Sources(world.layout, world.spec, "", [os.environ])
        known = known_secrets(sources, parts)
        kept = {one.what.rpartition("/")[2] for one in known}
        assert {"munge.key", "secret", "tls.key", "ssh_ca", "id_ed25519"} <= kept
        assert parts.lacking == []
        masks, munge = Masks(known), str(world.layout.munge_key)
        assert masks.apply(json.dumps(told).encode()).found == {munge: 1}, "the scan can fail"
        rest = {key: value for key, value in told.items() if key != "munge"}
        assert rest.keys() >= {"names", "key"}
        assert not masks.apply(json.dumps(rest).encode()).found
        assert masks.apply(json.dumps({**rest, "more": SECRET}).encode()).found
