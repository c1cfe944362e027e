"""The users of a cluster: added, removed, and told of to the control host and all nodes.

The API hands on what people ask. What is kept in the record comes first; all that follows from it
can be done again, so whoever repeats a request that failed half-way completes it.
"""

import asyncio
import errno
import os
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from springtide import ids, users
from springtide.configure import homes
from springtide.configure.accounts import Accounts
from springtide.configure.node_ssh import HOST_KEY, ensure_key, public_line
from springtide.configure.node_users import KNOWN
from springtide.configure.programs import write
from springtide.configure.refreshing import Refreshing
from springtide.ids import Added, Roll, Rules
from springtide.layout import Layout
from springtide.model import Node, NodeState
from springtide.ports import Unavailable
from springtide.spec import Cluster, Containers
from springtide.steps import Parts
from springtide.users import Host, NotAllowed, User, UserError, Wish

TRIES = 200
"""A directory service is asked for so many ids."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request."""

    user: User
    notes: tuple[str, ...] = ()
    """What to bear in mind."""
    nodes: int = 0
    """That are up."""
    missing: dict[str, str] = field(default_factory=dict)
    """Nodes among these that do not know it yet, and why."""
    left: tuple[str, ...] = ()
    """What could not be done on the control host."""
    changes: tuple[str, ...] | None = None
    """What became other of somebody who was there; None of somebody new, or who leaves now."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What this machine has of users, and keeps when the cluster is gone."""

    homes: tuple[str, ...]
    """Also of those who were removed."""
    groups: tuple[str, ...]
    """Beyond those that are somebody's own."""


class Unknown(UserError):
    """There is no such user."""


class By(NamedTuple):
    """Who asks."""

    name: str
    is_root: bool


class Roster:
    """The users of one cluster."""

    def __init__(self, parts: Parts, layout: Layout, accounts: Accounts) -> None:
        self.parts = parts
        self.layout = layout
        self.accounts = accounts
        self.refreshing = Refreshing(layout.join)
        self._changing = asyncio.Lock()

    async def present(self) -> list[User]:
        return [user for user in await self.parts.record.store.users() if user.present]

    async def kept(self) -> Kept:
        known = await self.parts.record.store.users()
        groups = await self.parts.record.store.user_groups()
        places = [str(locate(Path(user.home), self.parts.spec)[0]) for user in known]
        further = {group.name for group in groups} - {user.name for user in known}
        return await asyncio.to_thread(self._there, places, further)

    def _there(self, places: Iterable[str], groups: Set[str]) -> Kept:
        """Blocks. Where no accounts are made, no groups are either."""
        found = self.accounts.read("").groups if self.accounts.changes else {}
        homes = tuple(path for path in places if os.path.lexists(path))
        return Kept(homes, tuple(sorted(found.keys() & groups)))

    async def listed(self) -> dict[str, Any]:
        """The part `users` of what a node is told when it joins."""
        sssd = self.parts.spec.users.sssd
        if sssd is not None:
            return users.listed((), (), await asyncio.to_thread(_text, sssd))
        return users.listed(await self.present(), await self.parts.record.store.user_groups())

    async def publish(self) -> None:
        async with self._changing:
            await self._publish()

    async def _publish(self) -> None:
        """Files that container nodes read, replaced one by one where these are looking."""
        known = await self.parts.record.store.users()
        if not known:
            return
        own = self.parts.spec.users.sssd is None
        present = [user for user in known if user.present and own]
        groups = await self.parts.record.store.user_groups()
        self.layout.users.mkdir(parents=True, exist_ok=True)
        await self._have_known_hosts()
        write(self.layout.users / "group", users.render_group(present, groups), 0o644)
        write(self.layout.users / "shadow", users.render_shadow(present), 0o600)
        write(self.layout.users / "passwd", users.render_passwd(present), 0o644)

    async def _have_known_hosts(self) -> None:
        """Of container nodes, at which people log in; without it all else works."""
        path = self.layout.munge_key.with_name(HOST_KEY)
        try:
            await asyncio.to_thread(ensure_key, path, "nodes")
            line = await asyncio.to_thread(public_line, path)
        except OSError as error:
            self.parts.record.complain("no host key for nodes", str(error))
            return
        known = f"{','.join(self.parts.spec.managed)} {line}\n"
        write(self.layout.users / KNOWN, known, 0o644)

    # --- adding

    async def decide(self, wish: Wish, by: By) -> Added:
        """Who it would be; changes nothing."""
        self._require_own()
        spec = self.parts.spec
        roll, rules, now = await self._roll(wish.name), _rules(spec), self.parts.record.now()
        added = await asyncio.to_thread(agreed, wish, roll, rules, now, self.accounts)
        require_allowed(added, by)
        place, _ = locate(Path(added.user.home), spec)
        require_mounted(Path(added.user.home), spec)
        await asyncio.to_thread(homes.require, added.user, place)
        return added

    async def _roll(self, name: str) -> Roll:
        store = self.parts.record.store
        place, _ = locate(self.parts.spec.users.homes, self.parts.spec)
        return Roll(
            {user.name: user for user in await store.users()},
            {group.name: group for group in await store.user_groups()},
            await asyncio.to_thread(self.accounts.read, name),
            await asyncio.to_thread(homes.owning, place),
        )

    async def add(self, wish: Wish, by: By) -> Outcome:
        async with self._changing:
            added = await self.decide(wish, by)
            user = added.user
            place, note = locate(Path(user.home), self.parts.spec)
            await asyncio.to_thread(homes.forget, user, place, added.gone_keys)
            await self.parts.record.store.keep_user(user, added.groups)
            changes = changed_of(added)
            about = "; ".join((f"{user.name}, uid {user.uid}", *(changes or ())))
            what = "user added" if changes is None else "user changed"
            if changes != ():
                await self.parts.record.note(what, detail=f"{about}, by {by.name}")
            await asyncio.to_thread(self.accounts.make, user, added.groups)
            said, left = await self._have_home(user, place)
            await self._publish()
        notes = (note, said, *notes_of(user, place, self.parts.spec))
        return replace(await self._told(user, notes), left=left, changes=changes)

    async def _have_home(self, user: User, place: Path) -> tuple[str, tuple[str, ...]]:
        """What is to be said of it, and what could not be done: somebody is known without it."""
        try:
            return await asyncio.to_thread(homes.make, user, place, self.parts.spec.cluster), ()
        except UserError as error:
            return "", (f"{error}; mend that, and run `tide user add {user.name}` again",)

    def _require_own(self) -> None:
        if self.parts.spec.users.sssd is not None:
            raise UserError(
                f"users come from {self.parts.spec.users.sssd} (users.sssd in the cluster file): "
                "add and remove them in that directory"
            )

    # --- removing

    async def leaving(self, name: str, force: bool) -> Outcome:
        """Who it would be; changes nothing. Whoever has jobs stays, unless it is forced."""
        self._require_own()
        known = {user.name: user for user in await self.parts.record.store.users()}
        if name not in known:
            raise Unknown(f"there is no user {name[:40]!r} of this cluster; see `tide user list`")
        user = known[name]
        jobs = await self._jobs(user, force)
        if jobs and not force:
            raise UserError(
                f"{name} has {_count(jobs)} ({', '.join(jobs[:5])}): cancel them or wait, or "
                "remove the user all the same with --force"
            )
        notes = [f"the home {user.home} is kept, with the keys in it, and so is uid {user.uid}"]
        notes += [f"without an account go on: {_count(jobs)} of uid {user.uid}"] if jobs else []
        if not user.made and user.present:
            notes.append("the account on the control host was there before, and is kept")
        return Outcome(user, tuple(notes), changes=None if user.present else ())

    async def _jobs(self, user: User, force: bool) -> list[str]:
        if self.parts.stopped:
            return []
        try:
            jobs = await self.parts.batch.jobs()
        except Unavailable:
            if not force:
                raise
            return []
        return [job.id for job in jobs if job.user in (user.name, str(user.uid))]

    async def remove(self, name: str, by: str, force: bool = False) -> Outcome:
        async with self._changing:
            planned = await self.leaving(name, force)
            user = planned.user
            if user.present:
                user = replace(user, removed_at=self.parts.record.now())
                await self.parts.record.store.keep_user(user)
                await self.parts.record.note("user removed", detail=f"{name}, by {by}")
            await self._publish()
            left = await self._leave_host(user)
        told = await self._told(user, planned.notes)
        return replace(told, left=left, changes=planned.changes)

    async def _leave_host(self, user: User) -> tuple[str, ...]:
        """What could not be done; nodes must be told all the same."""
        try:
            await asyncio.to_thread(self.accounts.remove, user)
        except UserError as error:
            return (f"{error}; mend that, and run `tide user remove {user.name}` again",)
        if user.made:  # whatever has this name from now on is not ours
            await self.parts.record.store.keep_user(replace(user, made=False))
        return ()

    # --- nodes

    async def _told(self, user: User, notes: Sequence[str]) -> Outcome:
        """Container nodes see it as it is written; others are asked to look."""
        spec = self.parts.spec
        up = await self._up()
        asked = {node.name: node.address for node in up if _asks(node, spec) and node.address}
        seeing = [node for node in up if isinstance(spec.provider_of(node.group), Containers)]
        missing = await self.refreshing.ask(asked)
        if missing:
            await self.parts.record.note("users not refreshed", nodes=missing)
        told = tuple(note for note in notes if note)
        return Outcome(user, told, len(asked) + len(seeing), missing)

    async def _up(self) -> list[Node]:
        """Nodes that know who is there: those that are joining once they were told."""
        record, managed = self.parts.record, self.parts.spec.managed
        joining = record.of(managed, NodeState.JOINING)
        tickets = await record.store.tickets([node.name for node in joining])
        told = [node for node in joining if node.name in tickets and tickets[node.name].used_at]
        return [*record.of(managed, NodeState.READY, NodeState.DRAINING), *told]


def agreed(wish: Wish, roll: Roll, rules: Rules, now: float, accounts: Accounts) -> Added:
    """Ids that nobody has whom the control host tells of only when asked for them; blocks."""
    for _ in range(TRIES):
        added = ids.decide_add(wish, roll, rules, now)
        host = accounts.ask(added.user, added.groups)
        known = roll.host
        if host.users.keys() <= known.users.keys() and host.groups.keys() <= known.groups.keys():
            return added
        more = Host({**host.users, **known.users}, {**host.groups, **known.groups})
        roll = replace(roll, host=more)
    raise UserError(
        f"{TRIES} ids from {rules.first} on are others' on the control host: set `users.first` "
        "beyond those of your directory, or choose --uid and --gid"
    )


def changed_of(added: Added) -> tuple[str, ...] | None:
    return tuple(users.changes(added.before, added.user)) if added.before else None


def require_allowed(added: Added, by: By) -> None:
    """Whose key is in somebody's home is them: on the control host as well."""
    if added.theirs and not by.is_root:
        raise NotAllowed(
            f"{by.name} may not give {added.theirs[0]} of the control host to anybody: root may, "
            "or choose another name"
        )


def _asks(node: Node, spec: Cluster) -> bool:
    return node.group in spec.groups and "users" in spec.gets(node.group)


def _rules(spec: Cluster) -> Rules:
    return Rules(spec.users.homes, spec.users.first, str(spec.users.shell))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"no text in UTF-8: {error.reason}", str(path)) from error


def notes_of(user: User, place: Path, spec: Cluster) -> Iterator[str]:
    if user.uid < spec.users.first and not user.made:
        yield (
            f"uid {user.uid} is below users.first ({spec.users.first}): an image that has an "
            "account with it refuses the users of the cluster"
        )
    if user.made and not user.keys:
        yield f"nobody can log in as {user.name} until `tide user add {user.name} --key FILE`"
    if user.made and not os.access(user.shell, os.X_OK):
        yield (
            f"the control host has no program {user.shell}: {user.name} can log in only where "
            "there is one"
        )
    if place != Path(user.home) and not Path(user.home).exists():
        yield (
            f"on the control host the home is {place}, and there is no {user.home}: mount it "
            "there as well (`mount --bind`) if people log in here"
        )


def require_mounted(home: Path, spec: Cluster) -> None:
    """A home on another machine's filesystem must not be made on this machine's disk."""
    for shared in spec.shared:
        elsewhere = home.is_relative_to(shared.path) and not shared.here
        if elsewhere and not os.path.ismount(shared.path):
            raise UserError(
                f"{shared.path} ({shared.source}) is not mounted on the control host, where homes "
                "are made: mount it, and try again"
            )


def locate(home: Path, spec: Cluster) -> tuple[Path, str]:
    """Where this machine has a home, and what is to be said of that."""
    for shared in spec.shared:
        if home.is_relative_to(shared.path):
            inner = home.relative_to(shared.path)
            return (Path(shared.directory) / inner if shared.here else home), ""
    providers = (spec.provider, *(spec.provider_of(group) for group in spec.groups))
    mounts = [path for one in providers if isinstance(one, Containers) for path in one.mounts]
    if any(home.is_relative_to(path) for path in mounts):
        return home, ""
    return home, (
        f"{home} is on no filesystem of `shared`, so nodes see it only if their image has it: "
        "name it in `shared`, or set `users.homes`"
    )


def _count(jobs: Sequence[str]) -> str:
    return f"{len(jobs)} job{'s' if len(jobs) != 1 else ''}"
