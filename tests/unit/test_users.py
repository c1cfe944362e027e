"""People of a cluster: names, keys, ids that nobody gets twice, and the files that nodes read."""

import grp
import pwd
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from springtide import users
from springtide.configure import node_users
from springtide.configure.accounts import Accounts
from springtide.ids import Roll, Rules, decide_add
from springtide.model import NodeState
from springtide.node import accounts as node_accounts
from springtide.roster import agreed, locate, notes_of, require_mounted
from springtide.spec.read import parse
from springtide.users import Account, Group, Host, User, UserError, Wish
from tests.unit.join_world import join_world

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIiOTlZEGRVyGOTDVZaBf3gL2tB4HNJJyxLGEYkN1l2L"
RULES = Rules(Path("/home"), 20000, "/bin/bash")
NOBODY = Host({"root": Account(0, 0, "", "/root", "/bin/sh")}, {"root": 0, "audio": 29})
NOW = 1000.0


def roll(*known: User, groups: tuple[Group, ...] = (), host: Host = NOBODY) -> Roll:
    return Roll({one.name: one for one in known}, {one.name: one for one in groups}, host)


def somebody(name: str, uid: int, **other: object) -> User:
    plain = User(name, uid, uid, "", f"/home/{name}", "/bin/bash", created_at=1.0)
    return replace(plain, **other)  # type: ignore[arg-type]


def added(wish: Wish, *known: User, **other: object) -> User:
    return decide_add(wish, roll(*known, **other), RULES, NOW).user  # type: ignore[arg-type]


# --- what people write -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["alice", "_x", "a-1", "a" * 31])
def test_a_name_is_taken_as_it_is(name: str) -> None:
    assert users.parse_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "Alice", "1a", "-a", "a b", "a:b", "a\n", "a/b", "..", "ä", "a" * 32, "a$"]
)
def test_what_no_account_can_be_called_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no name of a user"):
        users.parse_name(name)


@pytest.mark.parametrize("text", ["a:b", "a\nb", "x" * 201, "\x1b[2J"])
def test_a_full_name_cannot_break_the_file_it_stands_in(text: str) -> None:
    with pytest.raises(UserError, match="gecos"):
        users.parse_gecos(text)


@pytest.mark.parametrize(
    "text",
    ["bash", "/bin/ba sh", "/bin/bash:x", "/bin/sh\n", "", "/usr/../bin/sh", "/" + "s" * 200],
)
def test_a_shell_is_the_path_of_a_program(text: str) -> None:
    with pytest.raises(UserError, match="shell"):
        users.parse_shell(text)


@pytest.mark.parametrize("number", [0, 999, 2**31 + 1, -1])
def test_ids_of_the_system_are_not_given(number: int) -> None:
    with pytest.raises(UserError, match="uid is a number from 1000"):
        users.parse_id(number, "uid")


@pytest.mark.accepts("C22")
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_keys_that_ssh_makes_are_taken_with_their_fingerprint(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "key"
    make = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "al ice@x", "-f", str(path)]
    subprocess.run(make, check=True)
    public = path.with_suffix(".pub")
    [key] = users.parse_keys(f"# mine\n\n{public.read_text()}{public.read_text()}")
    assert key == public.read_text().strip()
    told = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True)
    assert users.fingerprint(key) == told.stdout.split()[1]
    with pytest.raises(UserError, match=r"id is a private key.*give its \.pub"):
        users.parse_keys(path.read_text(), "id")


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 %%%%",
        KEY.replace("ssh-ed25519", "ssh-rsa"),
        f'command="/bin/sh" {KEY}',
        KEY.replace("ssh-ed25519", "ssh-dss"),
        KEY[:60],
        KEY[:-4],
        f"{KEY}AAAA",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5",
        f"{KEY} {'x' * users.MAX_KEY}",
    ],
)
def test_what_is_no_public_key_is_refused(line: str) -> None:
    with pytest.raises(UserError, match="no public key"):
        users.parse_keys(line)


def test_a_file_without_keys_and_one_with_too_many_are_refused() -> None:
    with pytest.raises(UserError, match="no public key in it"):
        users.parse_keys("# nothing\n\n")
    many = "\n".join(f"{KEY} {number}" for number in range(users.MAX_KEYS + 1))
    with pytest.raises(UserError, match="at most 64"):
        users.parse_keys(many)


# --- who gets which id ---------------------------------------------------------------------


def test_ids_are_counted_from_the_first_and_user_and_group_are_alike() -> None:
    first = added(Wish("alice"))
    assert (first.uid, first.gid, first.home) == (20000, 20000, "/home/alice")
    assert added(Wish("bob"), first).uid == 20001


def test_an_id_that_anybody_or_any_group_has_or_had_is_passed_over() -> None:
    gone = somebody("old", 20000, removed_at=5.0)
    host = Host({"local": Account(20001, 100, "", "/", "")}, {"team": 20002})
    other = (Group("proj", 20003),)
    assert added(Wish("alice"), gone, groups=other, host=host).uid == 20004


def test_an_id_that_owns_a_home_is_passed_over_for_users_and_groups() -> None:
    found = replace(roll(), owning=frozenset({20000, 20002}))
    done = decide_add(Wish("alice", groups=("proj",)), found, RULES, NOW)
    assert (done.user.uid, done.user.gid) == (20001, 20001)
    assert done.groups[-1] == Group("proj", 20003)
    assert decide_add(Wish("ann", uid=20000), found, RULES, NOW).user.uid == 20000


@pytest.mark.accepts("C22")
def test_whoever_comes_back_gets_the_ids_that_they_had() -> None:
    gone = somebody("alice", 20007, removed_at=5.0, keys=(KEY,), groups=("proj",))
    back = added(Wish("alice"), gone)
    assert (back.uid, back.gid, back.present, back.created_at) == (20007, 20007, True, NOW)
    assert (back.keys, back.groups) == ((), ())
    with pytest.raises(UserError, match="alice has uid 20007 and keeps it"):
        added(Wish("alice", uid=20009), gone)


def test_no_uid_is_given_twice() -> None:
    gone, there = somebody("old", 20000, removed_at=5.0), somebody("bob", 20001)
    with pytest.raises(UserError, match="uid 20000 was old's, and no id is given twice"):
        added(Wish("alice", uid=20000), gone, there)
    with pytest.raises(UserError, match="uid 20001 is bob's"):
        added(Wish("alice", uid=20001), gone, there)


def test_nobody_gets_a_group_that_somebody_has_alone() -> None:
    bob, groups = somebody("bob", 20001), (Group("bob", 20001), Group("team", 20005))
    with pytest.raises(UserError, match="gid 20001 is bob's own group"):
        added(Wish("alice", gid=20001), bob, groups=groups)
    assert added(Wish("alice", gid=20005), bob, groups=groups).gid == 20005
    assert added(Wish("bob", gid=20001), bob, groups=groups).gid == 20001
    host = Host({"local": Account(5000, 100, "", "/", "")}, {})
    with pytest.raises(UserError, match="uid 5000 is local's"):
        added(Wish("alice", uid=5000), host=host)


def test_an_account_of_the_control_host_is_used_as_it_is() -> None:
    here = Account(1234, 100, "Alice", "/export/alice", "/bin/zsh")
    made = decide_add(
        Wish("alice", None, None, "other", "/bin/sh", keys=(KEY,)),
        roll(host=Host({"alice": here}, {"users": 100})),
        RULES,
        NOW,
    )
    user = made.user
    assert (user.uid, user.gid, user.gecos, user.home, user.shell) == (
        *(1234, 100, "Alice", "/export/alice", "/bin/zsh"),
    )
    assert (user.made, user.keys, made.groups) == (False, (KEY,), ())
    with pytest.raises(UserError, match="alice has uid 1234 and keeps it"):
        added(Wish("alice", uid=2000), host=Host({"alice": here}, {}))


def test_accounts_and_groups_of_the_system_are_nobodys() -> None:
    with pytest.raises(UserError, match=r"root is an account of the system \(uid 0\)"):
        added(Wish("root"))
    service = Account(64030, 64030, "", "/nonexistent", "/usr/sbin/nologin")
    with pytest.raises(UserError, match=r"slurm is an account of the system \(uid 64030\)"):
        added(Wish("slurm"), host=Host({"slurm": service}, {}))
    with pytest.raises(UserError, match="audio is a group of the system"):
        added(Wish("audio"))
    with pytest.raises(UserError, match=r"group audio is the system's \(gid 29\)"):
        added(Wish("alice", groups=("audio",)))


def test_a_name_that_got_another_uid_on_the_control_host_is_refused() -> None:
    host = Host({"alice": Account(3000, 3000, "", "/", "")}, {})
    with pytest.raises(UserError, match="uid 20000 in the cluster and 3000 on the control host"):
        added(Wish("alice"), somebody("alice", 20000), host=host)


def test_adding_again_adds_keys_and_groups_and_changes_what_is_said() -> None:
    there = somebody("alice", 20000, keys=(KEY,), groups=("a",), gecos="Alice")
    two = (KEY, f"{KEY} 2")
    again = added(Wish("alice", None, None, None, "/bin/sh", ("b",), two), there)
    assert again.shell == "/bin/sh"
    assert replace(again, shell=there.shell) == replace(
        there, keys=two, groups=("a", "b"), gecos="Alice"
    )


def test_further_groups_get_ids_of_their_own_or_keep_those_they_have() -> None:
    host = Host({}, {"team": 5000})
    made = decide_add(Wish("alice", groups=("team", "proj", "x")), roll(host=host), RULES, NOW)
    assert made.groups == (
        *(Group("alice", 20000), Group("team", 5000), Group("proj", 20001), Group("x", 20002)),
    )


def test_a_group_that_is_there_can_be_somebodys_first() -> None:
    host = Host({}, {"staff5": 5000})
    made = decide_add(Wish("alice", gid=5000), roll(host=host), RULES, NOW)
    assert (made.user.gid, made.groups) == (5000, (Group("staff5", 5000),))


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (Account(5000, 0, "", "/home/alice", "/bin/sh"), r"the group of root \(gid 0\)"),
        (Account(5000, 100, "", "/", "/bin/sh"), "the home '/'"),
        (Account(5000, 100, "", "/home/a b", "/bin/sh"), "the home '/home/a b'"),
        (Account(5000, 6000, "", "/home/alice", "/bin/sh"), "the group 'domain users'"),
        (Account(5000, 100, "", "/home/alice", "no shell"), "shell is the path"),
    ],
)
def test_an_account_that_nodes_cannot_have_is_refused(here: Account, said: str) -> None:
    """One of them would have every node refuse all users."""
    with pytest.raises(UserError, match=said):
        added(Wish("alice"), host=Host({"alice": here}, {"domain users": 6000}))


def test_an_account_of_the_control_host_becomes_one_that_nodes_take() -> None:
    here = Account(5000, 6000, "Ä" * 300, "/home/alice", "")
    made = decide_add(
        Wish("alice"), roll(host=Host({"alice": here}, {"staff.a": 6000})), RULES, NOW
    )
    told = users.listed([made.user], made.groups)
    line = node_accounts.render_user(told["users"][0])
    assert line == f"alice:x:5000:6000:{'Ä' * 200}:/home/alice:/bin/sh"
    assert node_accounts.render_group(told["groups"][0]) == "staff.a:x:6000:"


def test_a_group_that_is_named_twice_or_is_their_own_is_taken_once() -> None:
    wish = Wish("alice", groups=("proj", "proj", "alice"))
    made = decide_add(wish, roll(), RULES, NOW)
    assert made.groups == (Group("alice", 20000), Group("proj", 20001))
    assert made.user.groups == ("proj",)


def test_ids_that_a_directory_tells_of_only_when_asked_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with sssd that enumerates nobody; the one who is there unlisted is nobody (65534)."""
    monkeypatch.setattr(pwd, "getpwall", list)
    monkeypatch.setattr(grp, "getgrall", list)
    accounts = Accounts()
    rules = replace(RULES, first=pwd.getpwnam("nobody").pw_uid)
    found = agreed(Wish("alice"), roll(host=accounts.read("alice")), rules, NOW, accounts)
    assert found.user.uid > rules.first
    assert found.user.gid > rules.first


# --- files ---------------------------------------------------------------------------------


def test_files_hold_everybody_and_only_groups_that_somebody_is_in() -> None:
    alice = somebody("alice", 20000, gecos="Alice A", groups=("proj",))
    groups = [Group("alice", 20000), Group("gone", 20001), Group("proj", 20002)]
    assert users.render_passwd([alice]) == "alice:x:20000:20000:Alice A:/home/alice:/bin/bash\n"
    assert users.render_group([alice], groups) == "alice:x:20000:\nproj:x:20002:alice\n"
    assert users.render_shadow([alice]) == "alice:*:::::::\n"


def test_nodes_are_told_of_users_and_groups_and_of_no_key() -> None:
    alice = somebody("alice", 20000, groups=("proj",), keys=(KEY,))
    told = users.listed([alice], [Group("alice", 20000), Group("proj", 20002)])
    about = {"gecos": "", "home": "/home/alice", "shell": "/bin/bash"}
    assert told == {
        "users": [{"name": "alice", "uid": 20000, "gid": 20000, **about}],
        "groups": [
            {"name": "alice", "gid": 20000, "members": []},
            {"name": "proj", "gid": 20002, "members": ["alice"]},
        ],
        "sssd": "",
    }


def test_the_switch_asks_for_further_users_once_and_for_nothing_else() -> None:
    before = "passwd:  files sss # why\ngroup: files\nhosts: files\n"
    after = "passwd:  files sss extrausers\ngroup: files extrausers\nhosts: files\n"
    assert node_users.render_switch(before) == after
    assert node_users.render_switch(after) == after


# --- where homes are -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "warned"),
    [
        ("shared: [{path: /home}]", "/home/a", False),
        ("shared: [{path: /home, source: /export/home}]", "/export/home/a", False),
        ('shared: [{path: /home, source: "nas:/export"}]', "/home/a", False),
        ("provider: {kind: containers, mounts: [/home]}", "/home/a", False),
        ("shared: [{path: /homes}]", "/home/a", True),
    ],
)
def test_a_home_is_where_this_machine_has_its_filesystem(
    text: str, place: str, warned: bool
) -> None:
    spec = parse(f"cluster: blue\n{text}\n", "x.yaml")
    found, note = locate(Path("/home/a"), spec)
    assert (str(found), bool(note)) == (place, warned)


def test_a_home_that_the_control_host_has_elsewhere_is_told() -> None:
    spec = parse("cluster: blue\nshared: [{path: /nowhere, source: /srv/home}]\n", "x.yaml")
    user = replace(somebody("alice", 20000), home="/nowhere/alice", keys=(KEY,))
    place, _ = locate(Path(user.home), spec)
    [note] = notes_of(user, place, spec)
    assert "the home is /srv/home/alice, and there is no /nowhere/alice" in note


def test_no_home_is_made_on_the_disk_where_another_machines_filesystem_should_be() -> None:
    text = 'cluster: blue\nshared: [{path: /nowhere, source: "nas:/export"}, {path: /home}]\n'
    spec = parse(text, "x.yaml")
    with pytest.raises(UserError, match=r"/nowhere \(nas:/export\) is not mounted"):
        require_mounted(Path("/nowhere/a"), spec)
    require_mounted(Path("/home/a"), spec)


async def test_nodes_that_drain_or_were_told_while_they_join_are_told_of_changes(
    tmp_path: Path,
) -> None:
    state = NodeState
    async with join_world(tmp_path) as world:
        await world.joined("b1")
        await world.moved("b1", state.BOOTING, state.JOINING)
        await world.requested("b2")
        await world.moved("b2", state.BOOTING, state.JOINING)
        await world.requested("b3")
        await world.moved("b3", state.BOOTING, state.JOINING, state.READY, state.DRAINING)
        up = await world.daemon.roster._up()
        assert sorted(node.name for node in up) == ["b1", "b3"]


def test_nobody_gets_the_group_of_a_team_by_being_called_like_it() -> None:
    ann = somebody("ann", 20000, groups=("proj",))
    teams = (Group("proj", 20001),)
    with pytest.raises(UserError, match=r"proj is a group, which ann is in: .* say --gid 20001"):
        added(Wish("proj"), ann, groups=teams)
    assert added(Wish("proj", gid=20001), ann, groups=teams).gid == 20001
