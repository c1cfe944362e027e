#!/usr/bin/python3 -I
"""A submit filter for Torque's qsub: jobs that ask for nodes get those of their queue.

pbs_sched gives a job that says `-l nodes=2` any two nodes, whatever its queue asks for by default.
qsub has this program read each job script on stdin, takes what it writes to stdout instead, and
refuses the job if it ends with 255. It adds the property of the queue's nodes to `nodes=` of #PBS
lines. What stands on the command line goes before these lines and cannot be changed here, so a job
that lacks the property there is refused, with the words to write.

To install it, on every machine with qsub:

    install -m 755 torque_submit_filter.py /usr/local/sbin/torque_submitfilter
    printf '%s\\n' 'cloud cloud' 'batch house default' |
        install -D -m 644 /dev/stdin /etc/springtide/torque-queues

Each line of that file has a queue and the property of its nodes; `default` marks the queue of jobs
that name none. Jobs of other queues, and those that ask for no nodes, pass as they are. Standard
library only, for any Python 3: it runs where Springtide is not installed.

qsub joins its arguments with blanks and has /bin/sh split them again, without the value of -C. How
they were meant is read from qsub itself, our parent. Where that is not told, `-F "in -q x"` and
`-F in -q x` are the same to us: what could be of a queue with a property is then refused.
"""

import os
import re
import shlex
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

QUEUES = "/etc/springtide/torque-queues"
REFUSED = 255
PREFIX = "#PBS"
QUOTED = "FvNW"
"""Options whose values often have blanks."""
BLANKS = "put values with blanks (-F, -v, -N, -W) into #PBS lines"
_OPTION = re.compile(r"-[EfhInVxXz]*([aAbcCdDeFijJkKlLmMNopPqrStTuvwW])(.*)", re.DOTALL)
_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""")
_LIST = re.compile(r"\0*([,=])\0*(?!-)")


class Option(NamedTuple):
    letter: str
    value: str
    word: int
    """The number of the word that the value ends."""


class Line(NamedTuple):
    """A line of the script that qsub takes for options; it may go on behind a backslash."""

    first: int
    end: int
    prefix: str
    text: str
    """What is behind the prefix."""


Queues = Tuple[Dict[str, str], str]
"""Properties by queue, and the queue of jobs that name none."""


def parse_queues(text: str) -> Queues:
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    rows = [words for words in lines if len(words) > 1]
    chosen = [words[0] for words in rows if words[2:] == ["default"]]
    return {words[0]: words[1] for words in rows}, chosen[0] if chosen else ""


def with_property(spec: str, word: str) -> str:
    """Of `2:ppn=4+1:big#excl`, with the property in each part."""
    nodes, mark, how = spec.partition("#")
    parts = [part if word in part.split(":") else f"{part}:{word}" for part in nodes.split("+")]
    return "+".join(parts) + mark + how


def asked_nodes(resources: str) -> List[str]:
    """Of a value of -l. qsub itself refuses `nodes` without a value."""
    items = [item.partition("=") for item in resources.split(",")]
    return [value.strip() for name, _, value in items if name.strip() == "nodes" and value.strip()]


def with_nodes(resources: str, word: str) -> str:
    """A value of -l, with the property in its nodes."""
    new = []
    for item in resources.split(","):
        nodes = asked_nodes(item)
        new.append(f"nodes={with_property(nodes[0], word)}" if nodes else item)
    return ",".join(new)


def parse_options(words: List[str]) -> List[Option]:
    """What is none of qsub's options is passed over: qsub says so itself."""
    found, awaits = [], ""
    for number, word in enumerate(words):
        option = None if awaits else _OPTION.match(word)
        if awaits:
            found.append(Option(awaits, word, number))
            awaits = ""
        elif option and option.group(2):
            found.append(Option(option.group(1), option.group(2), number))
        elif option:
            awaits = option.group(1)
    return found


# The script


def directives(lines: List[str], prefix: str) -> List[Line]:
    """None after the first command, and an empty prefix is that of no line: as in qsub."""
    found, number = [], 0
    while number < len(lines):
        first, line = number, lines[number].lstrip()
        number += 1
        if prefix and line.startswith(prefix):
            while line.endswith("\\") and number < len(lines):
                line = line[:-1] + lines[number]
                number += 1
            found.append(Line(first, number, prefix, line[len(prefix) :]))
        elif line and not line.startswith("#") and not lines[first].startswith(":"):
            break
    return found


def words_of(line: str) -> List["re.Match[str]"]:
    """With their quotes; none if qsub refuses the line for these."""
    try:
        shlex.split(line)
    except ValueError:
        return []
    return list(_WORD.finditer(line))


def unquoted(value: str) -> str:
    return " ".join(shlex.split(value))


def quoted(value: str) -> str:
    """As one word, without quotes if it needs none."""
    if not re.search(r"""[\s"'\\]""", value):
        return value
    return '"{}"'.format(re.sub(r'(["\\])', r"\\\1", value))


def values(line: str, letter: str) -> List[str]:
    options = parse_options([word.group() for word in words_of(line)])
    return [unquoted(option.value) for option in options if option.letter == letter]


def changed(line: str, word: str) -> str:
    """With the property of the nodes; all else stays as it stands there."""
    words = words_of(line)
    for option in reversed(parse_options([word.group() for word in words])):
        plain = unquoted(option.value) if option.letter == "l" else ""
        better = with_nodes(plain, word)
        if better != plain:
            end = words[option.word].end()
            better = quoted(better)
            line = line[: end - len(option.value)] + better + line[end:]
    return line


# The command line


def meant(words: List[str]) -> Optional[List[str]]:
    """The command line as qsub has it; None if that cannot be seen."""
    process = os.getppid()
    for _ in range(2):  # /bin/sh, and qsub
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                given = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
            with open(f"/proc/{process}/stat", "rb") as file:
                process = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError):
            return None
        for first in range(1, len(given)):
            if words in (given[first:], passed_on(given[first:])):
                return given[first:]
    return None


def passed_on(given: List[str]) -> List[str]:
    """What becomes of qsub's arguments on their way to us."""
    kept = [word for before, word in zip(["", *given], given) if before != "-C"]
    try:
        return shlex.split(" ".join(kept))
    except ValueError:
        return []


def guessed(words: List[str]) -> List[str]:
    """Without the blanks in lists. What -C said is lost, so any comment may be for qsub."""
    joined = "\0".join("-C#" if word == "-C" else word for word in words)
    return _LIST.sub(r"\1", joined).split("\0")


def filtered(words: List[str], exact: bool, script: str, queues: Queues) -> Tuple[str, str]:
    """The script as it is to be, and why the job is refused, if it is. Pure."""
    properties, default = queues
    options = parse_options(words)
    exact = exact or not any(option.letter in QUOTED for option in options)
    said = {letter: [one.value for one in options if one.letter == letter] for letter in "Clq"}
    lines = script.split("\n")
    ours = directives(lines, (said["C"] or [PREFIX])[-1])
    named = said["q"] or [queue for line in ours for queue in values(line.text, "q")][-1:] or [""]
    nodes = [spec for value in said["l"] for spec in asked_nodes(value)]
    if exact:
        named, nodes = named[-1:], nodes[-1:]
    names = [name.partition("@")[0] or default for name in named]
    wanted = {properties.get(name, "") for name in names}
    if len(wanted) > 1:
        inside = [value for line in ours for value in values(line.text, "l") if asked_nodes(value)]
        why = f"of which queue is this job, {' or '.join(names)}? Name one, and {BLANKS}"
        return script, why if nodes or inside else ""
    word = wanted.pop()
    lacking = [spec for spec in nodes if word and with_property(spec, word) != spec]
    if lacking:
        why = f"jobs of queue {names[-1]} run on nodes with the property {word}: write -l nodes="
        return script, why + with_property(lacking[-1], word) + ("" if exact else f", and {BLANKS}")
    for line in reversed(ours if word else []):
        better = changed(line.text, word)
        if better != line.text:
            lines[line.first : line.end] = [line.prefix + better]
    return "\n".join(lines), ""


def main() -> None:
    script = sys.stdin.buffer.read()
    try:
        with open(QUEUES, encoding="utf-8", errors="replace") as file:
            queues = parse_queues(file.read())
    except (OSError, ValueError) as error:
        say(f"nodes of jobs are not checked: {QUEUES}: {getattr(error, 'strerror', error)}")
        queues = {}, ""
    words = meant(sys.argv[1:])
    exact = words is not None
    words = guessed(sys.argv[1:]) if words is None else words
    text, refused = filtered(words, exact, script.decode("latin-1"), queues)
    if refused:
        say(refused)
        sys.exit(REFUSED)
    sys.stdout.buffer.write(text.encode("latin-1"))


def say(words: str) -> None:
    sys.stderr.write(f"qsub: {words}\n")


if __name__ == "__main__":
    main()
