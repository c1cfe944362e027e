"""The agent's pure parts, and what makes it one program for old images."""

import ast
import io
import json
import os
import pwd
import re
import subprocess
import sys
import zipfile
from base64 import b64encode
from pathlib import Path

import pytest

from springtide import node
from springtide.api.joining import MAX_BODY
from springtide.node import accounts, agent, bundle, console, features, fit, slurm, system
from springtide.node.console import Failed
from springtide.node.daemon import MOST_BYTES, Away, Daemon, Refused, parse_answer, render_body
from springtide.spec.joining import FEATURES

HERE = Path(bundle.__file__).parent
BLOCK = f"{system.BEGIN}\nours\n{system.END}\n"
PASSWD = ["root:x:0:0:root:/root:/bin/sh", "ann:x:1000:1000::/home/ann:/bin/sh"]
FIT = {"slurm": "22.05.8", "memory": 1000, "cpus": 2}


def test_the_agent_is_one_program_of_all_its_modules(tmp_path: Path) -> None:
    others = {path.stem for path in HERE.glob("*.py")} - {"__init__", "bundle"}
    assert set(bundle.MODULES) == others
    assert bundle.agent() == bundle.agent.__wrapped__()
    with zipfile.ZipFile(io.BytesIO(bundle.agent())) as archive:
        assert archive.testzip() is None
    program = tmp_path / "agent"
    program.write_bytes(bundle.agent())
    program.chmod(0o755)
    done = subprocess.run([program], capture_output=True, text=True, env={}, cwd="/")
    assert (done.returncode, done.stderr) == (2, f"{agent.USAGE}\n")


@pytest.mark.parametrize("module", bundle.MODULES)
def test_old_pythons_understand_it(module: str) -> None:
    """Its syntax, and that no module is newer than they are."""
    tree = ast.parse((HERE / f"{module}.py").read_text(), feature_version=(3, 6))
    found = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    names = {name.name for one in found if isinstance(one, ast.Import) for name in one.names}
    names |= {one.module or "" for one in found if isinstance(one, ast.ImportFrom)}
    ours = {name for name in names if name.split(".")[0] == "springtide"}
    assert {name.split(".")[0] for name in names - ours} <= sys.stdlib_module_names
    assert not names & {"dataclasses", "importlib.resources", "zoneinfo", "__future__"}


def test_the_agent_knows_every_feature_in_the_order_of_the_protocol() -> None:
    assert tuple(agent.APPLY) == FEATURES
    assert ("started", "joined", *agent.APPLY) == node.PHASES
    assert set(agent.REFRESH) < set(agent.APPLY)


@pytest.mark.accepts("X16")
def test_a_phase_is_one_line_of_one_format() -> None:
    assert console.render_phase("names", 1700000000.1234, 0.5) == (
        "phase names at 1700000000.123 took 0.500"
    )
    line = console.render_phase("health", 1.0, 2.0, "the disk is full")
    assert re.fullmatch(r"phase [a-z]+ at [0-9.]+ took [0-9.]+ failed: .*", line)


@pytest.mark.accepts("N17")
@pytest.mark.parametrize(
    ("slurmd", "slurmctld", "fits"),
    [
        ("22.05.8", "22.05.2", True),
        ("20.11.4", "22.05.8", True),
        ("20.02.7", "22.05.8", False),
        ("23.02.0", "22.05.8", False),
        ("23.02.1", "24.11.5", True),
        ("22.05.8", "24.11.5", False),
        ("22.05.8", "24.05.1", False),
        ("24.11.5", "26.05.5", True),
        ("24.05.5", "26.05.5", False),
        ("22.05.8", "", True),
    ],
)
def test_a_slurmd_may_be_older_by_as_many_releases_as_slurmctld_takes(
    slurmd: str, slurmctld: str, fits: bool
) -> None:
    assert fits == (not fit.decide_fit({**FIT, "slurm": slurmd}, {"version": slurmctld}))


def test_a_machine_without_slurmd_or_with_too_little_says_so() -> None:
    assert "no slurmd" in fit.decide_fit({**FIT, "slurm": ""}, {})
    less = fit.decide_fit(FIT, {"memory": 2000})
    assert less == "it has 1000 MiB, Slurm is told 2000: correct the flavor"
    assert fit.decide_fit(FIT, {"memory": 1000, "cpus": 2}) == ""


def test_our_lines_in_a_file_of_others_come_first_and_are_replaced() -> None:
    once = system.render_block("a\nb\n", ["ours"])
    assert once == f"{BLOCK}a\nb\n"
    assert system.render_block(once, ["ours"]) == once
    assert system.render_block(once, []) == "a\nb\n"


def test_lines_of_the_system_that_say_the_same_stay_as_they_are() -> None:
    kept, added = accounts.merge(PASSWD, set(), ["ann:x:1000:1000:Ann:/srv/ann:/bin/zsh"], "user")
    assert (kept, added) == (PASSWD, [])


@pytest.mark.parametrize("line", ["ann:x:20000:1::/h:/s", "bob:x:1000:1::/h:/s"])
def test_a_name_or_an_id_that_the_system_has_is_a_clash(line: str) -> None:
    with pytest.raises(Failed, match=r"of its own, ann \(1000\)"):
        accounts.merge(PASSWD, set(), [line], "user")


def test_lines_that_were_ours_are_replaced() -> None:
    line = "ann:x:20000:20000::/srv/ann:/bin/sh"
    assert accounts.merge(PASSWD, {"ann"}, [line], "user") == (PASSWD[:1], [line])


@pytest.mark.parametrize("line", ["bob:x:20000:1::/h:/s", "ann:x:20001:1::/h:/s"])
def test_two_of_the_cluster_with_one_name_or_id_are_refused(line: str) -> None:
    both = ["ann:x:20000:1::/h:/s", line]
    with pytest.raises(Failed, match=r"two users with one name or id, ann \(20000\) and "):
        accounts.merge([], set(), both, "user")


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_of_users_that_somebody_holds_on_to_is_not_waited_for_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setattr(accounts, "LOCK", str(lock))
    monkeypatch.setattr(accounts, "LOCK_S", 0.2)
    holder = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        assert held.stdout.readline()
        assert agent.have_users('{"users": [], "groups": []}') == 1
        held.kill()
    said = f"locked the users of this node for 0.2 s: end what holds {lock}, such as vipw"
    assert said in capsys.readouterr().err


def test_certificates_are_trusted_though_the_first_attempt_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written already is not yet what programs trust."""
    tries = tmp_path / "tries"
    program = tmp_path / "update"
    program.write_text(f"#!/bin/sh\necho x >>{tries}\n[ $(wc -l <{tries}) != 1 ]\n")
    program.chmod(0o755)
    monkeypatch.setattr(features, "AUTHORITIES", ((str(tmp_path / "place"), str(program)),))
    monkeypatch.setattr(features, "UNTRUSTED", str(tmp_path / "untrusted"), raising=False)
    welcome = {"certificates": {"files": {"site.crt": "PEM"}}}
    with pytest.raises(Failed, match="update failed"):
        features.apply_certificates(welcome)
    for _ in range(2):
        features.apply_certificates(welcome)
    assert tries.read_text() == "x\n" * 2


def test_a_munged_that_did_not_take_the_key_is_not_taken_for_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the image answers, with the key of the image."""
    ended: list[bool] = []

    def restart() -> None:
        ended.append(True)
        if len(ended) == 1:
            raise Failed("munged runs already and does not end: kill it")

    monkeypatch.setattr(slurm, "RUN", str(tmp_path / "run"))
    monkeypatch.setattr(slurm, "MUNGE_KEY", str(tmp_path / "munge" / "munge.key"))
    monkeypatch.setattr(slurm, "account_of", lambda _: pwd.getpwnam("root"))
    monkeypatch.setattr(system, "account_of", lambda _: pwd.getpwnam("root"))
    monkeypatch.setattr(slurm, "answers", lambda: True)
    monkeypatch.setattr(slurm, "_restart_munged", restart)
    welcome = {"munge": {"key": b64encode(b"k" * 64).decode(), "socket": slurm.SOCKET}}
    with pytest.raises(Failed):
        slurm.apply_munge(welcome)
    for _ in range(2):
        slurm.apply_munge(welcome)
    assert len(ended) == 2


def test_only_root_can_hold_the_lock_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may read a file can lock it, and so keep those who left on the node."""
    lock = tmp_path / "lock"
    monkeypatch.setattr(accounts, "LOCK", str(lock))
    monkeypatch.setattr(accounts, "_merge_all", lambda users, groups: None)
    umask = os.umask(0o022)
    try:
        assert agent.have_users('{"users": [], "groups": []}') == 0
    finally:
        os.umask(umask)
    assert lock.stat().st_mode & 0o777 == 0o600


def test_a_group_of_the_system_gets_the_members_it_has_in_the_cluster_and_loses_only_these() -> (
    None
):
    lines = ["root:x:0:", "lab:x:3000:eve,", "odd"]
    full, added = accounts.including(lines, ["lab:x:3000:ann,eve,bob", "new:x:3001:ann"])
    assert full == ["root:x:0:", "lab:x:3000:eve,ann,bob", "odd"]
    assert added == {"lab": ["ann", "bob"]}
    assert accounts.without(full, added) == ["root:x:0:", "lab:x:3000:eve", "odd"]
    assert accounts.including(lines, ["lab:x:3000:eve"]) == (lines, {})


def test_what_is_mounted_is_found_by_its_place_and_source() -> None:
    info = (
        "22 1 0:5 / / rw - ext4 /dev/vda rw\n"
        "30 22 0:9 / /srv/our\\040data rw - nfs4 nas:/export/ rw\n"
        "31 22 0:9 /here /srv/bound rw - ext4 /dev/vda rw\n"
    )
    assert features.is_mounted(info, "nas:/export", "/srv/our data")
    assert not features.is_mounted(info, "nas:/other", "/srv/our data")
    assert not features.is_mounted(info, "nas:/export", "/srv")
    assert features.is_mounted(info, "/here", "/srv/bound")
    assert features.mounted_from(info, "/srv/our data") == "nas:/export/"
    assert features.mounted_from(info, "/srv") == ""


def test_the_address_of_a_node_is_its_own_though_others_know_it_by_another() -> None:
    told = {"head": "10.0.0.1", "n-7": "203.0.113.7"}
    assert features.render_hosts("n-7", "10.0.0.7", told) == ["10.0.0.7 n-7", "10.0.0.1 head"]


def test_of_a_name_that_a_node_is_told_the_lines_of_its_image_say_nothing() -> None:
    image = (
        "# ours\n127.0.0.1 localhost\n127.0.1.1 n-7.site n-7 # itself\n10.9.9.9 head\n\n::1 ip6\n"
    )
    lines = ["10.0.0.7 n-7", "10.0.0.1 head"]
    kept = "# ours\n127.0.0.1 localhost\n127.0.1.1 n-7.site\n\n::1 ip6\n"
    assert features.without_names(image, lines) == kept
    assert features.without_names(kept, lines) == kept


@pytest.mark.parametrize("character", ["a", "\x01", "é", "\N{SNOWMAN}", "\U0001f600", "\udc80"])
def test_a_log_is_cut_until_the_report_is_as_short_as_the_daemon_wants_it(character: str) -> None:
    log = character * console.LOG_CHARACTERS + " the end"
    body = render_body({"node": "n-7", "log": log})
    assert len(body) <= MOST_BYTES < MAX_BODY
    assert json.loads(body)["log"].endswith(" the end")


def test_only_the_last_phases_of_a_long_boot_are_kept_for_the_daemon() -> None:
    daemon = Daemon({"node": "n-7"}, "127.0.0.1:1", "")
    for number in range(100):
        daemon.note("mounts", number, "no answer" * 1000)
    assert [one["took_s"] for one in daemon.phases] == list(range(40, 100))
    assert len(render_body({"phases": daemon.phases})) <= MOST_BYTES


def test_only_what_is_final_is_not_tried_again() -> None:
    assert parse_answer(200, b'{"a": 1}') == {"a": 1}
    with pytest.raises(Refused, match="used"):
        parse_answer(403, b'{"error": "used", "final": true}')
    for status, body in (
        (503, b'{"error": "later", "final": false}'),
        (502, b"<html>"),
        (200, b"[]"),
    ):
        with pytest.raises(Away):
            parse_answer(status, body)
