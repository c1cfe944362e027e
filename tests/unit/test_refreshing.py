"""How running nodes are asked to look again: the words of ssh, and what becomes of the answers."""

import subprocess
from pathlib import Path

from springtide.configure import identity
from springtide.configure.refreshing import COMMAND, LONGEST, MOST_BYTES, Refreshing

SSH = """\
#!/bin/sh
case " $* " in
*" 10.0.0.2 "*) echo "banner" >&2; echo "Connection refused" >&2; exit 255 ;;
*) echo "$*" >>"$(dirname "$0")/asked" ;;
esac
"""


async def test_nodes_that_do_not_answer_are_told_with_why(tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    identity.ensure(tmp_path / "join", "blue")
    refreshing = Refreshing(tmp_path / "join", str(program))
    asked = {"n1": "10.0.0.1", "n2": "10.0.0.2", **{f"m{i}": f"10.0.1.{i}" for i in range(40)}}
    assert await refreshing.ask(asked) == {"n2": "Connection refused"}
    lines = (tmp_path / "asked").read_text().splitlines()
    assert len(lines) == 41
    [first] = [line for line in lines if "10.0.0.1 " in line]
    assert first.endswith(f"-- 10.0.0.1 {' '.join(COMMAND)}")
    assert "HostKeyAlias=n1" in first


LOUD = """\
#!/bin/sh
head -c 3000000 /dev/zero | tr '\\0' x >&2
echo >&2
head -c 3000000 /dev/zero | tr '\\0' y >&2
printf '\\033[2J' >&2
exit 1
"""


async def test_a_node_that_says_too_much_is_heard_in_part(tmp_path: Path) -> None:
    """Whoever has become root there says what they like; the control host keeps it."""
    program = tmp_path / "ssh"
    program.write_text(LOUD)
    program.chmod(0o755)
    identity.ensure(tmp_path / "join", "blue")
    refreshing = Refreshing(tmp_path / "join", str(program))
    said = await refreshing.ask({"n1": "10.0.0.1"})
    assert said == {"n1": "y" * (LONGEST - 4) + "[2J"}
    told = await refreshing.hand("n1", "10.0.0.1", "", ["done"])
    assert len(told) == MOST_BYTES
    assert set(told) == set("y\033[2J")


async def test_a_node_that_is_nowhere_is_told_in_the_words_of_ssh(tmp_path: Path) -> None:
    identity.ensure(tmp_path, "blue")
    said = await Refreshing(tmp_path).ask({"n1": "127.255.255.254"})
    assert "127.255.255.254" in said["n1"]


async def test_without_keys_or_without_ssh_it_is_told(tmp_path: Path) -> None:
    assert await Refreshing(tmp_path).ask({}) == {}
    assert "no ssh key yet" in (await Refreshing(tmp_path).ask({"n1": "10.0.0.1"}))["n1"]
    identity.ensure(tmp_path, "blue")
    said = await Refreshing(tmp_path, str(tmp_path / "none")).ask({"n1": "10.0.0.1"})
    assert "install openssh-client" in said["n1"]


async def test_a_node_that_fails_without_a_word_has_failed(tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nprintf '\\033\\n \\n' >&2\nexit 1\n")
    program.chmod(0o755)
    identity.ensure(tmp_path / "join", "blue")
    said = await Refreshing(tmp_path / "join", str(program)).ask({"n1": "10.0.0.1"})
    assert said == {"n1": "exit code 1"}


async def test_keys_that_are_broken_are_told_of_all_nodes(tmp_path: Path) -> None:
    """Whoever asked for a change has it all the same."""
    identity.ensure(tmp_path, "blue")
    (tmp_path / "ssh_ca.pub").unlink()
    said = await Refreshing(tmp_path).ask({"n1": "10.0.0.1", "n2": "10.0.0.2"})
    assert said == dict.fromkeys(["n1", "n2"], f"{tmp_path}/ssh_ca.pub: No such file or directory")


def test_ssh_knows_all_options(tmp_path: Path) -> None:
    (tmp_path / "id_ed25519").touch()
    words = Refreshing(tmp_path).words("n1", "10.0.0.1")
    done = subprocess.run(["ssh", "-G", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    for line in ("user root", "batchmode yes", "stricthostkeychecking true", "hostkeyalias n1"):
        assert line in shown
