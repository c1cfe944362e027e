"""How a machine becomes a node of a batch system other than Slurm: files, then a program.

Boot scripts of nodes that do not join have the same shell commands from here as the agent has.
"""

import os
import re
import shutil
import subprocess
from shlex import quote
from typing import Dict, List, Sequence, Tuple

from springtide.node import given
from springtide.node.console import Early, Failed, Unfit
from springtide.node.given import Json
from springtide.node.system import (
    BEGIN,
    END,
    has_systemd,
    last_line,
    read,
    render_settings,
    replace_file,
    run,
    stop,
)

UNIT = "springtide-entry"
SCRIPT = "/run/springtide/entry"
LOG = "/run/springtide/entry.log"
PROPERTIES = (
    *("KillMode=process", "Delegate=yes", "TasksMax=infinity"),
    *("LimitNOFILE=131072", "LimitMEMLOCK=infinity", "LimitSTACK=infinity"),
)
"""A program that ends leaves its jobs running."""
COMM = 15
"""So many characters of a program's name the kernel knows."""
VERSION = r"[0-9]+(?:\.[0-9A-Za-z]+)+"
UNLOADED = "error while loading shared libraries"
"""What a program says that cannot begin; the numbers of a library are no version of it."""
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
REFRESH_S = 300
TRIES = 30
PAUSE_S = 2
LONG_S = 60
PATIENCE = 5
"""So often it is asked before a word is said of it."""
CANNOT = "cannot join: "
"""How lines begin that say why a node is none; `failures` knows them."""

RUN = """\
# Who comes before the batch system expects it is refused, and ends: it tries again. One that was
# told to end has left. One that ran for long was not refused.
{known}tries={tries}
until {wait}began=$(date +%s) && {command}; do
    code=$?
    [ "$(($(date +%s) - began))" -lt {long} ] || tries={tries}
    tries=$((tries - 1))
    if [ "$tries" = 0 ]; then
        {say} {cannot}{program}" ended again and again, at last with status $code"
        exit 1
    fi
    sleep {pause}
done
"""
KNOWN = """\
# The batch system may have to learn of this machine first, or be away: nobody is refused then.
known() {{
    patience={patience}
    until {command} >/dev/null 2>&1; do
        patience=$((patience - 1))
        [ "$patience" != 0 ] || echo "waiting for the batch system to know this machine"
        sleep {pause}
    done
}}
"""
PREPARE = """\
{exports}command -v {program} >/dev/null || {{
    echo {cannot}{program}" is not there: the image must have it"
    exit 1
}}
{directories}{files}{settings}"""
WRITE = """\
mkdir -p {place}
printf %s {text} >{path}
"""
SETTINGS = """\
# Only these lines are ours; what else the image has there stays.
mkdir -p {place}
[ -e {path} ] || : >{path}
awk {others} {path} >{path}.springtide
{{
    printf '%s\\n' {lines}
{defaults}    printf '%s\\n' {end}
    cat {path}.springtide
}} >{path}
rm {path}.springtide
"""
DEFAULT = """\
    awk {has} {path}.springtide || printf '%s\\n' {lines}
"""
COMPARE = """\
first_version() {{ grep -v 'shared librar' | grep -Eo '[0-9]+([.][0-9A-Za-z]+)+' | head -n 1; }}
theirs=$(first_version 2>/dev/null <{version}) || theirs=
own=$({versions} 2>&1 </dev/null | first_version) || own=
if [ "$theirs" ] && [ "$own" ] && [ "$own" != "$theirs" ]; then
    echo {cannot}"it has version $own, and the batch system has $theirs: use another image"
    exit 1
fi
"""
REFRESH = """\
# Who is told to end takes all of it along, and not the jobs. A shell that waits in the foreground
# is not told. While something begins of which it is not known yet which process it is, that is
# only noted; and what has just begun may miss it, so it is told until it is gone.
refresh= program= told=
leave() {{
    for one in $refresh $program; do
        while kill "$one"; do sleep 0.2; done
    done
}} 2>/dev/null
noting() {{ trap told=yes TERM; }}
heeding() {{
    trap 'exit 143' TERM
    [ -z "$told" ] || exit 143
}}
trap leave EXIT
noting
# Users, names and filesystems may have changed.
while sleep {pause}; do {agent} refresh >/dev/null 2>&1 </dev/null; done &
refresh=$!
heeding
served() {{
    noting
    {command} &
    program=$!
    heeding
    wait "$program" && code=0 || code=$?
    program=
    return "$code"
}}
"""


# --- as shell commands ---------------------------------------------------------------------------


def render_prepare(part: Json) -> str:
    """Makes directories and files, where there is the program; sets its environment."""
    directories, environment = part["directories"], part["environment"]
    return PREPARE.format(
        exports=_exports(environment),
        program=quote(part["command"][0]),
        cannot=quote(CANNOT),
        directories="mkdir -p {}\n".format(" ".join(map(quote, directories))) * bool(directories),
        files="".join(_file(path, text) for path, text in sorted(part["files"].items())),
        settings="".join(
            _settings(path, one) for path, one in sorted(part.get("settings", {}).items())
        ),
    )


def _exports(environment: Dict[str, str]) -> str:
    return "".join(f"export {key}={quote(environment[key])}\n" for key in sorted(environment))


def _file(path: str, text: str) -> str:
    place = os.path.dirname(path)
    return WRITE.format(place=quote(place), path=quote(path), text=quote(text))


def _settings(path: str, ours: Json) -> str:
    """The same as `system.render_settings`."""
    words = dict.fromkeys(line.split()[0] for line in ours["lines"])
    strange = " && ".join(f'$1 != "{word}"' for word in words)
    others = f'$0 == "{BEGIN}" {{ours = 1}} !ours && {strange}; $0 == "{END}" {{ours = 0}}'
    return SETTINGS.format(
        place=quote(os.path.dirname(path)),
        path=quote(path),
        others=quote(others),
        lines=" ".join(map(quote, [BEGIN, *ours["lines"]])),
        defaults="".join(_defaults(path, ours["defaults"])),
        end=quote(END),
    )


def _defaults(path: str, lines: Sequence[str]) -> List[str]:
    """Those that begin with the same word are there together, or not at all."""
    words: Dict[str, List[str]] = {}
    for line in lines:
        words.setdefault(line.split()[0], []).append(quote(line))
    has = '$1 == "{}" {{found = 1}} END {{exit !found}}'
    return [
        DEFAULT.format(has=quote(has.format(word)), path=quote(path), lines=" ".join(some))
        for word, some in words.items()
    ]


def render_compare(versions: Sequence[str], version: str) -> str:
    """Ends the script of a node of another version than `version` has, a file; in any case goes on
    where one of both is not known."""
    if not versions:
        return ""
    return COMPARE.format(versions=_shell(versions), version=quote(version), cannot=quote(CANNOT))


def render_run(
    command: Sequence[str], ready: Sequence[str] = (), say: str = "echo", served: str = ""
) -> str:
    """Runs the program until it has left, each time when the batch system would take this machine,
    where that can be asked (`ready`). `say` is a command that tells why it is given up, and
    `served` one that runs the program, if something does."""
    asked = KNOWN.format(command=_shell(ready), patience=PATIENCE, pause=PAUSE_S)
    return RUN.format(
        say=say,
        known=asked if ready else "",
        wait="known && " if ready else "",
        command=served or _shell(command),
        program=quote(command[0]),
        cannot=quote(CANNOT),
        tries=TRIES,
        pause=PAUSE_S,
        long=LONG_S,
    )


def _shell(command: Sequence[str]) -> str:
    return " ".join(map(quote, command))


# --- on a node that joins ------------------------------------------------------------------------


def check(part: Json) -> None:
    """Whether this machine has the program, and of the batch system's version."""
    command, versions = _words(part["command"]), _words(part["versions"])
    if not shutil.which(command[0]):
        raise Unfit(f"{command[0]} is not there: the image must have it")
    theirs = first_version(given.text(part["version"]))
    said = run(_with_environment(part, versions))[1] if versions else ""
    if UNLOADED in said:
        raise Unfit(f"{command[0]} does not run here: {last_line(said)}")
    own = first_version(said)
    if theirs and own and own != theirs:
        raise Unfit(f"it has version {own}, and the batch system has {theirs}: use another image")


def first_version(text: str) -> str:
    found = re.search(VERSION, text)
    return found.group() if found else ""


def _words(values: Sequence[object]) -> List[str]:
    return [given.line(value) for value in values]


def _environment(part: Json) -> Dict[str, str]:
    told = part["environment"]
    return {given.word(key, VARIABLE): given.line(told[key]) for key in told}


def _with_environment(part: Json, command: List[str]) -> List[str]:
    return ["env", *(f"{key}={value}" for key, value in _environment(part).items()), *command]


def hold_back(welcome: Json) -> None:
    """None that the image starts by itself: it would take jobs before the node is complete."""
    if "entry" in welcome["features"]:
        stop(_program(welcome["entry"]))


def _program(part: Json) -> str:
    return os.path.basename(_words(part["command"])[0])[:COMM]


def apply_entry(welcome: Json) -> None:
    part = welcome["entry"]
    if part.get("early"):
        raise Early(given.line(part["early"]))
    for path in part["directories"]:
        os.makedirs(given.path(path), exist_ok=True)
    for path in sorted(part["files"]):
        replace_file(given.path(path), given.text(part["files"][path]))
    for path, ours in sorted(part.get("settings", {}).items()):
        lines, defaults = _words(ours["lines"]), _words(ours["defaults"])
        replace_file(given.path(path), render_settings(read(path), lines, defaults))
    replace_file(SCRIPT, render_service(part, given.path(part["agent"])), 0o755)
    code, said = _started()
    if code:
        raise Failed(f"{_program(part)} did not start: {last_line(said)}")


def render_service(part: Json, agent: str) -> str:
    command = _words(part["command"])
    head = "#!/bin/sh\n" + _exports(_environment(part))
    head += REFRESH.format(pause=REFRESH_S, agent=quote(agent), command=_shell(command))
    ready = _words(part.get("ready", []))
    return head + render_run(command, ready, f"{quote(agent)} report-failure", "served")


def _started() -> Tuple[int, str]:
    if has_systemd():
        for action in ("stop", "reset-failed"):
            run(["systemctl", action, UNIT])
        properties = ["--property=" + each for each in PROPERTIES]
        return run(["systemd-run", "--unit=" + UNIT, *properties, SCRIPT], 180)
    with open(LOG, "ab") as log, open(os.devnull) as nothing:
        subprocess.Popen(["setsid", SCRIPT], stdin=nothing, stdout=log, stderr=log)
    return 0, ""
