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
_SLURMS = (
    "Duplicate jobid",
    "Epilog error",
    "Kill task failed",
    LEAVES,
    "Prolog error",
    "Reboot ASAP",
    "batch job complete failure",
    UNHEALTHY,
    "reboot requested",
)
"""What slurmd, stepds and health checks say as root, and slurmctld as nobody."""


def read(text: str, setter: str, *, resumes: bool = False, user: str = "slurm") -> tuple[str, str]:
    """A reason in its author's words, and the author.

    `resumes` is a reboot after which Slurm itself ends the drain; `user` is who slurmctld is.
    """
    head = _REBOOT.sub("", text)
    tail = text[len(head) :].replace(" : reboot issued", "")
    person = _PERSON.fullmatch(head)
    words = f"{person[1] if person else head}{tail}"
    if head.startswith(PREFIX):
        return words, OURS
    if resumes or head.startswith(_SLURMS):
        return words, SLURM
    if person:
        return words, person[2]
    if setter == user:  # it has set all that it added words to, too
        return words, SOMEBODY if head != text else SLURM
    return words, setter or SOMEBODY


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
