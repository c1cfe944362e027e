"""The site's own check of a node, run in the way that Slurm and a booting node need it.

`slurm_node` installs the text as a program that nodes see. It runs the site's program: at boot,
where a node that fails says why and starts no slurmd; then as Slurm's HealthCheckProgram, whose
exit code means nothing to Slurm, so it drains the node itself.
"""

from pathlib import Path
from shlex import quote

FAILED = "health check failed"
"""What the reason of such a drain begins with; Slurm's adapter takes it for Slurm's own."""
BOOT_S = 60
"""How long the site's program may take at boot."""
SERVICE_S = 50
"""And then: slurmd kills what takes a minute, and no node would be drained."""
LONGEST = 150
"""Characters of the site's program in a reason."""

CHECK = """\
#!/bin/sh
# Written by Springtide from the cluster file: change that, not this.
# usage: health [boot]
set -u
program={program} failed={failed} SLURM_CONF={conf}
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
TIDE_NODE=${{TIDE_NODE:-${{SLURMD_NODENAME:-}}}}
export PATH SLURM_CONF TIDE_NODE

umask 077
notes=/run/springtide-health
said=$notes/said.$$ verdict=$notes/verdict
mkdir -p "$notes"
trap 'rm -f "$said"' EXIT

# Its output goes to a file: what it leaves running in the background must not be waited for.
check() {{
    timeout --kill-after=5 "$1" "$program" >"$said" 2>&1 </dev/null && return
    code=$?
    why=$(tail -n 1 "$said" | tr -cd '[:print:]' | cut -c 1-{longest})
    case $code in
    124 | 137) why="it took more than $1 s" ;;
    esac
    why="$failed: ${{why:-exit code $code}}"
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

read -r known 2>/dev/null <"$verdict" || known=
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

BOOT = """
# The site's check: who fails it says why, and takes no job.
until_there {waits} 0.1 20 [ -x {check} ]
{check} boot
"""


def render_check(program: Path, conf: Path) -> str:
    """What runs the site's program; `conf` is the slurm.conf of the node."""
    return CHECK.format(
        program=quote(str(program)),
        failed=quote(FAILED),
        conf=quote(str(conf)),
        boot_s=BOOT_S,
        service_s=SERVICE_S,
        longest=LONGEST,
    )


def render_boot(check: Path) -> str:
    """The part of a node's boot script that has it pass the check."""
    return BOOT.format(check=quote(str(check)), waits=quote(f"the health check {check}"))
