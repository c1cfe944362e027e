"""Software of nodes that are always up, by Ansible: the site's playbooks and our roles.

`ports.Software`; steps call it for nodes that were made by a deploy or an enlarge, and for those
of an update. Each run has a directory of its own under the cluster's, with all that it was told.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from springtide.configure import ansible_inventory, ansible_run, identity, node_ssh
from springtide.configure.ansible_events import UNREACHED, Course
from springtide.configure.ansible_inventory import CONTROL, NODES, Facts, Json
from springtide.configure.ansible_run import Job
from springtide.configure.node_ssh import NodeSsh
from springtide.layout import Layout
from springtide.model import Node
from springtide.node import bundle
from springtide.ports import Configured, Site, Store
from springtide.spec import Cluster, Slurm
from springtide.spec.joining import Ansible as AnsibleSpec
from springtide.users import listed

OF_SLURM = ("munge", "slurm_node")
"""Roles that only nodes of Slurm need."""
SSH = "ssh"
"""The phase of a node that joins after which its host key is signed and ours may enter."""
Tell = Callable[[str, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ansible:
    """Of one cluster."""

    spec: Cluster
    wanted: AnsibleSpec
    """The cluster file's part about it."""
    ssh: NodeSsh
    """How container nodes are known."""
    facts: Facts
    store: Store
    """What changes while the daemon runs: users and groups, and how far nodes have joined."""

    @property
    def layout(self) -> Layout:
        return Layout(self.spec.state)

    def serves(self, group: str) -> bool:
        return "ansible" not in self.spec.groups[group].without

    @property
    def _roles(self) -> list[str]:
        """Nodes of other batch systems need nothing of Slurm."""
        others = () if isinstance(self.spec.batch, Slurm) else OF_SLURM
        return [role for role in self.wanted.roles if role not in others]

    async def make_keys(self) -> None:
        await asyncio.to_thread(self._make_keys)

    def _make_keys(self) -> None:
        identity.ensure(self.layout.join, self.spec.cluster)
        self.ssh.ensure(self.facts.key)

    async def kept_out(self, node: Node) -> str:
        """An image's own sshd answers long before the node has what we know it and log in by."""
        if not node.address:
            return "its address is not known"
        return await node_ssh.unserved(node.address) or await self._unknown(node)

    async def _unknown(self, node: Node) -> str:
        if SSH not in self.spec.gets(node.group):
            return ""
        said = await self.store.phases(node.name)
        ours = [one for one in said if one.generation == node.generation and one.name == SSH]
        if any(not one.detail for one in ours):
            return ""
        failed = f" ({ours[-1].detail})" if ours else ""
        see = f"`tide timeline {node.name}` shows how far it is"
        return f"its sshd answers, but it has not got our keys yet{failed}; {see}"

    async def prepare(self, site: Site, tell: Tell) -> str:
        """What this machine itself needs, if the file says so."""
        if not self.wanted.control:
            return ""
        facts = await self.current({})
        job = await asyncio.to_thread(self._control_job, site, facts)
        course, ending = await _run(job, tell)
        return course.fallen([facts.control], ending).get(facts.control, "")

    async def configure(
        self, site: Site, nodes: Sequence[Node], addresses: Mapping[str, str], tell: Tell
    ) -> Configured:
        """Playbooks and roles on these nodes, side by side."""
        wanted = self.wanted
        play = ansible_inventory.render_play(NODES, self._roles, wanted.user)
        whole = ansible_inventory.render_whole(wanted.before, play, wanted.after)
        if not whole:
            return Configured({})
        facts = await self.current(addresses)
        job = await asyncio.to_thread(self._nodes_job, site, nodes, facts, whole)
        course, ending = await _run(job, tell)
        fallen = course.fallen([node.name for node in nodes], ending)
        return Configured({n: self._with_key(why) for n, why in fallen.items()}, course.changed)

    def _with_key(self, why: str) -> str:
        """Where ssh turns us away, with what it should know."""
        refused = why.startswith(UNREACHED) and "Permission denied" in why
        return f"{why}; the key is {self.facts.key}" if refused else why

    def _control_job(self, site: Site, facts: Facts) -> Job:
        told = ansible_inventory.render_control(self.spec, site, facts)
        play = ansible_inventory.render_play(CONTROL, ["control"], "root")
        return self._job(self._place(), told, [*play, ansible_inventory.render_end(CONTROL)])

    def _nodes_job(
        self, site: Site, nodes: Sequence[Node], facts: Facts, whole: Sequence[Json]
    ) -> Job:
        place = self._place()
        known, agent = place / "known_hosts", place / "agent"
        known.write_text(self._known_hosts(nodes))
        agent.write_bytes(bundle.agent())
        facts = replace(facts, known_hosts=known, agent=agent)
        told = ansible_inventory.render(self.spec, nodes, site, facts)
        return self._job(place, told, whole)

    async def current(self, addresses: Mapping[str, str]) -> Facts:
        """What a run that begins now is told."""
        people = await _people(self.spec, self.store)
        return replace(self.facts, hosts=addresses, **people)

    def _known_hosts(self, nodes: Sequence[Node]) -> str:
        """Containers by their key, all else by whom the cluster's authority vouches for."""
        remote = [node.name for node in nodes if node.group in self.spec.remote]
        here = [node.name for node in nodes if node.group not in self.spec.remote]
        lines = [self.ssh.known(here)] if here else []
        if remote:
            lines.append(identity.known_hosts(self.layout.join, remote) + "\n")
        return "".join(lines)

    def _place(self) -> Path:
        runs = self.layout.ansible
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        ansible_run.prune(runs)
        place = runs / f"run-{time.time_ns()}-{uuid4().hex[:8]}"
        place.mkdir(mode=0o700)
        return place

    def _job(self, place: Path, told: Json, playbook: Sequence[Json]) -> Job:
        """With its files written."""
        inventory, path = place / "inventory.json", place / "springtide.yml"
        inventory.write_text(json.dumps(told, indent=2))
        path.write_text(json.dumps(playbook, indent=2))
        wanted = self.wanted
        return Job(place, inventory, path, wanted.forks, wanted.limit, wanted.variables)


async def _run(job: Job, tell: Tell) -> tuple[Course, str]:
    """In a thread of its own, which ends when we do; how far it is, is told on the way."""
    course = Course()
    loop, said, ends = (
        asyncio.get_running_loop(),
        asyncio.Queue[tuple[str, str] | None](),
        threading.Event(),
    )

    def hear(event: Mapping[str, Any]) -> None:
        host, text = course.feed(event)
        if text:
            loop.call_soon_threadsafe(said.put_nowait, (host, text))

    with ThreadPoolExecutor(1, thread_name_prefix="ansible") as pool:
        teller = asyncio.create_task(_pass_on(said, tell))
        work = partial(ansible_run.run, job, hear, ends.is_set)
        run = loop.run_in_executor(pool, work)
        try:
            return course, await asyncio.shield(run)
        finally:
            ends.set()
            await asyncio.wait([run])
            said.put_nowait(None)
            await asyncio.wait([teller])


async def _pass_on(said: "asyncio.Queue[tuple[str, str] | None]", tell: Tell) -> None:
    """All that was said, up to its end."""
    while one := await said.get():
        host, text = one
        await tell(host, f"ansible: {text}")


def ansible_of(
    spec: Cluster, store: Store, control: str, munge_key: Path, port: int | None = None
) -> Ansible | None:
    """For a cluster whose file wants it."""
    ssh, layout = NodeSsh.of(spec), Layout(spec.state)
    if spec.ansible is None or ssh is None:
        return None
    facts = Facts(
        control=control,
        key=spec.ansible.key or layout.join / "id_ed25519",
        known_hosts=Path(os.devnull),
        munge_key=munge_key,
        port=port,
    )
    return Ansible(spec, spec.ansible, ssh, facts, store)


async def _people(spec: Cluster, store: Store) -> Mapping[str, Any]:
    """Nobody, where they come from a directory."""
    if spec.users.sssd is not None:
        return {"users": (), "groups": ()}
    present = [user for user in await store.users() if user.present]
    known = listed(present, await store.user_groups())
    return {"users": known["users"], "groups": known["groups"]}
