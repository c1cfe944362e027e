"""What Ansible is told of nodes: the inventory, and the play of our roles. Pure.

`configure.ansible` writes both before each run. Names that we give begin with `tide_`, so that
they do not meet those of the site's own playbooks.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.configure.mounts import mounts_of
from springtide.configure.names import address_for
from springtide.model import Node
from springtide.ports import Site
from springtide.spec import Cluster, Slurm

Json = dict[str, Any]

NODES = "tide_nodes"
CONTROL = "tide_control"
END = "Reach the end of all playbooks"
"""The last task of each run. A node that does not come so far is not configured."""
TAKEN = frozenset({"all", "ungrouped", "localhost", NODES, CONTROL})
"""Groups of the file that are called so would mean something else to Ansible."""
SSH = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes"),
    *("GlobalKnownHostsFile=/dev/null", "ConnectTimeout=10", "ServerAliveInterval=15"),
)
"""Nobody is there to be asked, and a node that dies meanwhile is noticed within a minute."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known beside the cluster file."""

    control: str
    """The control host's name."""
    key: Path
    """The private key to log in with."""
    known_hosts: Path
    munge_key: Path
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The addresses of all nodes that are up."""
    users: Sequence[Mapping[str, Any]] = ()
    """These and groups are as a node gets them that joins."""
    groups: Sequence[Mapping[str, Any]] = ()
    agent: Path = Path(os.devnull)
    """The program of nodes; a role has it make people."""
    port: int | None = None
    """slurmctld's, where that is not the cluster file's."""


def render(spec: Cluster, nodes: Sequence[Node], site: Site, facts: Facts) -> Json:
    """The inventory: these nodes, by the file's groups."""
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(node.group, []).append(node)
    groups = {
        _group(key): {
            "hosts": _hosts(some, facts.known_hosts),
            "vars": _own(spec, key, address_for(spec, key, site), facts),
        }
        for key, some in members.items()
    }
    variables = render_variables(spec, site, facts)
    return {"all": {"children": {NODES: {"children": groups}}, "vars": variables}}


def render_control(spec: Cluster, site: Site, facts: Facts) -> Json:
    """The inventory of the control host, which is this machine and nobody else."""
    here = {facts.control: {"ansible_connection": "local"}}
    variables = {**render_variables(spec, site, facts), "ansible_user": "root"}
    return {"all": {"children": {CONTROL: {"hosts": here}}, "vars": variables}}


def render_play(hosts: str, roles: Sequence[str], user: str) -> list[Json]:
    """A playbook of our roles."""
    if not roles:
        return []
    play = {"name": "springtide", "hosts": hosts, "gather_facts": True, "roles": list(roles)}
    return [play | ({} if user == "root" else {"become": True})]


def render_whole(before: Sequence[Path], play: Sequence[Json], after: Sequence[Path]) -> list[Json]:
    """One playbook of all: of several, Ansible runs none after one that failed on any node."""
    first = [{"import_playbook": str(path)} for path in before]
    whole = [*first, *play, *({"import_playbook": str(path)} for path in after)]
    return [*whole, render_end(NODES)] if whole else []


def render_end(hosts: str) -> Json:
    """The play that shows who came to the end: some playbooks give all nodes up for one."""
    task = {"name": END, "ansible.builtin.debug": {"msg": "done"}}
    return {"name": "springtide", "hosts": hosts, "gather_facts": False, "tasks": [task]}


def render_variables(spec: Cluster, site: Site, facts: Facts) -> Json:
    assert spec.ansible is not None
    return {
        "ansible_user": spec.ansible.user,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": str(facts.key),
        "tide_cluster": spec.cluster,
        **_reached(spec, site.control_address, facts),
        "tide_hosts": dict(sorted(facts.hosts.items())),
        "tide_nfs_server": spec.nfs.server,
        "tide_users": [{key: _literal(one) for key, one in user.items()} for user in facts.users],
        "tide_groups": [dict(group) for group in facts.groups],
        "tide_sssd": str(spec.users.sssd or ""),
        "tide_agent": str(facts.agent),
        "tide_munge_key": str(facts.munge_key),
        "tide_slurm": _slurm(spec, facts.port),
        "tide_certificates": [str(path) for path in spec.certificates],
        "tide_time": list(spec.time),
    }


def _literal(value: object) -> object:
    """What people say of themselves is no template: Ansible would run what is in it, as root."""
    return {"__ansible_unsafe": value} if isinstance(value, str) and "{" in value else value


def _slurm(spec: Cluster, port: int | None) -> Json:
    batch = spec.batch
    return {"port": port or batch.port, "user": batch.user} if isinstance(batch, Slurm) else {}


def _group(key: str) -> str:
    return f"group_{key}" if key in TAKEN else key


def _hosts(nodes: Sequence[Node], known_hosts: Path) -> Json:
    return {
        node.name: {
            "ansible_host": node.address,
            "ansible_ssh_common_args": _ssh(node.name, known_hosts),
        }
        for node in nodes
    }


def _own(spec: Cluster, group: str, address: str, facts: Facts) -> Json:
    """What is not the same for all groups."""
    return {
        "tide_group": group,
        "tide_provided": provided(spec, group),
        **_reached(spec, address, facts),
    }


def _reached(spec: Cluster, address: str, facts: Facts) -> Json:
    """What depends on where the control host is found."""
    return {
        "tide_control": {"name": facts.control, "address": address},
        "tide_mounts": mounts_of(spec, address),
    }


def _ssh(name: str, known_hosts: Path) -> str:
    """By its name, not by its address, is a node's key known."""
    options = (*SSH, f"HostKeyAlias={name}", f"UserKnownHostsFile={known_hosts}")
    return shlex.join(word for option in options for word in ("-o", option))


def provided(spec: Cluster, group: str) -> list[str]:
    """What roles find done: a joined node gets it for its token, a container sees it as it is."""
    return list(spec.gets(group) if group in spec.remote else spec.features)
