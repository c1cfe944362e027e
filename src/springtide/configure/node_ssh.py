"""How the control host and container nodes know each other when Ansible logs in.

All container nodes of a cluster have one host key. It lies beside the munge key, which they share
as well: whoever is root on one of them is root beside all of them. So a node that is made anew
is known at once. `ansible` makes the keys, `slurm_node` puts the rest into the boot script.
"""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from springtide.configure.programs import write
from springtide.layout import Layout
from springtide.spec import Cluster

HOST_KEY = "ssh_host_ed25519_key"
AUTHORIZED = "ssh_authorized_keys"
KEY_LIMIT_S = 30.0
PORT = 22
TRY_S = 5.0
BOOT = """\
# Ansible logs in before slurmd starts, for it may bring what slurmd needs. The image's own
# settings do not matter here, nor do keys that it holds.
if [ -x /usr/sbin/sshd ]; then
    until_there "the key {host_key}" 0.1 20 [ -s {host_key} ]
    until_there "the keys {authorized}" 0.1 20 [ -s {authorized} ]
    mkdir -p /run/sshd /run/springtide
    cat {authorized} >/run/springtide/authorized_keys
    /usr/sbin/sshd -f /dev/null -o HostKey={host_key} -o PidFile=none -o UsePAM=no \\
        -o AuthorizedKeysFile="/run/springtide/authorized_keys .ssh/authorized_keys" \\
        -o PasswordAuthentication=no \\
        -o KbdInteractiveAuthentication=no -o PermitRootLogin=prohibit-password \\
        -o ListenAddress="$TIDE_ADDRESS" -o Subsystem='sftp internal-sftp' ||
        echo "sshd did not start: Ansible cannot log in"
else
    echo "the image has no /usr/sbin/sshd: Ansible cannot log in"
fi &
"""


@dataclass(frozen=True, slots=True)
class NodeSsh:
    """Where nodes find these keys, at the same paths as the control host."""

    host_key: Path
    """In the directory of the munge key, which users cannot enter."""
    authorized: Path
    """Public keys of those who may log in; nothing secret."""

    @classmethod
    def of(cls, spec: Cluster) -> "NodeSsh | None":
        """For a cluster that Ansible configures."""
        layout = Layout(spec.state)
        key, authorized = layout.munge_key.with_name(HOST_KEY), layout.conf / AUTHORIZED
        return cls(key, authorized) if spec.ansible else None

    def render_boot(self) -> str:
        return BOOT.format(
            host_key=quote(str(self.host_key)), authorized=quote(str(self.authorized))
        )

    def ensure(self, client_key: Path) -> None:
        """Make what is missing; `client_key` is a private key of the control host.

        Nodes wait for both: an update may boot them before Ansible has its turn.
        """
        self.authorized.parent.mkdir(parents=True, exist_ok=True)
        write(self.authorized, public_line(client_key) + "\n", 0o644)
        ensure_key(self.host_key, "nodes")

    def known(self, names: Iterable[str]) -> str:
        """The line of a known_hosts file for these nodes."""
        return f"{','.join(names)} {public_line(self.host_key)}\n"


def ensure_key(path: Path, comment: str) -> None:
    """A key that only root can read, made once, and there whole or not at all."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        fresh = Path(place, "key")
        options = ["-q", "-t", "ed25519", "-N", "", "-C", comment]
        _keygen([*options, "-f", str(fresh)], fresh)
        fresh.replace(path)


def public_line(key: Path) -> str:
    """The public half of a private key: its kind and the key itself."""
    said = _keygen(["-y", "-f", str(key)], key)
    return " ".join(said.split()[:2])


def _keygen(options: list[str], path: Path) -> str:
    """What ssh-keygen prints; its complaints are trouble with that file."""
    try:
        done = subprocess.run(
            ["ssh-keygen", *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=KEY_LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        why = "ssh-keygen is missing: run `apt-get install openssh-client`"
        raise OSError(os.EX_UNAVAILABLE, why, str(path)) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["ssh-keygen said nothing"]
        raise OSError(os.EX_DATAERR, lines[-1], str(path))
    return done.stdout


async def unserved(address: str) -> str:
    """Why no server of ssh says its name there, and what to look at; empty if one does."""
    where = f"port {PORT} of {address}"
    try:
        async with asyncio.timeout(TRY_S):
            greeting = await _greeting(address)
    except ConnectionRefusedError:
        return f"{where} is closed: is sshd installed there, and running?"
    except TimeoutError:
        return f"{where} does not answer: is it open to this machine?"
    except OSError as error:
        code = error.errno or 0
        why = os.strerror(code) if code > 0 else str(error)
        return f"{where} is not reached ({why}): is it open to this machine?"
    return "" if greeting == b"SSH-" else f"what answers at {where} is no sshd"


async def _greeting(address: str) -> bytes:
    reader, writer = await asyncio.open_connection(address, PORT)
    try:
        return await reader.read(4)
    finally:
        writer.close()
