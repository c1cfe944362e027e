"""Accounts of a control host, in files of another root, and homes that people may have tampered."""

import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.configure import homes
from springtide.configure.accounts import Accounts
from springtide.users import Group, User, UserError
from tests.unit.test_users import KEY

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

UID = 54321
ALICE = User("alice", UID, UID, "Alice A", "/home/alice", "/bin/bash", ("proj",), (KEY,))
OWN = (Group("alice", UID), Group("proj", 54322))
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0nVqH2pP0bqkUe3m4rS1gq8dXo1f5yB7c9tLwKzE4M bob"
"""Another key."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's files of users, with one that nobody of us made."""
    (tmp_path / "etc").mkdir()
    for name, text in (
        ("passwd", "root:x:0:0:root:/root:/bin/sh\nbob:x:3000:3000::/home/bob:/bin/sh\n"),
        ("group", "root:x:0:\nbob:x:3000:\n"),
        ("shadow", "root:*:19000::::::\nbob:*:19000::::::\n"),
        ("gshadow", "root:*::\nbob:*::\n"),
        ("login.defs", "USERGROUPS_ENAB yes\nUID_MIN 1000\nUID_MAX 60000\n"),
    ):
        (tmp_path / "etc" / name).write_text(text)
    return tmp_path


def lines(root: Path, file: str) -> list[str]:
    return (root / "etc" / file).read_text().splitlines()


# --- accounts ------------------------------------------------------------------------------


def test_an_account_is_made_with_its_ids_and_groups_and_twice_changes_nothing(root: Path) -> None:
    accounts = Accounts(changes=True, root=root)
    for _ in range(2):
        accounts.make(ALICE, OWN)
        assert lines(root, "passwd")[2:] == [f"alice:x:{UID}:{UID}:Alice A:/home/alice:/bin/bash"]
        assert lines(root, "group")[2:] == [f"alice:x:{UID}:", "proj:x:54322:alice"]
        assert lines(root, "shadow")[2].startswith("alice:*:")
    assert not (root / "home").exists()


def test_a_name_and_a_shell_can_be_changed_later(root: Path) -> None:
    accounts = Accounts(changes=True, root=root)
    accounts.make(ALICE, OWN)
    accounts.make(replace(ALICE, gecos="Alice B"), OWN)
    assert lines(root, "passwd")[2:] == [f"alice:x:{UID}:{UID}:Alice B:/home/alice:/bin/bash"]


def test_an_account_that_was_made_goes_with_its_own_group(root: Path) -> None:
    accounts = Accounts(changes=True, root=root)
    accounts.make(ALICE, OWN)
    for _ in range(2):
        accounts.remove(ALICE)
        assert [line.split(":")[0] for line in lines(root, "passwd")] == ["root", "bob"]
        assert lines(root, "group")[2:] == ["proj:x:54322:"]


def test_a_group_that_is_also_anothers_first_stays(root: Path) -> None:
    accounts = Accounts(changes=True, root=root)
    accounts.make(ALICE, OWN)
    eve = User("eve", UID + 9, UID, "", "/home/eve", "/bin/sh")
    accounts.make(eve, OWN[:1])
    accounts.remove(ALICE)
    assert lines(root, "group")[2] == f"alice:x:{UID}:"


def test_an_account_that_was_there_is_neither_changed_nor_removed(root: Path) -> None:
    bob = User("bob", 3000, 3000, "other", "/x", "/bin/zsh", made=False)
    accounts, before = Accounts(changes=True, root=root), lines(root, "passwd")
    accounts.make(bob, (Group("bob", 3000),))
    accounts.remove(bob)
    accounts.remove(replace(bob, made=True, uid=4000))
    assert lines(root, "passwd") == before


def test_where_accounts_are_only_looked_at_none_is_made(root: Path) -> None:
    accounts, before = Accounts(root=root), lines(root, "passwd")
    accounts.make(ALICE, OWN)
    accounts.remove(User("bob", 3000, 3000, "", "/x", "/bin/sh"))
    assert lines(root, "passwd") == before
    assert accounts.read("bob").users["bob"].uid == 3000


def test_what_the_machine_refuses_is_told_in_its_words(root: Path) -> None:
    clash = replace(ALICE, uid=3000)
    with pytest.raises(UserError, match=r"useradd failed on the control host, for alice: .*3000"):
        Accounts(changes=True, root=root).make(clash, OWN)


# --- homes ---------------------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    """Homes that everybody can reach; pytest's own directories cannot be."""
    with tempfile.TemporaryDirectory(prefix="tidehomes", dir="/var/tmp") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def rights(path: Path) -> tuple[str, int, int]:
    status = path.lstat()
    return stat.filemode(status.st_mode), status.st_uid, status.st_gid


@pytest.mark.accepts("C22")
def test_a_home_has_the_skeleton_the_keys_and_one_of_its_own(place: Path) -> None:
    home = place / "alice"
    assert homes.make(ALICE, home, "blue") == ""
    assert rights(home) == ("drwx------", UID, UID)
    assert rights(home / ".ssh") == ("drwx------", UID, UID)
    for name in ("authorized_keys", "id_ed25519"):
        assert rights(home / ".ssh" / name) == ("-rw-------", UID, UID)
    skeleton = {path.name for path in Path(homes.SKELETON).iterdir()}
    assert {path.name for path in home.iterdir()} == {*skeleton, ".ssh"}
    own = (home / ".ssh" / "id_ed25519.pub").read_text().strip()
    assert own.endswith(" alice@blue")
    assert (home / ".ssh" / "authorized_keys").read_text().splitlines() == [KEY, own]


def test_what_somebody_has_in_their_home_stays_and_new_keys_come(place: Path) -> None:
    home = place / "alice"
    homes.make(ALICE, home, "blue")
    authorized, profile = home / ".ssh" / "authorized_keys", home / ".profile"
    own = (home / ".ssh" / "id_ed25519").read_text()
    profile.unlink(missing_ok=True)
    authorized.write_text(f"# mine\n{authorized.read_text()}ssh-rsa mine")
    homes.make(replace(ALICE, keys=(KEY, f"{KEY} 2")), home, "blue")
    assert authorized.read_text().splitlines()[-2:] == ["ssh-rsa mine", f"{KEY} 2"]
    assert authorized.read_text().count(KEY) == 2
    assert (home / ".ssh" / "id_ed25519").read_text() == own
    assert not profile.exists()


def test_links_in_a_home_lead_root_nowhere(place: Path) -> None:
    """All that lies in a home is done as its user, who may write nothing of root's."""
    secret, home = place / "root-owned", place / "alice"
    secret.write_text("as it was\n")
    homes.make(ALICE, home, "blue")
    authorized = home / ".ssh" / "authorized_keys"
    authorized.unlink()
    authorized.symlink_to(secret)
    with pytest.raises(UserError, match=r"alice cannot keep keys in .*/alice"):
        homes.make(ALICE, home, "blue")
    assert (secret.read_text(), rights(secret)) == ("as it was\n", ("-rw-r--r--", 0, 0))
    (home / ".ssh").rename(home / "old")
    (home / ".ssh").symlink_to(place)
    with pytest.raises(UserError, match="cannot keep keys"):
        homes.make(ALICE, home, "blue")
    assert rights(place) == ("drwxr-xr-x", 0, 0)
    assert sorted(path.name for path in place.iterdir()) == ["alice", "root-owned"]


def test_a_pipe_in_a_home_holds_nobody_up_and_leaves_no_process(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / "alice"
    homes.make(ALICE, home, "blue")
    authorized = home / ".ssh" / "authorized_keys"
    authorized.unlink()
    os.mkfifo(authorized)
    with pytest.raises(UserError, match=r"\.ssh/authorized_keys is no file"):
        homes.make(ALICE, home, "blue")
    authorized.unlink()
    pipe = home / ".ssh" / ".gone"
    os.mkfifo(pipe)
    os.chown(pipe, UID, UID)
    authorized.write_text(f"{KEY}\n")
    monkeypatch.setattr(homes, "LIMIT_S", 0.5)
    with pytest.raises(UserError, match="does its file server answer"):
        homes.forget(ALICE, home, [KEY])
    deadline = time.monotonic() + 60
    while subprocess.run(["pgrep", "-u", str(UID)], check=False).returncode == 0:
        assert time.monotonic() < deadline


def test_keys_that_are_taken_back_leave_what_else_people_have_there(place: Path) -> None:
    home = place / "alice"
    homes.forget(ALICE, home, [KEY])
    homes.make(ALICE, home, "blue")
    authorized = home / ".ssh" / "authorized_keys"
    kept = f"# mine\n{OTHER}\n# {KEY}\n"
    authorized.write_text(f"{kept}{KEY}\n")
    homes.forget(ALICE, home, [KEY])
    assert authorized.read_text() == kept
    assert rights(authorized) == ("-rw-------", UID, UID)
    assert {path.name for path in (home / ".ssh").iterdir()} == {
        *("authorized_keys", "id_ed25519", "id_ed25519.pub"),
    }


@pytest.mark.parametrize(
    "line",
    [
        f"{KEY} another comment",
        f"{KEY}\r",
        KEY.replace(" ", " \t "),
        f"  {KEY}",
        f"ED25519 {KEY.split()[1]}",
        f"restrict,pty {KEY} mine",
        f'command="echo \\"hi there\\" AAAA",no-pty {KEY}',
    ],
)
def test_a_key_that_is_taken_back_lets_nobody_in_however_its_line_is_written(
    place: Path, line: str
) -> None:
    """As sshd reads it: it asks for no comment, and allows options."""
    home = place / "alice"
    homes.make(ALICE, home, "blue")
    authorized = home / ".ssh" / "authorized_keys"
    authorized.write_bytes(f"{OTHER}\n{line}\n".encode())
    homes.forget(ALICE, home, [f"{KEY} alice@work"])
    assert authorized.read_text() == f"{OTHER}\n"


@pytest.mark.parametrize(
    "line",
    [
        f"{OTHER} instead of {KEY}",
        f"{OTHER.rpartition(' ')[0]} {KEY.split()[1]}",
        f'command="echo {KEY}" {OTHER}',
        f"{OTHER} \N{SNOWMAN}",
        "no key at all",
    ],
)
def test_other_keys_stay_though_their_lines_name_one_that_is_taken_back(
    place: Path, line: str
) -> None:
    home = place / "alice"
    homes.make(ALICE, home, "blue")
    authorized = home / ".ssh" / "authorized_keys"
    authorized.write_text(f"{line}\n\n{KEY}\n")
    homes.forget(ALICE, home, [KEY])
    assert authorized.read_text() == f"{line}\n\n"


def test_a_home_that_is_somebody_elses_or_a_link_is_left_alone(place: Path) -> None:
    home = place / "alice"
    home.mkdir()
    os.chown(home, 777, 777)
    with pytest.raises(UserError, match=r"belongs to uid 777.*chown -R 54321:54321 .*/alice"):
        homes.make(ALICE, home, "blue")
    home.rmdir()
    home.symlink_to(place)
    with pytest.raises(UserError, match="is no directory"):
        homes.make(ALICE, home, "blue")
    assert rights(place) == ("drwxr-xr-x", 0, 0)


def test_a_home_that_was_begun_is_completed(place: Path) -> None:
    (place / "alice").mkdir()
    homes.make(ALICE, place / "alice", "blue")
    assert rights(place / "alice") == ("drwxr-xr-x", UID, UID)
    assert (place / "alice" / ".ssh" / "authorized_keys").exists()


def test_homes_are_made_only_where_nobody_but_root_can_write(place: Path) -> None:
    place.chmod(0o1777)
    with pytest.raises(UserError, match="can be written by others than root"):
        homes.make(ALICE, place / "alice", "blue")
    with pytest.raises(UserError, match=r"No such file or directory; make it"):
        homes.make(ALICE, place / "none" / "alice", "blue")
    assert list(place.iterdir()) == []
