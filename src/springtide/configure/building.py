"""What the machine does that an image is built on: the site's scripts, one after the other.

`builds` gives it to the builder as its user data. What it says last tells how it went. A machine
with a disk of its own then forgets who it was, and switches itself off; of a container the files
are taken while it stands still, and made anonymous after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from springtide.configure.anonymise import anonymise, decide_forgotten, failed

BUILT = "springtide: the image is built"
PLACE = "/tmp/springtide.build"  # noqa: S108 - of the builder, which is nobody else's

_HEAD = """\
set -u
export TIDE_FAMILY={family} TIDE_IMAGE={image} TIDE_ARCH={arch}
label={label}
place={place}
mkdir -p "$place" || exit 1
# On a line of its own, though whoever spoke before may not have ended theirs.
say() {{ printf '\n%s\n' "$1"; }}
failed() {{
    say "{failed}$1"
    {giving_up}
}}
"""
_RUN = """\
say {running}
printf %s {text} >"$place/script"
chmod 755 "$place/script"
"$place/script" </dev/null || failed {name}" ended with status $?"
"""
_END = """\
rm -rf "$place"
say "{built}"
"""


@dataclass(frozen=True, slots=True)
class Script:
    """A program of the site."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is built, and how."""

    family: str
    image: str
    arch: str
    label: str
    """Of this one image of all."""
    scripts: Sequence[Script]
    shared: Sequence[Path] = ()
    """Where a machine may have filesystems that are not its own."""


def render_build(recipe: Recipe, remote: bool) -> str:
    """A machine of its own that fails stays up, for its console to be read."""
    head = _HEAD.format(
        family=quote(recipe.family),
        image=quote(recipe.image),
        arch=quote(recipe.arch),
        label=quote(recipe.label),
        place=PLACE,
        failed=failed("$label"),
        giving_up="while :; do sleep 3600; done" if remote else "exit 1",
    )
    runs = "".join(
        _RUN.format(
            running=quote(f"springtide: running {one.name}"),
            text=quote(one.text),
            name=quote(one.name),
        )
        for one in recipe.scripts
    )
    last = anonymise(recipe.label, recipe.shared) if remote else ""
    return head + runs + _END.format(built=BUILT) + last


def decide_outcome(
    label: str, console: str, running: bool, off_s: float | None, remote: bool
) -> str | None:
    """None as long as it goes on, empty if it is done, or why it failed.

    `off_s` is for how long it is off, None if it is not; one that neither runs nor is off is dead.
    """
    why = decide_forgotten(label, console, off_s if remote else None)
    if why is not None:
        return why
    if not remote and running and BUILT in console.splitlines():
        return ""
    if not running and off_s is None:
        return "the machine that it was built on died"
    return None
