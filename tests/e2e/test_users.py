"""People on a real cluster: known on running nodes at once, with a home and a login on each.

Control runs in a container, so no account is made on this machine.
"""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.cli.endings import Exit
from tests.e2e.test_control import Lab, gone, wait_until
from tests.leftovers import place

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

PORT = 17136
SPACES = ("-m", "-u", "-n", "-p")
Done = subprocess.CompletedProcess[str]


class People(Lab):
    """A cluster with homes in its shared directory."""

    def write(self, mounts: tuple[Path, ...] = ()) -> None:
        super().write(mounts)
        (self.shared / "home").mkdir(exist_ok=True)
        with self.file.open("a") as file:
            file.write(f"users: {{homes: {self.shared}/home, first: 28400}}\n")

    def add(self, name: str, *options: str) -> str:
        done = self.tide("user", "add", name, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def inside(self, *command: str) -> Done:
        """As root in the control container."""
        return self.run(["nsenter", "-t", str(self.container), *SPACES, *command])

    def on(self, node: str, *command: str) -> Done:
        """As root on a node, without Slurm; its pid is the one in the control container."""
        path = self.state / "containers" / "instances" / node / "process"
        return self.inside("nsenter", "-t", path.read_text().split()[1], *SPACES, *command)

    def known(self, node: str, name: str) -> str:
        return self.on(node, "getent", "passwd", name).stdout.strip()

    def as_user(self, name: str, *command: str) -> Done:
        """In the control container, in their home."""
        who = ["setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups"]
        conf = f"SLURM_CONF={self.state / 'conf' / 'slurm.conf'}"
        place = ["env", "-C", str(self.shared / "home" / name), conf]
        return self.inside(*who, *place, *command)

    def job(self, name: str, script: str, *options: str) -> str:
        """What their job printed."""
        told = self.as_user(name, "sbatch", "-W", "-o", "out", *options, "--wrap", script)
        assert told.returncode == 0, told.stderr
        return (self.shared / "home" / name / "out").read_text().strip()


@pytest.fixture(scope="module")
def lab() -> Iterator[People]:
    with place() as home:
        people = People(home, port=PORT)
        for _ in gone(people):
            people.deploy()
            yield people


@pytest.fixture(scope="module")
def key(lab: People) -> Path:
    """What somebody logs in with."""
    path = lab.home / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.mark.accepts("C22", "A7")
def test_who_is_added_is_known_on_running_nodes_at_once_and_on_those_to_come(
    lab: People, key: Path
) -> None:
    told = lab.add("alice", "--key", f"{key}.pub", "--gecos", "Alice A", "--group", "proj")
    home = lab.shared / "home" / "alice"
    assert told == (
        f"alice added: uid 28400, gid 28400, home {home}; known on 1 of 1 nodes that are up\n"
    )
    line = f"alice:x:28400:28400:Alice A:{home}:/bin/bash"
    assert lab.known("n1", "alice") == line
    script = "id -un; id -Gn; echo ~alice; stat -c %U:%a ~alice"
    printed = ["alice", "alice proj", str(home), "alice:700"]
    assert lab.job("alice", script, "-w", "n1").splitlines() == printed
    assert lab.job("alice", script, "-w", "n2").splitlines() == printed
    assert lab.known("n2", "alice") == line
    lab.add("bob", "--group", "proj")
    assert [lab.known(node, "bob").split(":")[2] for node in ("n1", "n2")] == ["28402", "28402"]
    with pytest.raises(KeyError):
        pwd.getpwnam("alice")


@pytest.mark.accepts("C22")
def test_they_log_in_at_a_node_with_their_key_and_go_on_with_one_of_their_own(
    lab: People, key: Path
) -> None:
    """Nodes that boot while there is somebody have a server for it."""
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("needs openssh-server")
    lab.add("alice", "--key", f"{key}.pub")
    lab.job("alice", "true", "-N2", "-w", "n[2-3]")
    address = lab.on("n2", "sh", "-c", "getent hosts n2").stdout.split()[0]
    quiet = ["-F", "none", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]
    blind = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    ssh = ["ssh", *quiet, *blind, "-i", str(key), f"alice@{address}"]
    wait_until(lambda: lab.run([*ssh, "true"]).returncode == 0)
    hop = "id -un; hostname; ssh -o BatchMode=yes n3 'id -un; hostname'"
    wait_until(lambda: lab.run([*ssh, hop]).returncode == 0)
    done = lab.run([*ssh, hop])
    assert done.stdout.split() == ["alice", "n2", "alice", "n3"], done.stderr
    assert lab.run([*ssh[:-1], f"root@{address}", "true"]).returncode != 0
    other = "ssh -o StrictHostKeyChecking=yes -o HostKeyAlias=git.example.org n3 true"
    assert "host key is known for git.example.org" in lab.run([*ssh, other]).stderr


@pytest.mark.accepts("C22")
def test_who_is_removed_is_gone_from_all_nodes_and_comes_back_as_they_were(lab: People) -> None:
    lab.add("carol")
    uid = lab.known("n1", "carol").split(":")[2]
    waiting = lab.as_user("carol", "sbatch", "--parsable", "-H", "--wrap", "true").stdout.strip()
    refused = lab.tide("user", "remove", "carol", "--yes")
    assert refused.returncode == Exit.FAILED
    assert f"carol has 1 job ({waiting}): cancel them or wait" in refused.stderr
    lab.slurm("scancel", waiting)
    wait_until(lambda: lab.tide("user", "remove", "carol", "--yes").returncode == 0)
    assert lab.known("n1", "carol") == ""
    assert lab.inside("getent", "passwd", "carol").stdout == ""
    assert (lab.shared / "home" / "carol").stat().st_uid == int(uid)
    lab.add("carol")
    assert lab.known("n1", "carol").split(":")[2] == uid
    assert lab.job("carol", "stat -c %U ~carol", "-w", "n1") == "carol"


def test_an_image_without_the_library_has_those_who_are_there_when_it_boots(lab: People) -> None:
    """The part of the boot script, on a node where the library is hidden."""
    lab.add("dave")
    boot = lab.on("n1", "cat", "/run/tide/boot").stdout
    part = boot[boot.index("people=") : boot.index("# People log in")]
    hidden = part.replace("libnss_extrausers.so.2", "libnss_nothing.so.2")
    assert lab.on("n1", "grep", "-c", "dave", "/etc/passwd").stdout == "0\n"
    for _ in range(2):
        lab.on("n1", "sh", "-euc", hidden)
        assert lab.on("n1", "grep", "-c", "dave", "/etc/passwd").stdout == "1\n"
