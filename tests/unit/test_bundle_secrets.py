"""Which secrets a bundle knows of, and which files are taken: also where much is broken."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import pytest

from springtide.bundle import secrets
from springtide.bundle.made import Order, make
from springtide.bundle.masks import Masks, Secret
from springtide.bundle.parts import Part, Parts
from springtide.bundle.secrets import Sources, known_secrets
from springtide.cli import bundle
from springtide.layout import Layout
from springtide.spec import parse
from tests.unit.cli_world import served
from tests.unit.test_bundle import KEY, Members, opened, page

SPEC = "cluster: sim\nstate: {place}/sim\nbatch: {{kind: fake}}\nprovider: {{kind: fake}}\n"
GROUPS = "groups: {g: {nodes: n1}}\n"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setattr(secrets, "PLACE", tmp_path)
    found = Layout(tmp_path / "sim")
    for path in (found.state, found.log, found.conf, found.munge_key.parent):
        path.mkdir()
    found.munge_key.write_bytes(KEY)
    found.stored_spec.write_text(SPEC.format(place=tmp_path) + GROUPS)
    return found


def made(layout: Layout, **environment: str) -> Members:
    return opened(make(Order(layout, 0.0, alone=True, environments=[environment]), Parts()))


# --- files -------------------------------------------------------------------------------


@pytest.mark.accepts("C24", "N15")
def test_what_cannot_be_searched_is_no_part_of_it(layout: Layout) -> None:
    """What rotating packed, cores, and what has the name of a log and is none."""
    packed = gzip.compress(b"password: opensesame " + b64encode(KEY))
    for name in ("slurmctld.log-20261116.gz", "core.4711", "slurmctld.log.1", "notes.txt"):
        (layout.log / name).write_bytes(packed)
    (layout.log / "daemon.log.2").write_text("of yesterday\n")
    (layout.log / "slurmctld.log-20261115").write_bytes(b"\x7fELF\0\0")
    (layout.log / "slurmdbd.log").write_bytes("Grüße\n".encode("latin-1") * 9 + b"a" * 900)
    members = made(layout)
    taken = [name for name in members if name.startswith("logs/")]
    assert taken == ["logs/daemon.log.2", "logs/slurmdbd.log"]
    lacking = page(members, "What could not be had")
    for name in ("slurmctld.log.1", "slurmctld.log-20261115"):
        assert f"`logs/{name}`: it is no plain text" in lacking


@pytest.mark.accepts("C24", "N15")
def test_the_cluster_file_is_shown_as_it_is_read_or_not_at_all(layout: Layout) -> None:
    commands = """\
provider:
  kind: command
  create:
    - ipmi
    - --password
    - opensesame
  delete: [ipmi, --password, 'it''s opensesame']
  list: [ipmi, "--password=opensesame x"]
other:
  password: |
    opensesame
  # or opensesame
"""
    layout.stored_spec.write_text(f"cluster: sim\n{commands}")
    members = made(layout)
    shown = json.loads(members["cluster.json"])
    assert shown["provider"]["create"] == ["ipmi", "--password", "<masked>"]
    assert shown["other"]["password"] == "<masked>"
    assert shown["provider"]["list"] == ["ipmi", "--password=<masked>"]
    assert b"opensesame" not in b"".join(members.values())
    layout.stored_spec.write_text("cluster: sim\npassword: [opensesame\n")
    members = made(layout)
    assert "cluster.json" not in members
    assert "`cluster.json`: " in page(members, "What could not be had")
    assert b"opensesame" not in b"".join(members.values())


@pytest.mark.accepts("C24")
def test_a_part_that_takes_too_long_to_search_is_left_out(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pattern is slow: a bundle comes of it nevertheless."""

    def slow(self: Masks, part: Part) -> object:
        if part.name == "logs/daemon.log":
            signal.setitimer(signal.ITIMER_REAL, 0.1)  # its time, not that of the others
            time.sleep(60)
        return self.apply(part.content)

    monkeypatch.setattr(Masks, "clean", slow)
    (layout.log / "daemon.log").write_text("x\n")
    members = made(layout)
    assert "logs/daemon.log" not in members
    assert "`logs/daemon.log`: to look for secrets in it took" in members["MANIFEST.md"].decode()
    assert "versions.txt" in members
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


# --- secrets -----------------------------------------------------------------------------


@pytest.mark.accepts("C24", "N15")
@pytest.mark.parametrize("value", ["/K7MDENGbPxRfiCYEXAMPLEKEYwJalr", "hunter2x", "-x y", "ü-ü-ü"])
def test_a_credential_may_begin_with_any_letter(layout: Layout, value: str) -> None:
    (layout.log / "daemon.log").write_text(f"event=failed detail='{value}'\n")
    members = made(layout, AWS_SECRET_ACCESS_KEY=value)
    assert members["logs/daemon.log"] == b"event=failed detail='<masked>'\n"
    assert "AWS_SECRET_ACCESS_KEY of the environment" in page(members, "What was masked")


def test_a_path_is_no_secret(layout: Layout) -> None:
    (layout.log / "daemon.log").write_text(f"see {layout.state} and /root\n")
    members = made(layout, TOKEN_PATH="/root", SOME_TOKEN=str(layout.state), PWD="/root")
    assert members["logs/daemon.log"] == f"see {layout.state} and /root\n".encode()


@pytest.mark.accepts("C24", "N15")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("clouds: {a: {auth: {password: open sesame}}}\n", "open sesame"),
        ('password: "open\\"sesame-1"\n', 'open"sesame-1'),
        ("password: 'it''s-sesame'\n", "it's-sesame"),
        ("password: |\n   sesame-block-1\n", "sesame-block-1"),
        ("password:\n   sesame-block-1\n", "sesame-block-1"),
        ('{"password" : "\\u00e4sesame-12"}', "äsesame-12"),
        ("password: 12345678\n", "12345678"),
        ("[default]\naws_secret_access_key = /a+b=%cd\n", "/a+b=%cd"),
        ("broken: [\npassword: sesame-broken\n", "sesame-broken"),
    ],
)
@pytest.mark.parametrize(
    "variable", ["OS_CLIENT_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "HOME"]
)
def test_values_of_files_of_credentials_are_known(
    layout: Layout, text: str, value: str, variable: str
) -> None:
    """Wherever the environment says that they are."""
    home = layout.state.parent / "home"
    file = home / ".aws" / "credentials"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (layout.log / "daemon.log").write_text(f"said {value}.\n")
    place = home if variable == "HOME" else file
    assert made(layout, **{variable: str(place)})["logs/daemon.log"] == b"said <masked>.\n"


@pytest.mark.accepts("C24", "N15")
def test_a_word_that_names_secrets_is_not_taken_for_one(layout: Layout) -> None:
    """Else it would be masked everywhere, and what it names would stay."""
    text = "ldap_default_authtok_type = password\n"
    (layout.state.parent / "sssd.conf").write_text(f"[domain/x]\n{text}")
    (layout.log / "daemon.log").write_text("db password: opensesame\n")
    sssd = {"OS_CLIENT_CONFIG_FILE": str(layout.state.parent / "sssd.conf")}
    members = made(layout, DB_PASSWORD="password", **sssd)
    assert members["logs/daemon.log"] == b"db password: <masked>\n"


@pytest.mark.accepts("C24", "N15")
def test_secrets_are_known_though_the_cluster_file_is_wrong(layout: Layout) -> None:
    place = layout.state.parent
    (place / "blue.secret").write_text("OS_PASSWORD=hunter2-blue-9\n")
    (place / "clouds.yaml").write_text("clouds: {m: {auth: {password: opensesame-9}}}\n")
    (place / "other.key").write_bytes(KEY[::-1])
    layout.stored_spec.write_text(
        f"cluster: blue\nbatch: {{kind: slurm, munge_key: {place}/other.key}}\n"
        f"provider: {{kind: openstack, credentials: {place}/clouds.yaml, nope: 1}}\n"
    )
    (layout.log / "daemon.log").write_text("hunter2-blue-9 and opensesame-9\n")
    (layout.log / "munged.log").write_text(KEY[::-1].hex())
    members = made(layout)
    assert members["logs/daemon.log"] == b"<masked> and <masked>\n"
    assert members["logs/munged.log"].startswith(b"left out: ")


@pytest.mark.accepts("C24", "N15")
def test_where_a_secret_cannot_be_read_that_is_said(layout: Layout) -> None:
    """And a pipe in its place is not waited for."""
    os.mkfifo(layout.state.parent / "blue.secret")
    masked = page(made(layout), "What was masked")
    assert "Not all secrets could be read" in masked
    assert "blue.secret holds" in masked


@pytest.mark.accepts("C24", "N15")
def test_what_a_daemon_has_in_its_environment_is_known_though_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = (
        "import socket, sys, time\ns = socket.socket(socket.AF_UNIX)\n"
        "s.bind(sys.argv[1])\ns.listen()\nprint(flush=True)\ntime.sleep(600)\n"
    )
    monkeypatch.setattr("springtide.cli.bundle_asked.PATIENCE_S", 0.3)
    monkeypatch.setattr(bundle, "_check", lambda which: b"{}")
    with served() as world:
        world.stop()
        world.layout.log.mkdir(exist_ok=True)
        (world.layout.log / "daemon.log").write_text("of the daemon: hunter2-hangs\n")
        gone, hangs = tmp_path / "gone.tar.gz", tmp_path / "hangs.tar.gz"
        assert world.run("bundle", "--out", str(gone)).code == 0
        world.layout.socket.unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, "-c", hung, str(world.layout.socket)],
            env={"OS_PASSWORD": "hunter2-hangs"},
            stdout=subprocess.PIPE,
        ) as process:
            try:
                assert process.stdout
                assert process.stdout.readline()
                assert world.run("bundle", "--out", str(hangs)).code == 0
            finally:
                process.kill()
    assert opened(hangs)["logs/daemon.log"] == b"of the daemon: <masked>\n"
    assert "the daemon's environment holds" in page(opened(gone), "What was masked")
    assert "the daemon's environment holds" not in page(opened(hangs), "What was masked")


def test_a_variable_is_a_secret_by_its_name(layout: Layout) -> None:
    given: Mapping[str, str] = {
        **dict.fromkeys(("SLURM_JWT", "AZURE_STORAGE_KEY", "LDAP_BIND_PW"), "opensesame"),
        **dict.fromkeys(("MY_TOKEN_2", "API_KEY_PROD", "OS_PASSCODE"), "opensesame"),
        **dict.fromkeys(("TOKEN_FILE", "OLDPWD", "LANG", "MONKEY"), "no-secret"),
    }
    found = known_secrets(Sources(layout, None, "", [given]), Parts())
    named = {one.what for one in found if one.what.endswith(" of the environment")}
    assert named == {f"{name} of the environment" for name in list(given)[:6]}
    assert Secret("x", b"opensesame").value in {one.value for one in found}


ATTACHED = """
cluster: sim
state: {place}/state
batch: {{kind: slurm, attach: {place}/slurm.conf, munge_key: {place}/munge.key}}
provider: {{kind: openstack, cloud: mine, network: n, credentials: {place}/clouds.yaml}}
flavors: {{small: {{cpus: 2, memory: 2G}}}}
images: {{base: {{id: x}}}}
groups: {{general: {{nodes: "c[1-2]", image: base, flavors: [small]}}}}
"""


@pytest.mark.accepts("C24", "N15")
def test_secrets_of_files_that_the_cluster_file_names_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Slurm that is there without us, credentials of a cloud, the environment of the service."""
    monkeypatch.setattr(secrets, "PLACE", tmp_path)
    (tmp_path / "sim.secret").write_text("SITE_WORD=swordfish-1\nOS_REGION=one\n")
    (tmp_path / "munge.key").write_bytes(KEY)
    (tmp_path / "clouds.yaml").write_text("clouds: {mine: {auth: {password: opensesame-9}}}\n")
    log = tmp_path / "slurmctld.log"
    log.write_text("swordfish-1 then opensesame-9 in region one\n")
    (tmp_path / "slurm.conf").write_text(f"ClusterName=x\nSlurmctldLogFile={log} # there\n")
    spec = parse(ATTACHED.format(place=tmp_path), "cluster.yaml")
    layout = Layout(spec.state)
    layout.state.mkdir()
    layout.stored_spec.write_text(ATTACHED.format(place=tmp_path))
    (layout.state / "boots").mkdir()
    (layout.boots / "c1.1.log").write_bytes(b"welcome: " + b64encode(b"{" + KEY + b"}"))
    members = made(layout)
    assert members["logs/slurm/slurmctld.log"] == b"<masked> then <masked> in region one\n"
    assert b"ClusterName=x" in members["conf/existing/slurm.conf"]
    assert members["boots/c1.1.log"].startswith(b"left out: ")
    assert "SITE_WORD of" in page(members, "What was masked")
