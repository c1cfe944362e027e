"""What the cluster file takes, nodes take: its extremes, told to the agent as a node is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from springtide.configure.membership import Around, Newcomer
from springtide.model import Node, NodeState
from springtide.node import accounts, features, given
from springtide.node.console import Failed
from springtide.ports import Site
from springtide.spec import SpecError, parse
from springtide.users import Group, User, listed, parse_gecos, parse_name, parse_shell
from tests.unit.join_world import TEXT, join_world

HOMES = "/" + "h" * 159
SHELL = "/" + "s" * 199
SOURCE = "/" + "d" * 255
URL = "https://" + "u" * 500
OPTION = "o" * 128
BRANCH = "release/24.11"
ODD = ",".join(f"{'n' * 50}{number}x" for number in range(400))
EXTREMES = (
    TEXT.replace('"x1"', f'"{ODD}"')
    + f"""
time: [{"t" * 63}.example.org]
certificates: [CERTIFICATES]
shared:
  - {{path: {HOMES}, source: {SOURCE}, options: [{OPTION}]}}
  - {{path: /x, source: "nas:/{"e" * 251}", type: {"f" * 63}}}
users: {{homes: {HOMES}, shell: {SHELL}}}
ansible: {{pull: {{url: "{URL}", playbook: {"p" * 63}, version: {BRANCH}}}}}
"""
)
STEMS = ("-ca", ".x", "c" * 250, "my+site~1")


def people() -> dict[str, Any]:
    """Those of the longest words that `tide user` takes."""
    name = parse_name("a" * 31)
    shell = parse_shell(SHELL)
    user = User(name, 2**31, 2**31, parse_gecos("ä" * 200), f"{HOMES}/{name}", shell, (name,))
    return listed([user], [Group(name, 2**31)])


async def told(root: Path, text: str) -> dict[str, Any]:
    async with join_world(root, text) as world:
        newcomer = Newcomer(Node("b1", "general", NodeState.JOINING, 1), "10.77.1.1")
        around = Around(Site("10.100.100.100"), "22.05.8", world.now, {}, people())
        return world.membership.welcome(newcomer, around)


@pytest.fixture
async def answer(tmp_path: Path) -> dict[str, Any]:
    paths = [tmp_path / f"{stem}.pem" for stem in STEMS]
    for path in paths:
        path.write_text(path.stem)
    named = ", ".join(f'"{path}"' for path in paths)
    return await told(tmp_path, EXTREMES.replace("CERTIFICATES", named))


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the agent would run and mount."""
    done: list[tuple[str, ...]] = []

    def run(command: Sequence[str], limit_s: float = 0.0) -> tuple[int, str]:
        done.append(tuple(command))
        return 0, ""

    (tmp_path / "trusted").mkdir()
    monkeypatch.setattr(features, "AUTHORITIES", ((str(tmp_path / "trusted"), "true"),))
    monkeypatch.setattr(features, "run", run)
    monkeypatch.setattr(features, "_mount", lambda *words: done.append(words))
    monkeypatch.setattr("shutil.which", lambda program: program)
    return done


def test_a_branch_is_pulled_by_its_name(answer: dict[str, Any], ran: list[tuple[str, ...]]) -> None:
    features.apply_ansible(answer)
    assert ran[0][2:] == ("ansible-pull", "-U", URL, "-C", BRANCH, "p" * 63)


def test_certificates_lie_under_names_that_nodes_take(
    answer: dict[str, Any], ran: list[tuple[str, ...]], tmp_path: Path
) -> None:
    features.apply_certificates(answer)
    assert ran == [("true",)]
    found = {path.name: path.read_text() for path in (tmp_path / "trusted").iterdir()}
    assert found["springtide-_ca.crt"] == "-ca"
    assert found["springtide-_x.crt"] == ".x"
    assert sorted(found.values()) == sorted(STEMS)


def test_filesystems_of_the_longest_words_are_mounted(
    answer: dict[str, Any], ran: list[tuple[str, ...]]
) -> None:
    features.apply_mounts(answer)
    assert [words[1:3] for words in ran] == [(HOMES, "nfs4"), ("/x", "f" * 63)]
    assert ran[0][0] == f"10.100.100.100:{SOURCE}"


def test_names_users_and_keys_of_the_longest_words_are_taken(answer: dict[str, Any]) -> None:
    assert accounts.render_user(answer["users"]["users"][0]).endswith(SHELL)
    assert accounts.render_group(answer["users"]["groups"][0])
    assert features.render_hosts("b1", "10.77.1.1", answer["names"]["hosts"])
    assert len(given.line(answer["ssh"]["known_hosts"])) > 10_000


@pytest.mark.parametrize("version", ["-x", "a..b", "a b", "", "../x", "a:b"])
def test_what_is_no_branch_is_refused_by_file_and_node(version: str) -> None:
    text = f'{TEXT}ansible: {{pull: {{url: "https://x/y", version: "{version}"}}}}\n'
    with pytest.raises(SpecError, match="must be a branch, tag or commit of git"):
        parse(text.replace("STATE", "/s").replace("PORT", "1"), "c.yaml")
    with pytest.raises(Failed):
        given.word(version, given.REVISION)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("users: {shell: /}", "must be the path of a program"),
        (f"users: {{shell: {SHELL}s}}", "must be the path of a program"),
        (f"users: {{homes: {HOMES}h}}", "must be a path of at most 160 characters"),
        ("shared: [{path: /x, source: 'nas:/y', type: 'a/b'}]", "must be a name"),
    ],
)
def test_what_nodes_would_refuse_is_refused_in_the_file(more: str, why: str) -> None:
    text = f"{TEXT}{more}\n".replace("STATE", "/s").replace("PORT", "1")
    with pytest.raises(SpecError, match=why):
        parse(text, "c.yaml")
