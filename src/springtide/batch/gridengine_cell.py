"""One cell of Grid Engine, changed with its own commands; called in threads.

Everything raises Unavailable, and leaves nothing half done that a second try would not finish.
Which hosts are ours is kept in a hostgroup that no queue uses: a host that serves and is no member
of it is somebody else's, whatever its name, and stays as it is.
"""

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from springtide.batch.gridengine_commands import AWAY, DENIED, Commands, failed
from springtide.batch.gridengine_conf import (
    ClusterQueue,
    Complex,
    parse_complexes,
    parse_global,
    parse_queues,
)
from springtide.batch.gridengine_jobs import is_drained
from springtide.batch.gridengine_members import group_of, render_host
from springtide.batch.gridengine_text import Host, parse_hosts
from springtide.batch.names import batches, named
from springtide.batch.running import printed, shortened
from springtide.batch.unread import UnreadableError
from springtide.nodeset import fold
from springtide.ports import Member, Unavailable

AT_ONCE = 50
"""Names in one command."""
NONE = re.compile(r"^no [a-z ]+ defined$", re.MULTILINE)
"""What qconf says instead of a list that is empty."""
THEIRS = "it serves in Grid Engine already and is not ours"


@dataclass(frozen=True, slots=True)
class Cell:
    """Its hosts, its hostgroups and its queues."""

    commands: Commands
    cluster: str
    placeholder: str
    names: Sequence[str] = ()
    """All nodes that are ours."""

    @property
    def roll(self) -> str:
        """The hostgroup of hosts that are ours."""
        return f"@springtide-{self.cluster}"

    # --- what there is

    def hosts(self) -> dict[str, Host]:
        hosts = self.shown()
        hosts.pop(self.placeholder, None)
        return hosts

    def shown(self) -> dict[str, Host]:
        """With the placeholder. By our names, though they may be shown with their domain."""
        found = parse_hosts(self.commands.checked("qhost", "-q", "-j", "-xml"))
        called = self._called(found)
        return {called[name]: replace(host, name=called[name]) for name, host in found.items()}

    def queues(self) -> dict[str, ClusterQueue]:
        """None is a failure to qconf, in words that differ: the list of names tells it apart."""
        done = self.commands.run("qconf", "-sq", "*")
        if not (done.returncode == 0 and done.stdout.strip()) and not self.queue_names():
            return {}
        return parse_queues(printed(done, failed))

    def queue_names(self) -> list[str]:
        return self._listed("-sql")

    def complexes(self) -> dict[str, Complex]:
        return parse_complexes(self.commands.checked("qconf", "-sc"))

    def shared(self) -> frozenset[str]:
        """Resources of the cell as a whole."""
        return parse_global(self.commands.checked("qconf", "-se", "global"))

    def known(self) -> set[str]:
        """All execution hosts."""
        return set(self._called(self._listed("-sel")).values())

    def _listed(self, option: str) -> list[str]:
        """None is a failure to qconf, but none to us: a site may have no hosts but ours."""
        done = self.commands.run("qconf", option)
        if done.returncode and not NONE.search(done.stderr + done.stdout):
            raise failed(done)
        return [] if done.returncode else done.stdout.split()

    def members(self, group: str) -> set[str]:
        """None is a failure to qconf, but none to us."""
        done = self.commands.run("qconf", "-shgrp_resolved", group)
        if done.returncode and (done.stdout.strip() or "error" in done.stderr):
            raise failed(done)
        return set(self._called(done.stdout.split()).values())

    def groups(self) -> list[str]:
        """All hostgroups; that of ours is the last, so that hosts are ours until they are gone."""
        return sorted(self._listed("-shgrpl"), key=lambda group: group == self.roll)

    def strangers(self, names: Iterable[str], hosts: Mapping[str, Host]) -> list[str]:
        """Those of the hosts that serve and are not ours."""
        ours = self.members(self.roll)
        return [n for n in names if n in hosts and hosts[n].queues and n not in ours]

    def _called(self, shown: Iterable[str]) -> dict[str, str]:
        return named(shown, {*self.names, self.placeholder})

    # --- the placeholder

    def keep_open(self, queues: Sequence[str]) -> list[str]:
        """Have the hostgroups of queues never empty; answers those that the placeholder joined.

        A host becomes an execution host by becoming a member of any hostgroup.
        """
        shown = self.queues()
        groups = dict.fromkeys(group_of(shown, name) for name in queues)
        lacking = [group for group in groups if self.placeholder not in self.members(group)]
        for group in lacking:
            self._change("-aattr", "hostgroup", "hostlist", self.placeholder, group)
            if self.placeholder not in self.members(group):
                raise Unavailable(f"{self.placeholder} did not become a member of {group}")
        return lacking

    def let_close(self) -> None:
        if self.placeholder in self.known():
            said = self._remove([self.placeholder])
            if self.placeholder in self.known():
                raise Unavailable(f"Grid Engine keeps {self.placeholder}: {said or 'no word'}")
        if self.roll in self.groups():
            self._change("-dhgrp", self.roll)

    # --- hosts come

    def join(self, members: Sequence[Member]) -> None:
        """Those that are there are made anew: it would believe that it hears from them."""
        queues = self.queues()
        groups = {name: group_of(queues, name) for one in members for name in one.queues}
        names = [member.name for member in members]
        self.refuse_strangers(names)
        here, kept, closed = self._closed(names)
        if kept:
            self.mark(closed, "-e")
            raise Unavailable(f"{fold(kept)} cannot join anew: {'; '.join(kept.values())}")
        self._remove(here)
        try:
            self._add(members, groups)
        except (Unavailable, UnreadableError):
            with suppress(Unavailable, UnreadableError):
                self.leave(names)
            raise

    def _add(self, members: Sequence[Member], groups: Mapping[str, str]) -> None:
        """First among ours, which makes execution hosts of them."""
        if self.roll not in self.groups():
            self._given("-Ahgrp", f"group_name {self.roll}\nhostlist NONE\n")
        self._enter(self.roll, members)
        complexes = self.complexes()
        for member in members:
            self._given("-Me", render_host(member, complexes))
        for name, group in groups.items():
            served = [member for member in members if name in member.queues]
            for some in batches(served, AT_ONCE):
                slots = ",".join(f"[{one.name}={one.cores}]" for one in some if one.cores)
                if slots:
                    self._change("-aattr", "queue", "slots", slots, name)
            self._enter(group, served)
        shown = self.hosts()
        serving = {name for name, host in shown.items() if host.queues}
        if lost := [one.name for one in members if one.name not in serving]:
            raise Unavailable(f"Grid Engine does not take {fold(lost)} as hosts of its queues")

    def _enter(self, group: str, members: Sequence[Member]) -> None:
        for some in batches(members, AT_ONCE):
            hosts = " ".join(one.name for one in some)
            self._change("-aattr", "hostgroup", "hostlist", hosts, group)

    def _given(self, option: str, text: str) -> None:
        """Of qconf, for one that reads a file."""
        with tempfile.NamedTemporaryFile("w", prefix="springtide-") as file:
            file.write(text)
            file.flush()
            self._change(option, file.name)

    def refuse_strangers(self, names: Sequence[str]) -> None:
        if theirs := self.strangers(names, self.hosts()):
            raise Unavailable(
                f"{fold(theirs)}: {THEIRS}; choose other names for our nodes, or remove that host "
                "(qconf -de)"
            )

    # --- hosts go

    def leave(self, names: Sequence[str]) -> dict[str, str]:
        """It would let a busy host leave its hostgroup, so this looks first."""
        stay = dict.fromkeys(self.strangers(names, self.hosts()), THEIRS)
        here, kept, _ = self._closed([name for name in names if name not in stay])
        stay |= kept
        if going := [name for name in here if name not in stay]:
            self.commands.run("qconf", "-ke", ",".join(going))
            said, left = self._remove(going), self.known()
            stay |= {name: said or "it stays" for name in going if name in left}
        return stay

    def _closed(self, names: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
        """Those of the hosts that are there; which of them must stay, and why, though all were to
        get no job any more; and those that were drained for that."""
        hosts = self.hosts()
        here = [name for name in names if name in hosts]
        said = ""
        if taking := [name for name in here if _takes_jobs(hosts[name])]:
            said = self.mark(taking, "-d")
            hosts = self.hosts()
        seen = [hosts[name] for name in here if name in hosts]
        kept = {host.name: f"jobs are on it: {', '.join(host.jobs)}" for host in seen if host.jobs}
        still = {host.name: f"it still takes jobs: {said}" for host in seen if _takes_jobs(host)}
        return here, kept | still, taking

    def _remove(self, names: Sequence[str]) -> str:
        """Out of all hostgroups and queues, and forgotten; what is said of those that are not."""
        if not names:
            return ""
        for group in self.groups():
            members = self.members(group)
            for some in batches([name for name in names if name in members], AT_ONCE):
                self._change("-dattr", "hostgroup", "hostlist", " ".join(some), group)
        for queue in self.queues().values():
            for shown, name in self._called(queue.own_slots).items():
                if name in names:
                    self._change("-purge", "queue", "slots", f"{queue.name}@{shown}")
        known = self.known()
        left = batches([name for name in names if name in known], AT_ONCE)
        return shortened("".join(map(self._forget, left)))

    def _forget(self, names: Sequence[str]) -> str:
        done = self.commands.run("qconf", "-de", ",".join(names))
        if any(text in done.stderr for text in DENIED):
            raise failed(done)
        self.commands.run("qconf", "-dconf", ",".join(names))
        return done.stderr if done.returncode else ""

    # --- drains

    def mark(self, names: Sequence[str], way: str) -> str:
        """In all their queues; what is said of those that are in none."""
        said = ""
        for some in batches(names, AT_ONCE):
            done = self.commands.run("qmod", way, *(f"*@{name}" for name in some))
            if done.returncode:
                said = shortened(done.stderr + done.stdout)
            if any(text in said for text in (*DENIED, *AWAY)):
                raise failed(done)
        return said

    def _change(self, *words: str) -> None:
        self.commands.checked("qconf", *words)


def _takes_jobs(host: Host) -> bool:
    return bool(host.queues) and not is_drained(host)
