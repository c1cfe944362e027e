"""`tide user`: what is taken, what is refused, and what is said of it."""

import http.server
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from springtide.cli import keys
from springtide.cli.client import Client, Refused
from springtide.cli.destroy import Kept, kept_of, render_kept, render_left
from springtide.cli.endings import Complaint, Exit
from springtide.cli.keys import MOST, read_keys
from springtide.cli.users import render_nodes
from springtide.configure.accounts import Accounts
from springtide.layout import Layout
from springtide.users import fingerprint
from tests.unit.cli_world import LIMIT_S, SPEC, World, served, wait_until
from tests.unit.test_users import KEY

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PRINT = fingerprint(KEY)
PASSWD = """\
root:x:0:0:root:/root:/bin/sh
mail:x:8:8::/var/mail:/bin/sh
bob:x:3000:3000::/nowhere/bob:/bin/sh
"""


@contextmanager
def reachable() -> Iterator[Path]:
    """A directory that everybody can reach."""
    with tempfile.TemporaryDirectory(prefix="tideusers", dir="/var/tmp") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def place() -> Iterator[Path]:
    with reachable() as path:
        yield path


@pytest.fixture(scope="module")
def empty() -> Iterator[tuple[World, Path]]:
    """A cluster without people, and it stays so."""
    with reachable() as path, cluster(path) as world:
        yield world, path


@contextmanager
def cluster(place: Path, more: str = "") -> Iterator[World]:
    """A cluster whose control host is a directory."""
    (place / "home").mkdir()
    (place / "etc").mkdir()
    for name, text in (
        ("passwd", PASSWD),
        ("group", "root:x:0:\nbob:x:3000:\nsudo:x:27:\n"),
        ("shadow", ""),
        ("gshadow", ""),
        ("login.defs", "USERGROUPS_ENAB yes\n"),
    ):
        (place / "etc" / name).write_text(text)
    key = place / "id.pub"
    key.write_text(f"{KEY} al@ice\n")
    with served(
        f"{SPEC}\nusers: {{homes: {place}/home{more}}}\nshared: [{{path: {place}}}]\n"
    ) as world:
        world.daemon.roster.accounts = Accounts(changes=True, root=place)
        yield world


def names(place: Path) -> list[str]:
    return [line.split(":")[0] for line in (place / "etc" / "passwd").read_text().splitlines()]


@pytest.mark.accepts("C22")
def test_somebody_is_added_listed_removed_and_comes_back_with_the_same_ids(place: Path) -> None:
    with cluster(place) as world:
        assert world.run("user", "list").out.startswith("no users; add one with")
        done = world.run(
            *("user", "add", "alice", "--key", str(place / "id.pub"), "--gecos", "Alice A"),
            *("--group", "proj", "--group", "x"),
        )
        assert (done.code, done.err) == (0, "")
        ids = f"uid 20000, gid 20000, home {place}/home/alice"
        assert done.out == f"alice added: {ids}\n"
        known = (world.daemon.layout.users / "known_hosts").read_text()
        assert known.split()[:2] == [",".join(world.daemon.spec.managed), "ssh-ed25519"]
        [listed] = json.loads(world.run("user", "list", "--json").out)["users"]
        assert (listed["groups"], listed["keys"][0]["comment"]) == (["proj", "x"], "al@ice")
        head, row = world.run("user", "list").out.splitlines()
        assert head.split() == ["USER", "UID", "GID", "GROUPS", "KEYS", "HOME", "SINCE"]
        assert row.split()[:6] == ["alice", "20000", "20000", "proj,x", "1", f"{place}/home/alice"]
        published = world.layout.users / "passwd"
        assert published.read_text() == (
            f"alice:x:20000:20000:Alice A:{place}/home/alice:/bin/bash\n"
        )
        assert names(place)[-1] == "alice"
        authorized = (place / "home" / "alice" / ".ssh" / "authorized_keys").read_text()
        assert authorized.startswith(f"{KEY} al@ice\n")

        told = world.call(world.daemon.roster.listed)
        assert [one["name"] for one in told["users"]] == ["alice"]
        assert [one["name"] for one in told["groups"]] == ["alice", "proj", "x"]

        gone = world.run("user", "remove", "alice", "--yes")
        assert (gone.code, gone.out) == (0, "alice removed\n")
        again = world.run("user", "remove", "alice", "--yes")
        assert (again.code, again.out) == (0, "alice was removed already\n")
        assert world.call(world.daemon.roster.listed)["users"] == []
        kept = "is kept, with the keys in it, and so is uid 20000"
        assert gone.err == f"tide: the home {place}/home/alice {kept}\n"
        assert (published.read_text(), "alice" in names(place)) == ("", False)
        assert (place / "home" / "alice" / ".ssh").is_dir()
        assert "uid 20003" in world.run("user", "add", "carol").out
        assert "uid 20000" in world.run("user", "add", "alice").out
        world.run("user", "remove", "carol", "--yes")
        stays = kept_of(Client(world.layout.state))
        assert (stays.accounts, stays.groups) == (["alice"], ["proj", "x"])
        assert stays.homes == [f"{place}/home/alice", f"{place}/home/carol"]
        events = world.run("events").out
        assert "user added: alice, uid 20000, by root" in events
        assert "user removed: alice, by root" in events


def test_what_a_destroy_leaves_of_users_is_named(tmp_path: Path) -> None:
    assert list(render_kept(Kept(["bob", "al\x1b"], ["/home/ann", "/home/bob"], ["proj"]))) == [
        "accounts of this machine that `tide user add` made stay: al\\x1b, bob; `userdel NAME` "
        "removes one",
        "homes of users stay: /home/ann, /home/bob; their numbers are given to nobody else",
        "groups of this machine that users were given stay: proj; `groupdel NAME` removes one, if "
        "nobody else needs it",
    ]
    assert list(render_kept(Kept([], [], []))) == []
    assert render_left(Layout(tmp_path / "gone")) == "nothing left"
    assert "its users'" in render_left(Layout(tmp_path / "gone"), users=True)


def test_somebody_whom_the_control_host_knows_stays_as_they_are(place: Path) -> None:
    with cluster(place) as world:
        done = world.run("user", "add", "bob")
        assert (done.code, "cannot make /nowhere/bob: /nowhere: No such file" in done.err) == (
            1,
            True,
        )
        (place / "etc" / "passwd").write_text(known := PASSWD.replace("/nowhere", f"{place}/home"))
        done = world.run("user", "add", "bob", "--key", str(place / "id.pub"))
        assert (done.code, done.out) == (
            0,
            f"bob added: uid 3000, gid 3000, home {place}/home/bob, as the control host has it\n",
        )
        assert "uid 3000 is below users.first (20000)" in done.err
        gone = world.run("user", "remove", "bob", "--yes")
        assert "the account on the control host was there before, and is kept" in gone.err
        assert (place / "etc" / "passwd").read_text() == known


def test_somebody_whose_account_cannot_be_removed_yet_leaves_all_nodes_and_the_rest_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(place) as world:
        world.run("user", "add", "alice")
        (place / "bin").mkdir()
        busy = place / "bin" / "userdel"
        busy.write_text("#!/bin/sh\necho user alice is currently used by process 7 >&2\nexit 8\n")
        busy.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
        gone = world.run("user", "remove", "alice", "--yes")
        assert (gone.code, gone.out) == (Exit.PARTLY, "alice removed\n")
        assert "used by process 7; mend that, and run `tide user remove alice` again" in gone.err
        assert (world.layout.users / "passwd").read_text() == ""
        assert world.run("user", "add", "alice").code == 0
        [listed] = json.loads(world.run("user", "list", "--json").out)["users"]
        assert listed["own_account"]
        busy.unlink()
        assert world.run("user", "remove", "alice", "--yes").code == 0
        assert "alice" not in names(place)


def test_somebody_whose_home_cannot_be_completed_is_known_and_the_rest_is_told(
    place: Path,
) -> None:
    with cluster(place) as world:
        home = place / "home" / "alice"
        home.mkdir()
        os.chown(home, 20000, 20000)
        (home / ".ssh").touch()
        done = world.run("user", "add", "alice", "--uid", "20000")
        assert (done.code, "run `tide user add alice` again" in done.err) == (Exit.PARTLY, True)
        assert (world.layout.users / "passwd").read_text().startswith("alice:")
        (home / ".ssh").unlink()
        assert world.run("user", "add", "alice").code == 0


def test_people_know_the_nodes_that_came_to_the_cluster_later(place: Path) -> None:
    with cluster(place) as world:
        world.run("user", "add", "alice")
        known = world.layout.users / "known_hosts"
        assert known.read_text().startswith("c1,c2,c3,c4 ")
        world.file.write_text(world.file.read_text().replace('"c[1-4]"', '"c[1-5]"'))
        assert world.run("apply", "--yes").code == 0
        wait_until(lambda: known.read_text().startswith("c1,c2,c3,c4,c5 "))


def test_an_account_that_was_made_by_hand_after_a_removal_is_not_ours(place: Path) -> None:
    with cluster(place) as world:
        world.run("user", "add", "alice")
        passwd = place / "etc" / "passwd"
        line = passwd.read_text().splitlines()[-1]
        world.run("user", "remove", "alice", "--yes")
        passwd.write_text(f"{passwd.read_text()}{line}\n")
        assert "as the control host has it" in world.run("user", "add", "alice").out
        world.run("user", "remove", "alice", "--yes")
        assert "alice" in names(place)


def test_keys_are_taken_back_one_by_one_and_all_with_their_user(place: Path) -> None:
    other = KEY.replace("ssh-ed25519 ", "").encode()
    with cluster(place) as world:
        key, authorized = str(place / "id.pub"), place / "home" / "alice" / ".ssh/authorized_keys"
        world.run("user", "add", "alice", "--key", key)
        print_ = json.loads(world.run("user", "list", "--json").out)["users"][0]["keys"][0]
        done = world.run("user", "add", "alice", "--remove-key", print_["fingerprint"])
        assert (done.code, other in authorized.read_bytes()) == (0, False)
        done = world.run("user", "add", "alice", "--remove-key", key)
        assert (done.code, "alice has no key SHA256:" in done.err) == (1, True)
        world.run("user", "add", "alice", "--key", key)
        assert other in authorized.read_bytes()
        world.run("user", "remove", "alice", "--yes")
        world.run("user", "add", "alice")
        assert other not in authorized.read_bytes()
        assert "alice@" in authorized.read_text()


def test_what_became_other_of_somebody_who_was_there_is_told(place: Path) -> None:
    with cluster(place) as world:
        key = str(place / "id.pub")
        world.run("user", "add", "alice")
        for words, said in (
            (("--key", key, "--dry-run"), f"alice would be changed: key {PRINT} added\n"),
            (("--key", key), f"alice changed: key {PRINT} added\n"),
            (("--key", key), "alice is so already\n"),
            (("--group", "proj", "--shell", "/bin/sh"), "group proj added, shell /bin/sh\n"),
            (("--remove-key", key), f"alice changed: key {PRINT} taken back\n"),
        ):
            done = world.run("user", "add", "alice", *words)
            assert (done.code, done.out.endswith(said)) == (0, True), done.out
        assert f"user changed: alice, uid 20000; key {PRINT} taken back, by root" in (
            world.run("events").out
        )


def test_a_shell_that_the_control_host_lacks_is_told(place: Path) -> None:
    with cluster(place) as world:
        done = world.run("user", "add", "alice", "--shell", "/bin/nope")
        assert (done.code, "the control host has no program /bin/nope: alice can" in done.err) == (
            0,
            True,
        )


def test_where_a_directory_has_the_users_now_those_of_before_are_not_published(
    place: Path,
) -> None:
    with cluster(place) as world:
        world.run("user", "add", "alice")
        parts = world.daemon.parts
        named = parts.spec.users.model_copy(update={"sssd": place / "sssd.conf"})
        parts.spec = parts.spec.model_copy(update={"users": named})
        world.call(world.daemon.roster.publish)
        assert (world.layout.users / "passwd").read_text() == ""
        (place / "sssd.conf").write_bytes(b"\xff\xfe")
        with pytest.raises(OSError, match="no text in UTF-8"):
            world.call(world.daemon.roster.listed)


def test_a_home_of_before_is_given_back_by_its_number(place: Path) -> None:
    with cluster(place) as world:
        (place / "home" / "alice" / "old").mkdir(parents=True)
        os.chown(place / "home" / "alice", 20_007, 20_007)
        done = world.run("user", "add", "alice")
        assert (done.code, "belongs to uid 20007" in done.err) == (Exit.FAILED, True)
        assert json.loads(world.run("user", "list", "--json").out) == {"users": []}
        assert world.run("user", "add", "alice", "--uid", "20007").code == 0
        assert (place / "home" / "alice" / ".ssh").stat().st_uid == 20_007


def test_nobody_gets_the_home_of_somebody_of_a_cluster_before(place: Path) -> None:
    with cluster(place) as world:
        (place / "home" / "ann" / "old").mkdir(parents=True)
        os.chown(place / "home" / "ann", 20_000, 20_001)
        assert "uid 20002, gid 20002" in world.run("user", "add", "zed").out
        refused = world.run("user", "add", "ann")
        assert "add somebody new with --uid 20000" in refused.err
        assert world.run("user", "add", "ann", "--uid", "20000").code == 0


def test_a_dry_run_shows_who_it_would_be(place: Path) -> None:
    with cluster(place) as world:
        done = world.run("user", "add", "alice", "--uid", "4000", "--dry-run")
        assert done.out.startswith("alice would be added: uid 4000, gid 4000, home ")
        assert done.err == "nothing was changed\n"
        assert json.loads(world.run("user", "list", "--json").out) == {"users": []}
        world.run("user", "add", "alice")
        before = names(place)
        assert world.run("user", "remove", "alice", "--dry-run").out == "alice would be removed\n"
        assert names(place) == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["Bad:name"], Exit.WRONG, "'Bad:name' is no name of a user"),
        (["root"], Exit.FAILED, "root is an account of the system (uid 0)"),
        (["mail"], Exit.FAILED, "mail is an account of the system (uid 8)"),
        (["a", "--uid", "999"], Exit.WRONG, "uid is a number from 1000"),
        (["a", "--uid", "x"], Exit.WRONG, "--uid is a whole number from 0"),
        (["a", "--uid", "3000"], Exit.FAILED, "uid 3000 is bob's"),
        (["a", "--gid", "0"], Exit.WRONG, "gid is a number from 1000"),
        (["a", "--group", "sudo"], Exit.FAILED, "group sudo is the system's (gid 27)"),
        (["a", "--group", "x y"], Exit.WRONG, "'x y' is no name of a group"),
        (["a", "--gecos", "x:0:0"], Exit.WRONG, "gecos is a text"),
        (["a", "--shell", "sh"], Exit.WRONG, "shell is the path of a program"),
        (["a", "--key", "/nowhere.pub"], Exit.WRONG, "/nowhere.pub is no file"),
        (["a", "--key", "/dev/zero"], Exit.WRONG, "/dev/zero is no file"),
        (["a", "--key", "http://x/"], Exit.WRONG, "use https, or say --insecure"),
        (["a", "--key", "file:///etc/passwd"], Exit.WRONG, "is not fetched"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    empty: tuple[World, Path], arguments: list[str], code: Exit, said: str
) -> None:
    world, place = empty
    done = world.run("user", "add", *arguments)
    assert (done.code, said in done.err) == (code, True), done.err
    assert (names(place), list((place / "home").iterdir())) == (["root", "mail", "bob"], [])


def test_a_private_key_is_not_taken(place: Path) -> None:
    with cluster(place) as world:
        path = place / "mine"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        done = world.run("user", "add", "alice", "--key", str(path))
        assert (done.code, f"{path} is a private key" in done.err) == (Exit.WRONG, True)


def test_nobody_is_removed_who_is_not_there_and_nobody_without_a_yes(place: Path) -> None:
    with cluster(place) as world:
        done = world.run("user", "remove", "nobody-such", "--yes")
        assert (done.code, "there is no user 'nobody-such'" in done.err) == (Exit.WRONG, True)
        world.run("user", "add", "alice")
        asked = world.run("user", "remove", "alice")
        assert (asked.code, "say --yes" in asked.err) == (Exit.WRONG, True)
        assert "alice" in names(place)


def test_only_root_gives_what_the_control_host_had_before_to_anybody(place: Path) -> None:
    """Whoever has their key in the home of somebody who may become root is root."""
    home = place / "home"
    with cluster(place) as world:
        (place / "etc" / "passwd").write_text(PASSWD.replace("/nowhere", str(home)))
        key = ("--key", str(place / "id.pub"))
        for words, what in (
            (("bob", *key), "the account bob"),
            (("bob", *key, "--dry-run"), "the account bob"),
            (("alice", "--group", "bob"), "the group bob"),
            (("alice", "--gid", "3000"), "the group bob"),
        ):
            refused = world.as_user("slurm", "user", "add", *words)
            assert (refused.returncode, f"slurm may not give {what} of" in refused.stderr) == (
                1,
                True,
            ), words
        assert list(home.iterdir()) == []
        assert world.as_user("slurm", "user", "add", "alice", "--group", "proj").returncode == 0
        assert world.as_user("slurm", "user", "add", "alice", *key).returncode == 0
        assert world.run("user", "add", "bob").code == 0
        again = world.as_user("slurm", "user", "add", "bob", *key)
        assert (again.returncode, "the account bob" in again.stderr) == (1, True)


def test_whoever_may_not_change_the_cluster_may_look(place: Path) -> None:
    with cluster(place) as world:
        refused = world.as_user("nobody", "user", "add", "alice")
        assert (refused.returncode, "may not change this cluster" in refused.stderr) == (1, True)
        assert world.as_user("nobody", "user", "list").stdout.startswith("no users")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "no name of a user"),
        ({"name": ["a"]}, "name is a text"),
        ({"name": "a", "uid": "4000"}, "uid is a whole number"),
        ({"name": "a", "uid": True}, "uid is a whole number"),
        ({"name": "a", "uid": 0}, "uid is a number from 1000"),
        ({"name": "a", "keys": KEY}, "keys is a list of texts"),
        ({"name": "a", "keys": [7]}, "keys is a list of texts"),
        ({"name": "a", "keys": ["x" * 20_000]}, "keys has at most"),
        ({"name": "a", "keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}, "is a private key"),
        ({"name": "a", "groups": ["g"] * 65}, "groups has at most"),
        ({"name": "a", "keys": [KEY], "gone_keys": [PRINT]}, "is to be added and taken back"),
    ],
)
def test_a_body_that_is_wrong_is_refused(
    empty: tuple[World, Path], body: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said) as refused:
        Client(empty[0].layout.state).post("/users", body)
    assert refused.value.status == 400


def test_where_a_directory_has_the_users_none_is_added_here(place: Path) -> None:
    (place / "sssd.conf").write_text("[sssd]\n")
    with cluster(place, f", sssd: {place}/sssd.conf") as world:
        for arguments in (("add", "alice"), ("remove", "alice", "--yes")):
            done = world.run("user", *arguments)
            assert (done.code, f"users come from {place}/sssd.conf" in done.err) == (1, True)
        told = world.call(lambda: world.daemon.roster.listed())
        assert told == {"users": [], "groups": [], "sssd": "[sssd]\n"}


def test_nodes_that_could_not_be_asked_are_named_with_why() -> None:
    missing = {"n7": "Connection refused", "n12": "no answer\x1b[2J"}
    said = render_nodes({"nodes": 42, "missing": missing}, "known on")
    assert said == (
        "known on 40 of 42 nodes that are up; n12: no answer\\x1b[2J; n7: Connection refused; "
        "they get it when they look by themselves, or join again"
    )
    assert (
        render_nodes({"nodes": 3, "missing": {}}, "gone from")
        == "gone from 3 of 3 nodes that are up"
    )
    assert render_nodes({"nodes": 0, "missing": {}}, "known on") == ""


# --- keys over the network -----------------------------------------------------------------


class Pages(http.server.BaseHTTPRequestHandler):
    """What a server of keys may do."""

    def do_GET(self) -> None:
        match self.path:
            case "/alice.keys":
                self._send(200, f"{KEY} alice\n".encode())
            case "/large":
                self._send(200, b"#" * (MOST + 10))
            case "/page":
                self._send(200, b"<html>sign in</html>")
            case "/away":
                self._send(302, b"", "ftp://127.0.0.1/alice.keys")
            case "/moved":
                self._send(302, b"", "/alice.keys")
            case "/round":
                self._send(302, b"", "/round")
            case _:
                self._send(404, b"no")

    def _send(self, code: int, body: bytes, location: str = "") -> None:
        self.send_response(code)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *about: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """It answers, though this machine may stand still for a while."""
    for limit in ("LIMIT_S", "SILENCE_S"):
        monkeypatch.setattr(keys, limit, LIMIT_S)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.accepts("C22")
@pytest.mark.parametrize("path", ["/alice.keys", "/moved"])
def test_keys_are_fetched_from_an_address(site: str, path: str) -> None:
    assert read_keys(site + path, insecure=True) == (f"{KEY} alice",)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/none", "answers 404"),
        ("/large", "more than 65536 bytes"),
        ("/page", "no public key"),
        ("/away", "is not fetched"),
        ("/round", "cannot fetch|answers 302"),
    ],
)
def test_an_address_that_has_no_keys_is_refused(site: str, path: str, said: str) -> None:
    with pytest.raises(Complaint, match=said):
        read_keys(site + path, insecure=True)


def test_an_address_that_anybody_could_answer_for_is_refused(site: str) -> None:
    with pytest.raises(Complaint, match="use https, or say --insecure"):
        read_keys(f"{site}/alice.keys")


def test_an_address_that_nobody_answers_at_is_told() -> None:
    with pytest.raises(Complaint) as caught:
        read_keys("https://127.0.0.1:9/")
    said = "cannot fetch https://127.0.0.1:9/: Connection refused; see whether the address is right"
    assert str(caught.value).startswith(said)
