"""The check of a node, run in the way that Slurm and a booting node need it.

`slurm_node` and the welcome of nodes elsewhere have the text installed as a program. It looks at
what every node needs: its filesystems, munge, its memory, its clock; then it runs the site's own
program, if there is one. At boot a node that fails says why and starts no slurmd; then it is
Slurm's HealthCheckProgram, whose exit code means nothing to Slurm, so it drains the node itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

FAILED = "health check failed"
"""What the reason of such a drain begins with; Slurm's adapter takes it for Slurm's own."""
BOOT_S = 60
"""How long the site's program may take at boot."""
SERVICE_S = 40
"""And then: slurmd kills what takes a minute, and no node would be drained."""
MOUNT_S = 5
"""A filesystem that does not answer within this is not there."""
LONGEST = 150
"""Characters of the site's program in a reason."""
REFRESH_MIN = 5
"""So many minutes after its last look a node asks again what has changed."""
SKEW = Path("/run/springtide/clock")
"""Where the agent of a node elsewhere says how far its clock is from the control host's, if that
is too far."""

CHECK = """\
#!/bin/sh
# Written by Springtide from the cluster file: change that, not this.
# usage: health [boot]
set -u
program={program} failed={failed} memory={memory} socket={socket} skew={skew}
{conf}PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
TIDE_NODE=${{TIDE_NODE:-${{SLURMD_NODENAME:-}}}}
export PATH TIDE_NODE

umask 077
notes=/run/springtide-health
said=$notes/said.$$ verdict=$notes/verdict
mkdir -p "$notes"
trap 'rm -f "$said"' EXIT

is_mounted() {{
    while read -r _ _ _ _ at _; do
        [ "$at" != "$1" ] || break
    done </proc/self/mountinfo
    [ "$at" = "$1" ] && timeout -s KILL {mount_s} stat -f "$1" >/dev/null 2>"$said"
}}
has_memory() {{
    while read -r key total _; do
        [ "$key" != MemTotal: ] || break
    done </proc/meminfo
    total=$((total / 1024))
    [ "$total" -ge "$memory" ]
}}
answers() {{
    munge -S "$socket" -n </dev/null 2>"$said" | unmunge -S "$socket" >/dev/null 2>"$said"
}}

# What every node needs; sets `why`.
needs() {{
    for path in {mounts}; do
        is_mounted "$path" || {{ why="$path is not mounted, or does not answer"; return 1; }}
    done
    [ "$memory" = 0 ] || has_memory ||
        {{ why="it has $total MiB of memory, and {system} is told $memory"; return 1; }}
    [ -z "$socket" ] || answers || {{ why="munge does not answer at $socket"; return 1; }}
    [ ! -s "$skew" ] || {{ why="its clock is $(cat "$skew") s from the control host's"; return 1; }}
}}

# The site's own. Its output goes to a file: what it leaves running in the background must not be
# waited for.
site() {{
    timeout --kill-after=5 "$1" "$program" >"$said" 2>&1 </dev/null && return
    code=$?
    why=$(tail -n 1 "$said" | tr -cd '[:print:]' | cut -c 1-{longest})
    case $code in
    124 | 137) why="it took more than $1 s" ;;
    esac
    why="${{why:-exit code $code}}"
    return 1
}}
check() {{
    : >"$said"
    if needs && {{ [ -z "$program" ] || site "$1"; }}; then return; fi
    why="$failed: $why"
    return 1
}}

# Whether somebody has drained the node (sets `drained`), and why.
look() {{
    shown=$(scontrol -o show node "$TIDE_NODE") || exit
    drained=${{shown#* State=}}
    case ${{drained%% *}} in
    *DRAIN*) drained=yes ;;
    *) drained= ;;
    esac
    reason=${{shown##* Reason=}}
}}

if [ "${{1:-}}" = boot ]; then
    if ! check {boot_s}; then
        sed '$d' "$said"
        echo "$why"
        exit 1
    fi
    echo booted >"$verdict"
    exit
fi
# Slurm runs it on all its nodes. Those that did not boot by us, as machines of the site, have
# nothing of what we look for.
read -r known 2>/dev/null <"$verdict" || exit 0
{refresh}
if [ "$known" = booted ]; then
    # slurmd runs it when it starts, a moment after the boot has.
    echo unsure >"$verdict"
elif ! check {service_s}; then
    echo unwell >"$verdict"
    look
    [ "$drained" ] || scontrol update nodename="$TIDE_NODE" state=drain reason="$why"
elif [ "$known" != well ]; then
    # The node, or its last instance, may be drained by this; other drains are not ours to end.
    look
    case $drained$reason in
    *"(by "*) ;; # somebody has made it theirs
    yes"$failed: "*) scontrol update nodename="$TIDE_NODE" state=undrain || exit ;;
    esac
    echo well >"$verdict"
fi
"""

REFRESH = """
# Users, names and filesystems may have changed; slurmd must not wait for the control host.
asked=$notes/asked
[ -e "$asked" ] || : >"$asked"
if [ -n "$(find "$asked" -mmin +{minutes})" ]; then
    : >"$asked"
    setsid {agent} refresh >/dev/null 2>&1 </dev/null &
fi
"""

BOOT = """
# The check: who fails it says why, and takes no job.
until_there {waits} 0.1 20 [ -x {check} ]
{check} boot
"""


@dataclass(frozen=True, slots=True)
class Checks:
    """What a node is looked at for."""

    program: Path | None = None
    """The site's own."""
    conf: Path | None = None
    """The slurm.conf of the node; none if it fetches its own."""
    mounts: Sequence[Path] = ()
    socket: Path | None = None
    """Of munge."""
    memory: int = 0
    """MiB that the batch system is told; 0 if that is not what the node shows."""
    system: str = "Slurm"
    """Which that is, in words."""
    agent: Path | None = None
    """What asks the control host what has changed; none on nodes that see its files."""


def render_check(wanted: Checks) -> str:
    """The program."""
    conf = f"SLURM_CONF={quote(str(wanted.conf))}\nexport SLURM_CONF\n" if wanted.conf else ""
    agent = quote(str(wanted.agent))
    return CHECK.format(
        program=quote(str(wanted.program or "")),
        failed=quote(FAILED),
        conf=conf,
        memory=wanted.memory,
        system=wanted.system,
        socket=quote(str(wanted.socket or "")),
        skew=quote(str(SKEW)),
        mounts=" ".join(quote(str(path)) for path in wanted.mounts),
        refresh=REFRESH.format(agent=agent, minutes=REFRESH_MIN) if wanted.agent else "",
        mount_s=MOUNT_S,
        boot_s=BOOT_S,
        service_s=SERVICE_S,
        longest=LONGEST,
    )


def render_boot(check: Path) -> str:
    """The part of a node's boot script that has it pass the check."""
    return BOOT.format(check=quote(str(check)), waits=quote(f"the health check {check}"))
