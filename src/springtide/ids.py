"""Who gets which user and group id, and keeps it for ever. Pure; the roster decides with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from springtide.users import (
    LEAST,
    MOST,
    NO_LOGIN,
    Account,
    Group,
    Host,
    User,
    UserError,
    Wish,
    fingerprint,
    fit,
    fit_group,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the cluster file says of users."""

    homes: Path
    first: int
    shell: str


@dataclass(frozen=True, slots=True)
class Roll:
    """All who ever had an id here, and who has one on the control host."""

    users: Mapping[str, User]
    groups: Mapping[str, Group]
    host: Host
    owning: frozenset[int] = frozenset()
    """Numbers that own something where homes are: of people of whom nothing else is known."""

    def owner(self, uid: int) -> str | None:
        ours = (user.name for user in self.users.values() if user.uid == uid)
        theirs = (name for name, one in self.host.users.items() if one.uid == uid)
        return next(chain(ours, theirs), None)

    def group_at(self, gid: int) -> str | None:
        ours = (group.name for group in self.groups.values() if group.gid == gid)
        theirs = (name for name, one in self.host.groups.items() if one == gid)
        return next(chain(ours, theirs), None)

    def gid(self, group: str) -> int | None:
        known = self.groups.get(group)
        return known.gid if known else self.host.groups.get(group)

    def free(self, first: int, besides: Iterable[int] = ()) -> int:
        """The first number that is, and was, neither a user's nor a group's, as far as is known."""
        uids = {user.uid for user in self.users.values()}
        gids = {user.gid for user in self.users.values()}
        taken = uids | gids | {group.gid for group in self.groups.values()} | set(besides)
        taken |= {one.uid for one in self.host.users.values()} | set(self.host.groups.values())
        taken |= self.owning
        return next(each for each in range(first, MOST) if each not in taken)


@dataclass(frozen=True, slots=True)
class Added:
    """What is to be kept of somebody who is added."""

    user: User
    groups: tuple[Group, ...]
    gone_keys: tuple[str, ...] = ()
    """That they had, and shall not log in with any more."""
    theirs: tuple[str, ...] = ()
    """What the control host has without us, in words: whoever gets it may do more there."""
    before: User | None = None
    """As they were, if they were there."""


def decide_add(wish: Wish, roll: Roll, rules: Rules, now: float) -> Added:
    """The user as they are to be, with their groups; raises UserError."""
    user = _wished(wish, roll, rules, now)
    own = _own_group(user, roll)
    further = tuple(name for name in user.groups if own is None or name != own.name)
    wanted = [name for name in further if name in wish.groups]
    groups = _groups(wanted, roll, rules, {user.uid, user.gid})
    known = roll.users.get(wish.name)
    gone = tuple(key for key in known.keys if key not in user.keys) if known else ()
    kept = tuple(group for group in (own, *groups) if group is not None)
    before = known if known and known.present else None
    return Added(replace(user, groups=further), kept, gone, _theirs(user, kept, roll), before)


def _theirs(user: User, groups: Iterable[Group], roll: Roll) -> tuple[str, ...]:
    """A group that the cluster knows was given to it before."""
    accounts = () if user.made else (f"the account {user.name}",)
    foreign = (each.name for each in groups if each.name not in roll.groups)
    return (*accounts, *(f"the group {name}" for name in foreign if name in roll.host.groups))


def _wished(wish: Wish, roll: Roll, rules: Rules, now: float) -> User:
    known, here = roll.users.get(wish.name), roll.host.users.get(wish.name)
    strange = here is not None and not (known and known.made)
    if here is not None and (here.uid < LEAST or (strange and here.shell in NO_LOGIN)):
        raise UserError(
            f"{wish.name} is an account of the system (uid {here.uid}): choose another name"
        )
    if here is not None and strange:
        here = fit(wish.name, here)
    if known is None:
        user = _adopted(wish, here, now) if here else _new(wish, roll, rules, now)
    else:
        user = _again(known, here, now)
    _agree(wish, user)
    _require_free(user, roll)
    if wish.gid is not None:
        _require_shared(user, roll)
    return _changed(user, wish)


def _adopted(wish: Wish, here: Account, now: float) -> User:
    """Somebody whom the control host knows already stays as they are."""
    parts = (here.uid, here.gid, here.gecos, here.home, here.shell)
    return User(wish.name, *parts, made=False, created_at=now)


def _new(wish: Wish, roll: Roll, rules: Rules, now: float) -> User:
    if wish.gid is None:
        _require_no_team(wish.name, roll)
    uid = wish.uid or roll.free(rules.first)
    gid = wish.gid or roll.gid(wish.name) or (uid if not roll.group_at(uid) else None)
    return User(
        wish.name,
        uid,
        gid or roll.free(rules.first, {uid}),
        wish.gecos or "",
        str(rules.homes / wish.name),
        wish.shell or rules.shell,
        created_at=now,
    )


def _require_no_team(name: str, roll: Roll) -> None:
    """Who has the name of a team's group would have it as their own, unasked."""
    team = [user.name for user in roll.users.values() if user.present and name in user.groups]
    if team:
        raise UserError(
            f"{name} is a group, which {', '.join(sorted(team))} is in: choose another name, or "
            f"say --gid {roll.gid(name)} if it shall be {name}'s own"
        )


def _again(known: User, here: Account | None, now: float) -> User:
    """Whoever comes back gets the ids that they had; their files are theirs."""
    if here is not None and here.uid != known.uid:
        raise UserError(
            f"{known.name} has uid {known.uid} in the cluster and {here.uid} on the control host: "
            f"give it {known.uid} there (usermod -u), or add another name"
        )
    if here is not None and not known.made:
        known = replace(known, gecos=here.gecos, home=here.home, shell=here.shell)
    if known.present:
        return known
    made = here is None or known.made  # one of ours that could not be removed
    return replace(known, groups=(), keys=(), made=made, created_at=now, removed_at=None)


def _agree(wish: Wish, user: User) -> None:
    for what, wanted, has in (("uid", wish.uid, user.uid), ("gid", wish.gid, user.gid)):
        if wanted is not None and wanted != has:
            raise UserError(f"{user.name} has {what} {has} and keeps it: leave --{what} out")


def _require_free(user: User, roll: Roll) -> None:
    if user.made and user.gid < LEAST:
        raise UserError(
            f"{user.name} is a group of the system (gid {user.gid}): choose another name, or --gid"
        )
    owner = roll.owner(user.uid)
    if owner not in (None, user.name):
        was = roll.users.get(str(owner))
        how = "was" if was is not None and not was.present else "is"
        raise UserError(
            f"uid {user.uid} {how} {owner}'s, and no id is given twice: choose another --uid"
        )


def _require_shared(user: User, roll: Roll) -> None:
    """A group that somebody has alone stays theirs."""
    name = roll.group_at(user.gid)
    owner = roll.users.get(name or "")
    if owner is not None and owner.name != user.name and owner.gid == user.gid:
        raise UserError(
            f"gid {user.gid} is {name}'s own group, and no id is given twice: choose another "
            "--gid, or have both in one --group"
        )


def _changed(user: User, wish: Wish) -> User:
    """An account that was there before us keeps its name and shell."""
    if user.made:
        user = replace(
            user,
            gecos=user.gecos if wish.gecos is None else wish.gecos,
            shell=wish.shell or user.shell,
        )
    return replace(
        user,
        groups=tuple(dict.fromkeys((*user.groups, *wish.groups))),
        keys=tuple(dict.fromkeys((*_left(user, wish), *wish.keys))),
    )


def _left(user: User, wish: Wish) -> list[str]:
    """Keys that are not taken back."""
    known = {key: fingerprint(key) for key in user.keys}
    for one in wish.gone_keys:
        if one not in known.values():
            raise UserError(f"{user.name} has no key {one}: see `tide user list --json`")
    return [key for key, print_ in known.items() if print_ not in wish.gone_keys]


def _own_group(user: User, roll: Roll) -> Group | None:
    """Every image has the system's groups; others come from us."""
    if user.gid < LEAST:
        return None
    name = roll.group_at(user.gid) or user.name
    if roll.gid(name) not in (None, user.gid):
        raise UserError(
            f"group {name} has gid {roll.gid(name)}, not {user.gid}: choose another --gid"
        )
    return fit_group(user.name, Group(name, user.gid))


def _groups(names: Iterable[str], roll: Roll, rules: Rules, besides: set[int]) -> Sequence[Group]:
    found: list[Group] = []
    for name in names:
        gid = roll.gid(name) or roll.free(rules.first, besides)
        if gid < LEAST:
            raise UserError(
                f"group {name} is the system's (gid {gid}), and may allow more than is meant: "
                "choose another group"
            )
        besides.add(gid)
        found.append(Group(name, gid))
    return found
