"""Whether this machine can be the node that Slurm was told of: its Slurm, memory, CPUs, clock."""

import glob
import os
import re
from typing import Callable

from springtide.node import entry, given
from springtide.node.console import Failed, Unfit, say
from springtide.node.given import Json
from springtide.node.system import read, remove, replace_file, run

SKEWED = "/run/springtide/clock"
"""How far the clock is off, if that is too far; the health check reads it."""
SKEW_S = 60.0
LAST = ("slurmd", "entry")
"""Features that make a node of a machine: it has one of them."""
WINDOW_MONTHS = 21
"""The rule of `slurm_versions`, for an image that has only this: slurmctld takes nodes of its own
release and of the two (since 24.11 three) before it. Releases were nine months apart and are six
now: in either case the oldest of these is no older than this, and the one before is."""


def machine() -> Json:
    found = re.search(given.VERSION, run(["slurmd", "-V"])[1])
    return {
        "arch": os.uname().machine,
        "cpus": os.cpu_count() or 1,
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "slurm": found.group() if found else "",
        "boot": read("/proc/sys/kernel/random/boot_id").strip(),
        "host_keys": [
            read(path).strip() for path in sorted(glob.glob("/etc/ssh/ssh_host_*_key.pub"))
        ],
    }


def check_machine(welcome: Json) -> None:
    wanted, told = welcome["features"], last_part(welcome)
    why = ""
    if "slurmd" in wanted:
        why = decide_fit(machine(), told)
    elif "entry" in wanted:
        entry.check(told)
        why = decide_size(machine(), told, "the batch system")
    if why:
        raise Unfit(why)


def last_part(welcome: Json) -> Json:
    """What the node is started with in the end, and what the batch system knows of it."""
    found: Json = next((welcome[name] for name in LAST if name in welcome), {})
    return found


def decide_fit(here: Json, told: Json) -> str:
    """Why it cannot, or nothing."""
    if not here["slurm"]:
        return "the image has no slurmd: install it there"
    control = told.get("version") or here["slurm"]
    if not 0 <= _months(control) - _months(here["slurm"]) <= WINDOW_MONTHS:
        return (
            "it has slurmd {}, and slurmctld {} takes none that is newer than itself, or much "
            "older: use an image with Slurm {}".format(here["slurm"], control, control)
        )
    return decide_size(here, told)


def decide_size(here: Json, told: Json, who: str = "Slurm") -> str:
    """Why it is too small, or nothing."""
    wanted = given.number(told.get("memory", 0))
    if here["memory"] < wanted:
        return "it has {} MiB, {} is told {}: correct the flavor".format(
            here["memory"], who, wanted
        )
    wanted = given.number(told.get("cpus", 0))
    if here["cpus"] < wanted:
        return "it has {} CPUs, {} is told {}: correct the flavor".format(here["cpus"], who, wanted)
    return ""


def _months(version: str) -> int:
    """Releases are named after year and month."""
    year, month = given.word(version, given.VERSION).split(".")[:2]
    return 12 * int(year) + int(re.match("[0-9]+", month).group())  # type: ignore[union-attr]


def check_clock(welcome: Json, refresh: Callable[[], Json]) -> None:
    """Munge's credentials, and all that jobs know of time, need a clock that is right."""
    allowed, ahead_s = allowed_s(welcome), welcome["ahead"]
    if abs(ahead_s) > allowed and "time" in welcome["features"]:
        say(f"the clock is {ahead_s:+.1f} s off: setting it")
        run(["chronyc", "waitsync", "10", "0", "0", "1"], 15)
        run(["chronyc", "makestep"])
        ahead_s = refresh()["ahead"]
    note_skew(ahead_s, allowed)
    if abs(ahead_s) > allowed:
        raise Failed(
            f"its clock is {ahead_s:+.0f} s from the control host's, and {allowed:g} s are "
            "allowed: set it, or name servers in `time` of the cluster file"
        )


def allowed_s(welcome: Json) -> float:
    return given.number(last_part(welcome).get("skew", SKEW_S))


def note_skew(ahead_s: float, allowed: float) -> None:
    """Whoever looks after the node's health reads it there."""
    if abs(ahead_s) > allowed:
        replace_file(SKEWED, f"{ahead_s:.1f}\n")
    else:
        remove(SKEWED)
