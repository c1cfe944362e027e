"""A node of Slurm that shares the control host's kernel: its key, and what it does at boot.

`ports.NodeConfigurator` for container nodes. They see the cluster's configuration and key at the
same paths as the control host; everything else of the state directory is hidden from them.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from springtide.configure import health, node_users
from springtide.configure.boot import FUNCTIONS, own_path, render_hosts, render_mounts
from springtide.configure.health import Checks
from springtide.configure.node_ssh import HOST_KEY, NodeSsh
from springtide.configure.programs import Programs, write
from springtide.configure.secret_file import keep_secret
from springtide.file_errors import owner
from springtide.model import Node
from springtide.node import second
from springtide.ports import Site

MUNGE_USER = "munge"
MUNGE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """Where the cluster's files are, on the control host and on nodes alike."""

    conf: Path
    """slurm.conf."""
    hosts: Path
    """The names of control host and nodes, for the nodes."""
    key: Path
    """munge.key, in a directory of its own."""
    socket: Path
    """The node's own munge socket."""
    control: str
    """The control host's name."""
    mounts: Sequence[Path]
    """The shared filesystem: there before slurmd starts."""
    user: str
    programs: Programs | None
    """What Slurm calls; None if it does not call us."""
    directories: Sequence[str] = ("/var/spool/slurmd",)
    """What slurmd expects to be there; Slurm writes %n and %h for the node's name."""
    health: Path | None = None
    """The site's program that nodes must pass."""
    ssh: NodeSsh | None = None
    """How Ansible logs in; None if it does not."""

    async def prepare(self, site: Site) -> None:
        self.conf.parent.mkdir(parents=True, exist_ok=True)
        self._forget_other(site)
        ensure_munge_key(self.key)

    def _forget_other(self, site: Site) -> None:
        """Nodes that boot must not read the configuration of a site that has moved since."""
        if self.conf.exists() and f"({site.control_address})" not in self.conf.read_text():
            self.conf.unlink()

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None:
        """One file that all nodes see; it is replaced whole, and only if it changes."""
        write(self.hosts, render_hosts(self.control, site, addresses), 0o644)

    async def install(self) -> None:
        if self.programs:
            self.programs.install()
        self.check.parent.mkdir(parents=True, exist_ok=True)
        checks = Checks(self.health, self.conf, self.mounts, self.socket)
        write(self.check, health.render_check(checks), 0o755)

    @property
    def check(self) -> Path:
        """What looks at a node, where nodes see it."""
        return self.hosts.with_name("health")

    def user_data(self, node: Node, site: Site) -> str:
        return render_boot(self, node.name, node.changed_at)


def ensure_munge_key(path: Path) -> None:
    """A key that only munge can read, made once."""
    if path.exists():
        return
    account = owner(MUNGE_USER, path)
    munge = (account.pw_uid, account.pw_gid)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.chown(path.parent, *munge)
    path.parent.chmod(0o700)
    keep_secret(path, secrets.token_bytes(MUNGE_BYTES), 0o400, munge)


BOOT = """\
set -eu
conf={conf} hosts={hosts} key={key} socket={socket} user={user}

{functions}listed() {{ [ ! -e "$nodes" ] || grep -qx "$TIDE_NODE" "$nodes"; }}
named() {{ grep -qx "$TIDE_ADDRESS $TIDE_NODE" "$hosts" 2>/dev/null; }}
is_user() {{ getent passwd "$user" >/dev/null; }}

phase started
{ssh}until_there "the configuration $conf" 0.1 20 [ -s "$conf" ]
until_there "the munge key $key" 0.1 20 [ -s "$key" ]
# A slurmd whose name is not in slurm.conf ends.
nodes=${{hosts%/*}}/nodes
until_there "$TIDE_NODE to be listed in $nodes" 0.1 20 listed
phase configuration
{mounts}phase mounts
{people}until_there "the user $user in /etc/passwd" 0.1 20 is_user
phase users

munge=${{socket%/*}}
mkdir -p "$munge" {directories}
chown {munge_user} "$munge"
setpriv --reuid={munge_user} --regid={munge_user} --clear-groups \\
    munged --foreground --key-file="$key" --socket="$socket" --pid-file="$munge/munged.pid" \\
    --log-file="$munge/munged.log" --seed-file="$munge/munged.seed" &
until_there "munged to make $socket" 0.01 200 [ -S "$socket" ]
phase munge
# All nodes that are made together are named at once; until then this one knows itself.
until_there "$TIDE_NODE to be named in $hosts" 0.05 40 named
ln -sfn "$hosts" /etc/hosts
phase names
{health}phase health

{second}
export SLURM_CONF="$conf"
phase slurmd
exec slurmd -D {boot}-N "$TIDE_NODE" -f "$conf"
"""


def render_boot(node: SlurmNode, name: str, asked_at: float = 0.0) -> str:
    """A shell script: filesystem and users first, then munge, and slurmd only after all that.

    A slurmctld that calls us ignores who booted before it asked, as this machine did. Any other
    takes one that tells of its boot late, by -b, for rebooted, and its job waits for two minutes.
    """
    return BOOT.format(
        conf=quote(str(node.conf)),
        hosts=quote(str(node.hosts)),
        key=quote(str(node.key)),
        socket=quote(str(node.socket)),
        functions=FUNCTIONS,
        mounts=render_mounts(node.mounts),
        directories=" ".join(quote(own_path(path, name)) for path in node.directories),
        people=node_users.render_boot(
            node.hosts.with_name("users"), None if node.ssh else node.key.with_name(HOST_KEY)
        ),
        user=quote(node.user),
        munge_user=MUNGE_USER,
        ssh=node.ssh.render_boot() if node.ssh else "",
        health=health.render_boot(node.check),
        second=second.render_wait(asked_at) if node.programs else "",
        boot="-b " if node.programs else "",
    )
