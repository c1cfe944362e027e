"""Whose wish a drain is, kept in the only place that Slurm has for it: the node's reason. Pure.

Slurm notes who set a reason, but we set all of ours as root. So the reasons of our operations
begin in one way, and those of people who ask us end in another: `disk broken (by alice)`,
which means the same if somebody types it. Called by `slurm_text` and `slurm_nodes`.

A power-down by command ends a drain but keeps its reason, and 24.11 keeps reasons of drains that
somebody ended, too; so before a power-down the reason says that there is a drain to lose.
"""

import re

from springtide.ports import ITSELF, OURS, Unavailable

PREFIX = f"{OURS}: "
SLURM = ITSELF
"""The owner of what Slurm drains by itself: for a fault, for an instance's sake, or a reboot."""
SOMEBODY = "somebody"
LEAVES = "POWER_DOWN_ASAP"
"""Slurm's own reason for a node that is powered down when its jobs are over."""
UNHEALTHY = "health check failed"
"""What the site's health check drains a node for; see `configure.health`."""

_NAME = r"[\w.@$+-]+"
_PERSON = re.compile(rf"(.*?) ?\(by ({_NAME})(, drained)?\)")
_REBOOT = re.compile(r"(?: : reboot (?:issued|complete|timed out))+$")
_LOW = r"Low (?:CPUs|RealMemory|TmpDisk|socket\*core(?:\*thread)? count)(?: \(reported:[^()]*\))?"
_SLURMS = re.compile(
    rf"{_LOW}(?:, {_LOW})*"
    r"|gres/\S+ count (?:too low|reported lower than configured) \(\d+ < \d+\)"
    r"|Duplicate jobid|Epilog error|Kill task failed|Node unexpectedly rebooted|Not responding"
    rf"|Prolog error|Reboot ASAP|ResumeTimeout reached|batch job complete failure|{LEAVES}"
    rf"|reboot requested|{UNHEALTHY}(?:: .*)?"
)
"""All that slurmctld, slurmd, stepds and health checks say: people say it with more words."""
_SLURM_IS = frozenset({"", "nobody", "root"})
"""Who says it: stepds and health checks as root, slurmctld as `user` and at times as nobody."""


def read(text: str, setter: str, *, resumes: bool = False, user: str = "slurm") -> tuple[str, str]:
    """A reason in its author's words, and the author; in doubt a person, whose node we leave alone.

    `resumes` is a reboot after which Slurm itself ends the drain; `user` is who slurmctld is.
    """
    head = _REBOOT.sub("", text)
    tail = text[len(head) :].replace(" : reboot issued", "")
    person = _PERSON.fullmatch(head)
    words = f"{person[1] if person else head}{tail}"
    if head.startswith(PREFIX):
        return words, OURS
    if signed := _PERSON.match(head):  # whatever Slurm has added to it
        return words, signed[2]
    if resumes or _is_slurms(head, setter, user):
        return words, SLURM
    if setter == user != "root":  # it has set all that it added words to, too
        return words, SOMEBODY if head != text else SLURM
    return words, setter or SOMEBODY


def _is_slurms(head: str, setter: str, user: str) -> bool:
    """Whether it is what Slurm says, and nobody else has set it."""
    known = setter == user or setter in _SLURM_IS
    return known and _SLURMS.fullmatch(head) is not None


def write(words: str, owner: str, *, lost: bool = False) -> str:
    """A reason that `read` finds the owner in again; `lost` if a person's drain will be."""
    if owner == OURS:
        return words if words.startswith(PREFIX) else f"{PREFIX}{words}"
    if owner == SLURM:
        return words
    name = owner.replace("\\", "-")  # DOMAIN\user
    if not re.fullmatch(_NAME, name):
        raise Unavailable(f"{owner!r} is no name of somebody who could drain a node")
    return f"{words} (by {name}{', drained' if lost else ''})".lstrip()


def is_kept(text: str) -> bool:
    """Whether it is a person's reason, of a drain that went with the power."""
    person = _PERSON.fullmatch(_REBOOT.sub("", text))
    return person is not None and person[3] is not None
