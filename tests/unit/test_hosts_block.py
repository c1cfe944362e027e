"""Names of nodes in a hosts file of the site, which stays as it is otherwise."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.ports import Site, Unavailable
from springtide.served import hosts_block
from springtide.served.hosts_block import HostsBlock, change, render

HERE = b"127.0.0.1 localhost\n10.0.0.1\thead head.site # ours\n"
SITE = Site("10.0.0.1")


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    file = tmp_path / "hosts"
    file.write_bytes(HERE)
    return file


@pytest.mark.accepts("N16")
def test_nodes_that_are_up_are_named_and_the_rest_stays(hosts: Path) -> None:
    block = HostsBlock(hosts, "blue")
    block.serve(SITE, {"n2": "10.0.0.3", "n1": "10.0.0.2"})
    ours = b"# BEGIN springtide blue\n10.0.0.2 n1\n10.0.0.3 n2\n# END springtide blue\n"
    assert hosts.read_bytes() == ours + HERE
    block.serve(SITE, {"n2": "10.0.0.9"})
    assert b"10.0.0.9 n2\n# END" in hosts.read_bytes()
    assert b"n1" not in hosts.read_bytes()
    block.stop()
    assert hosts.read_bytes() == HERE


def test_names_that_the_batch_system_needs_stay_until_it_is_for_good(hosts: Path) -> None:
    block = HostsBlock(hosts, "blue", {"placeholder": "192.0.2.1"})
    block.serve(SITE, {"n1": "10.0.0.2"})
    block.stop(for_good=False)
    ours = b"# BEGIN springtide blue\n192.0.2.1 placeholder\n# END springtide blue\n"
    assert hosts.read_bytes() == ours + HERE
    block.stop()
    assert hosts.read_bytes() == HERE


def named(hosts: Path) -> dict[str, str]:
    return hosts_block.parse(hosts.read_bytes(), "blue")


def test_a_name_that_is_always_there_keeps_its_last_address(hosts: Path) -> None:
    """Torque resolves names when it starts, and trusts nodes by what it found then."""
    block = HostsBlock(hosts, "blue", {"n1": "198.18.0.1", "n2": "198.18.0.2"})
    block.serve(SITE, {"n1": "10.0.0.2"})
    assert named(hosts) == {"n1": "10.0.0.2", "n2": "198.18.0.2"}
    for again in (block, HostsBlock(hosts, "blue", {"n2": "198.18.0.1", "n1": "198.18.0.2"})):
        again.serve(SITE, {})
        assert named(hosts)["n1"] == "10.0.0.2"
    block.stop(for_good=False)
    assert named(hosts)["n1"] == "10.0.0.2"
    block.serve(SITE, {"n2": "10.0.0.2"})
    assert named(hosts) == {"n1": "198.18.0.1", "n2": "10.0.0.2"}, "no two have the same"
    block.stop()
    assert hosts.read_bytes() == HERE


def test_a_planned_address_is_that_of_a_name_before_it_is_there(hosts: Path) -> None:
    always = {"n1": "198.18.0.1", "n2": "198.18.0.2"}
    plan = {"n1": "10.0.0.2", "n2": "10.0.0.3"}
    block = HostsBlock(hosts, "blue", always, planned=lambda site: plan)
    block.serve(SITE, {})
    assert named(hosts) == plan
    block.serve(SITE, {"n1": "10.0.0.3"})
    assert named(hosts) == {"n1": "10.0.0.3", "n2": "198.18.0.2"}
    block.serve(SITE, {})
    assert named(hosts) == plan


@pytest.mark.parametrize("text", [b"", b"127.0.0.1 localhost", b"a\r\nb\n\n\n", b"\xff\xfe\n#\n"])
def test_the_file_is_as_before_when_the_cluster_stops(hosts: Path, text: bytes) -> None:
    hosts.write_bytes(text)
    change(hosts, "blue", {"n1": "10.0.0.2"})
    assert hosts.read_bytes().endswith(text)
    change(hosts, "blue", {})
    assert hosts.read_bytes() == text


@given(st.binary(), st.dictionaries(st.sampled_from(["n1", "n2"]), st.just("10.0.0.2")))
def test_whatever_is_there_stays(text: bytes, addresses: dict[str, str]) -> None:
    once = render(text, "blue", addresses, "hosts")
    assert render(once, "blue", {}, "hosts") == text
    assert render(once, "blue", addresses, "hosts") == once


def test_two_clusters_have_a_part_each(hosts: Path) -> None:
    change(hosts, "blue", {"n1": "10.0.0.2"})
    change(hosts, "blue2", {"m1": "10.0.0.3"})
    change(hosts, "blue", {"n1": "10.0.0.4"})
    assert {b"10.0.0.4 n1", b"10.0.0.3 m1"} <= set(hosts.read_bytes().splitlines())
    change(hosts, "blue", {})
    change(hosts, "blue2", {})
    assert hosts.read_bytes() == HERE


def test_clusters_that_write_at_once_lose_nothing(
    hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for its turn, and a busy disk takes its time for each."""
    monkeypatch.setattr(hosts_block, "LOCK_S", 200.0)
    names = [f"c{number}" for number in range(8)]
    threads = [Thread(target=change, args=(hosts, name, {name: "10.0.0.2"})) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"10.0.0.2 {name}\n".encode() in hosts.read_bytes() for name in names)
    assert [path.name for path in hosts.parent.iterdir()] == ["hosts"]


def test_mode_and_owner_stay_and_a_link_stays_a_link(hosts: Path, tmp_path: Path) -> None:
    hosts.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(hosts, 12345, 23456)
    before, link = hosts.stat(), tmp_path / "link"
    link.symlink_to("hosts")
    change(link, "blue", {"n1": "10.0.0.2"})
    after = hosts.stat()
    assert link.is_symlink()
    assert stat.S_IMODE(after.st_mode) == 0o664
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino, "it was replaced whole"


def test_what_a_killed_daemon_left_is_cleared_away(hosts: Path) -> None:
    (hosts.parent / ".hosts.springtide").write_text("half of it")
    change(hosts, "blue", {"n1": "10.0.0.2"})
    assert hosts.read_bytes().endswith(HERE)
    assert [path.name for path in hosts.parent.iterdir()] == ["hosts"]


def test_attributes_of_the_file_stay(hosts: Path) -> None:
    try:
        os.setxattr(hosts, "user.label", b"of the site")
    except OSError:
        pytest.skip("this filesystem has no attributes")
    change(hosts, "blue", {"n1": "10.0.0.2"})
    assert os.getxattr(hosts, "user.label") == b"of the site"


def test_nothing_is_written_if_nothing_changes(hosts: Path) -> None:
    assert change(hosts, "blue", {"n1": "10.0.0.2"})
    inode = hosts.stat().st_ino
    assert not change(hosts, "blue", {"n1": "10.0.0.2"})
    assert hosts.stat().st_ino == inode


def test_names_of_before_stay_until_others_are_known(hosts: Path) -> None:
    block = HostsBlock(hosts, "blue")
    block.serve(SITE, {"n1": "10.0.0.2"})
    block.serve(SITE, None)
    assert b"10.0.0.2 n1\n" in hosts.read_bytes()


def test_without_a_file_nothing_is_touched(tmp_path: Path) -> None:
    block = HostsBlock(None, "blue", note=tmp_path / "note")
    block.serve(SITE, {"n1": "10.0.0.2"})
    block.stop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        b"# BEGIN springtide blue\n10.0.0.2 n1\n",
        b"# END springtide blue\n",
        b"# END springtide blue\n# BEGIN springtide blue\n",
        b"# BEGIN springtide blue\n# END springtide blue\n" * 2,
    ],
)
def test_a_part_that_somebody_broke_is_told_and_left(hosts: Path, text: bytes) -> None:
    hosts.write_bytes(text + HERE)
    with pytest.raises(Unavailable, match="has lost its first or last line, or is there twice"):
        change(hosts, "blue", {"n1": "10.0.0.2"})
    assert hosts.read_bytes() == text + HERE


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    block = HostsBlock(tmp_path / "none" / "hosts", "blue")
    with pytest.raises(Unavailable, match=r"names of nodes are not in .*correct batch\.hosts"):
        block.serve(SITE, {"n1": "10.0.0.2"})


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs a mount")
def test_a_file_that_is_mounted_is_written_where_it_is(hosts: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from springtide.served.hosts_block import change; "
        f"change(Path({str(hosts)!r}), 'blue', {{'n1': '10.0.0.2'}})"
    )
    source = tmp_path / "mounted"
    source.write_bytes(HERE)
    script = 'mount --bind "$1" "$2" && exec "$3" -c "$4"'
    command = ["unshare", "-m", "sh", "-ec", script, "sh", str(source), str(hosts)]
    subprocess.run([*command, sys.executable, code], check=True)
    assert source.read_bytes().startswith(b"# BEGIN springtide blue\n10.0.0.2 n1\n")
    assert source.read_bytes().endswith(HERE)


def test_another_file_gets_the_names_and_the_former_is_as_before(
    hosts: Path, tmp_path: Path
) -> None:
    other, note = tmp_path / "other", tmp_path / "kept" / "note"
    other.write_bytes(HERE)
    HostsBlock(hosts, "blue", note=note).serve(SITE, {"n1": "10.0.0.2"})
    now = HostsBlock(other, "blue", note=note)
    now.serve(SITE, {"n1": "10.0.0.2"})
    assert hosts.read_bytes() == HERE
    assert b"10.0.0.2 n1" in other.read_bytes()
    HostsBlock(None, "blue", note=note).stop()
    assert other.read_bytes() == HERE


def test_names_that_a_killed_daemon_wrote_last_leave_the_former_file_too(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*words: Any) -> None:
        change(*words)
        raise KeyboardInterrupt

    other, note = tmp_path / "other", tmp_path / "kept" / "note"
    other.write_bytes(HERE)
    with monkeypatch.context() as patched:
        patched.setattr(hosts_block, "change", killed)
        with pytest.raises(KeyboardInterrupt):
            HostsBlock(hosts, "blue", note=note).serve(SITE, {"n1": "10.0.0.2"})
    HostsBlock(other, "blue", note=note).serve(SITE, {"n1": "10.0.0.2"})
    assert hosts.read_bytes() == HERE


def test_a_lock_that_somebody_holds_on_to_is_told_and_not_waited_for_without_end(
    hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts_block, "LOCK_S", 0.2, raising=False)
    lock = hosts.parent / ".hosts.springtide.lock"
    said: list[str] = []

    def serve() -> None:
        try:
            HostsBlock(hosts, "blue").serve(SITE, {"n1": "10.0.0.2"})
        except Unavailable as error:
            said.append(str(error))

    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = Thread(target=serve)
        thread.start()
        thread.join(200)
    finally:
        os.close(held)
    thread.join()
    [why] = said
    assert f"another program has locked {lock}" in why
    assert hosts.read_bytes() == HERE


@pytest.mark.parametrize("place", [".", "hosts"])
def test_whoever_may_read_the_file_or_its_directory_cannot_hold_it_up(
    hosts: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Any user of the machine can lock what he can read."""
    monkeypatch.setattr(hosts_block, "LOCK_S", 0.2)
    held = os.open(hosts.parent / place, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert change(hosts, "blue", {"n1": "10.0.0.2"})
    finally:
        os.close(held)
    assert [path.name for path in hosts.parent.iterdir()] == ["hosts"]


def test_a_wrong_file_is_refused_before_there_are_nodes_and_keeps_nothing_from_stopping(
    tmp_path: Path,
) -> None:
    for wrong, why in ((tmp_path / "none", "No such file"), (tmp_path, "it is no file")):
        with pytest.raises(Unavailable, match=f"{why}.*or correct batch.hosts"):
            HostsBlock(wrong, "blue").serve(SITE, None)
    HostsBlock(tmp_path / "none", "blue").stop()
    HostsBlock(None, "blue").serve(SITE, None)
