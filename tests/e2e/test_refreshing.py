"""The control host asks a real sshd, whose host key the cluster signed, to run the agent."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TypeVar

import pytest

from springtide.configure import identity
from springtide.configure.anonymise import OFF, anonymise, done, failed
from springtide.configure.refreshing import MOST_BYTES, Refreshing
from tests.e2e.real import LIMIT_S, until
from tests.e2e.test_anonymise import ENTER, machine

T = TypeVar("T")

SSHD = Path("/usr/sbin/sshd")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0 or not SSHD.exists(), reason="needs root and sshd"),
]
SPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""What was started over ssh goes with the machine."""
NO_ANSWER = re.compile(
    "timed out|Timeout, server|Connection refused|exit code 255|no answer within"
)
"""What is told of an sshd that is slower than ssh waits for it, as on a busy machine."""
NODE = """\
set -eu
ip link set lo up
mount -n -t tmpfs tmpfs /run
mount -n -t tmpfs tmpfs /usr/local/lib
mkdir -p /run/sshd /usr/local/lib/springtide
printf '#!/bin/sh\\necho "$*" >>%s\\n' "$1/asked" >/usr/local/lib/springtide/agent
chmod 755 /usr/local/lib/springtide/agent
exec /usr/sbin/sshd -D -f /dev/null -o PidFile=none -o UsePAM=no -o StrictModes=no \\
    -o HostKey="$1/host" -o HostCertificate="$1/host-cert.pub" \\
    -o AuthorizedKeysFile="$1/join/id_ed25519.pub" -o ListenAddress=127.0.0.1
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    """A machine `n1` in namespaces of its own; `ssh` in its directory gets there."""
    identity.ensure(tmp_path / "join", "blue")
    key = tmp_path / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    (tmp_path / "host-cert.pub").write_text(identity.sign(tmp_path / "join", "n1", [], public))
    command = [*SPACES, "sh", "-c", NODE, "sh", str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            _write_ssh(tmp_path / "ssh", process.pid)
            until(lambda: _listens(process.pid))
            yield tmp_path
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _write_ssh(path: Path, pid: int) -> None:
    path.write_text(f'#!/bin/sh\nexec nsenter -t {pid} -n ssh "$@"\n')
    path.chmod(0o755)


def _listens(pid: int) -> bool:
    """Port 22 in the table of its own network."""
    own = Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    return own and ":0016 " in Path(f"/proc/{pid}/net/tcp").read_text()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return machine(tmp_path / "root")


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What it answers; it is asked again while sshd did not answer in time."""
    end = time.monotonic() + LIMIT_S
    while True:
        said = await ask()
        is_late = said == "" or NO_ANSWER.search(str(said))
        if not is_late or time.monotonic() > end:
            return said
        await asyncio.sleep(0.1)


@pytest.mark.accepts("C22")
async def test_a_node_is_asked_to_look_again_and_known_by_its_signed_key(node: Path) -> None:
    refreshing = Refreshing(node / "join", str(node / "ssh"))
    assert await patiently(partial(refreshing.ask, {"n1": "127.0.0.1"})) == {}
    asked = (node / "asked").read_text().splitlines()
    assert set(asked) == {"refresh"}  # twice, if the first answer came too late


async def test_a_machine_that_is_not_the_node_is_told_nothing(node: Path) -> None:
    refreshing = Refreshing(node / "join", str(node / "ssh"))
    assert await patiently(partial(refreshing.ask, {"n2": "127.0.0.1"})) == {
        "n2": "Host key verification failed."
    }
    assert not (node / "asked").exists()


@pytest.mark.accepts("E22")
async def test_a_node_runs_a_script_until_it_says_its_last_words(node: Path) -> None:
    refreshing = Refreshing(node / "join", str(node / "ssh"))
    script = f"read -r line || echo 'no input, {'x' * 40_000}' | tail -c 9\necho done; sleep 600\n"
    hand = partial(refreshing.hand, "n1", "127.0.0.1", script, ("done", "failed"))
    said = await patiently(hand)
    assert said == "x" * 8 + "\ndone\n"


async def test_a_node_may_say_more_in_a_line_than_anybody_reads(node: Path) -> None:
    refreshing = Refreshing(node / "join", str(node / "ssh"))
    script = "head -c 200000 /dev/zero | tr '\\0' x; echo; echo failed: why; sleep 600\n"
    hand = partial(refreshing.hand, "n1", "127.0.0.1", script, ("done", "failed"))
    said = await patiently(hand)
    words = "\nfailed: why\n"
    assert said == "x" * (MOST_BYTES - len(words)) + words


@pytest.mark.accepts("E22")
async def test_a_node_that_is_told_over_ssh_forgets_who_it_was(node: Path, root: Path) -> None:
    """In a root of its own, beside which nothing of the machine that tests it is changed."""
    (root / "etc/slurm/slurm.conf").write_text("ClusterName=blue\n")
    (root / "etc/hostname").write_text("n1\n")
    refreshing = Refreshing(node / "join", str(node / "ssh"))
    inside = quote(anonymise("x-1").removesuffix(OFF))
    script = f'set -- {quote(str(root))}\n{ENTER}\nexec chroot "$1" /bin/sh -c {inside}\n'
    hand = partial(refreshing.hand, "n1", "127.0.0.1", script, (done("x-1"), failed("x-1")))
    said = await patiently(hand)
    assert said.endswith(f"{done('x-1')}\n")
    assert list((root / "etc/slurm").iterdir()) == []
    assert not (root / "etc/hostname").exists()


async def test_a_machine_that_is_not_the_node_gets_no_script(node: Path) -> None:
    refreshing = Refreshing(node / "join", str(node / "ssh"))
    hand = partial(refreshing.hand, "n2", "127.0.0.1", f"touch {node}/ran\n", ("done",))
    said = await patiently(hand)
    assert said.endswith("Host key verification failed.\r\n")
    assert not (node / "ran").exists()
