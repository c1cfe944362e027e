"""A node of Slurm that shares the control host's kernel: its key, and what it does at boot.

`ports.Configurator` for container nodes. They see the cluster's configuration and key at the
same paths as the control host; everything else of the state directory is hidden from them.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from springtide.configure import health
from springtide.configure.naming import naming, owner
from springtide.configure.programs import Programs, write
from springtide.model import Node
from springtide.ports import Site

MUNGE_USER = "munge"
START_S = 0.1
"""A slurmd on a busy machine has registered after this."""


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
    programs: Programs
    directories: Sequence[str] = ("/var/spool/slurmd",)
    """What slurmd expects to be there; Slurm writes %n and %h for the node's name."""
    health: Path | None = None
    """The site's program that nodes must pass."""

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
        self.programs.install()
        if self.health:
            self.check.parent.mkdir(parents=True, exist_ok=True)
            write(self.check, health.render_check(self.health, self.conf), 0o755)

    @property
    def check(self) -> Path:
        """What runs the site's program, where nodes see it."""
        return self.hosts.with_name("health")

    def user_data(self, node: Node, site: Site) -> str:
        return render_boot(self, node.name)


def ensure_munge_key(path: Path) -> None:
    """A key that only munge can read, made once."""
    if path.exists():
        return
    account = owner(MUNGE_USER, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(".munge.key.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with naming(fresh), os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(1024))
        os.fsync(file.fileno())
    for each in (fresh, path.parent):
        os.chown(each, account.pw_uid, account.pw_gid)
    path.parent.chmod(0o700)
    fresh.replace(path)


def render_hosts(control: str, site: Site, addresses: Mapping[str, str]) -> str:
    """The hosts file of every node."""
    fixed = [f"{site.control_address} {control}", "127.0.0.1 localhost"]
    names = [f"{address} {name}" for name, address in sorted(addresses.items())]
    return "\n".join([*fixed, *names]) + "\n"


BOOT = """\
set -eu
conf={conf} hosts={hosts} key={key} socket={socket} user={user}

# Says once what it waits for, if that takes longer than 2 s: who reads the log of a node that
# does not come up must see where it stopped.
until_there() {{
    what=$1 pause=$2 tries=$3
    shift 3
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" != 0 ] || echo "waiting for $what"
        sleep "$pause"
    done
}}
listed() {{ [ ! -e "$nodes" ] || grep -qx "$TIDE_NODE" "$nodes"; }}
is_user() {{ getent passwd "$user" >/dev/null; }}

until_there "the configuration $conf" 0.1 20 [ -s "$conf" ]
until_there "the munge key $key" 0.1 20 [ -s "$key" ]
# A slurmd whose name is not in slurm.conf ends.
nodes=${{hosts%/*}}/nodes
until_there "$TIDE_NODE to be listed in $nodes" 0.1 20 listed
for path in {mounts}; do
    until_there "$path to be mounted" 0.1 20 [ -d "$path" ]
done
until_there "the user $user in /etc/passwd" 0.1 20 is_user

# The names of all nodes, once this one is among them; until then it knows itself.
{{
    until grep -q " $TIDE_NODE$" "$hosts" 2>/dev/null; do sleep 0.05; done
    ln -sfn "$hosts" /etc/hosts
}} &

munge=${{socket%/*}}
mkdir -p "$munge" {directories}
chown {munge_user} "$munge"
setpriv --reuid={munge_user} --regid={munge_user} --clear-groups \\
    munged --foreground --key-file="$key" --socket="$socket" --pid-file="$munge/munged.pid" \\
    --log-file="$munge/munged.log" --seed-file="$munge/munged.seed" &
until_there "munged to make $socket" 0.01 200 [ -S "$socket" ]
{health}
# slurmd -b counts the machine's whole seconds since its start. If one ends before it has
# registered, it seems to have booted a second early, perhaps before it was asked for; then
# slurmctld waits for another boot in vain. So it does not start shortly before a second ends.
read -r uptime _ </proc/uptime
part=1${{uptime#*.}}
[ "$part" -lt {late} ] || sleep "$(printf '0.%02d' $((200 - part)))"

export SLURM_CONF="$conf"
exec slurmd -D -b -N "$TIDE_NODE" -f "$conf"
"""


def render_boot(node: SlurmNode, name: str) -> str:
    """A shell script: filesystem and users first, then munge, and slurmd only after all that."""
    return BOOT.format(
        conf=quote(str(node.conf)),
        hosts=quote(str(node.hosts)),
        key=quote(str(node.key)),
        socket=quote(str(node.socket)),
        mounts=" ".join(quote(str(path)) for path in node.mounts),
        directories=" ".join(quote(_named(path, name)) for path in node.directories),
        user=quote(node.user),
        munge_user=MUNGE_USER,
        health=health.render_boot(node.check) if node.health else "",
        late=round(100 * (2 - START_S)),
    )


def _named(path: str, name: str) -> str:
    return path.replace("%n", name).replace("%h", name)
