#!/usr/bin/python3 -I
"""A submit filter for Torque's qsub: jobs that ask for nodes get those of their queue.

pbs_sched gives a job that says `-l nodes=2` any two nodes, whatever its queue asks for by default.
qsub has this program read each job script on stdin, takes what it writes to stdout instead, and
refuses the job if it ends with 255. It adds the property of the queue's nodes to `nodes=` of #PBS
lines. What stands on the command line goes before these lines and cannot be changed here, so a job
that lacks the property there is refused, with the words to write.

To install it, on every machine with qsub:

    install -m 755 torque_submit_filter.py /usr/local/sbin/torque_submitfilter
    mkdir -p /etc/springtide
    printf '%s\\n' 'cloud cloud' 'batch house default' >/etc/springtide/torque-queues

Each line of that file has a queue and the property of its nodes; `default` marks the queue of jobs
that name none. Jobs of other queues, and those that ask for no nodes, pass as they are. Standard
library only, for any Python 3: it runs where Springtide is not installed.
"""

import getopt
import re
import shlex
import sys
from typing import Dict, List, Optional, Tuple

QUEUES = "/etc/springtide/torque-queues"
REFUSED = 255
OPTIONS = "a:A:b:c:C:d:D:e:EfF:hIj:J:k:K:l:L:m:M:nN:o:p:P:q:r:S:t:T:u:v:Vw:W:xXz"
PREFIX = "#PBS"
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|\\.|[^\s"'\\])+""")

Options = List[Tuple[str, str]]
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


def asked_nodes(options: Options) -> Optional[str]:
    """What the command line asks for; the last word counts."""
    listed = [value for option, value in options if option == "-l"]
    items = [item.partition("=") for value in listed for item in value.split(",")]
    found = [value.strip() for name, _, value in items if name.strip() == "nodes"]
    return found[-1] if found else None


def resources(value: str, word: str) -> str:
    """A value of -l, with the property in its nodes."""
    return ",".join(
        f"nodes={with_property(item.partition('=')[2].strip(), word)}"
        if item.partition("=")[0].strip() == "nodes"
        else item
        for item in value.split(",")
    )


def directives(lines: List[str], prefix: str) -> List[Tuple[int, int, str]]:
    """Where the lines are that qsub takes for options, and these: none after the first command. As
    in qsub, they go on behind a backslash, and an empty prefix is that of no line."""
    found, number = [], 0
    while number < len(lines):
        first, line = number, lines[number].lstrip()
        number += 1
        if prefix and line.startswith(prefix):
            while line.endswith("\\") and number < len(lines):
                line = line[:-1] + lines[number]
                number += 1
            found.append((first, number, line[len(prefix) :]))
        elif line and not line.startswith("#") and not lines[first].startswith(":"):
            break
    return found


def parse_directive(text: str) -> Tuple[Options, List[str]]:
    """Options with their values as they stand there, quotes and all: so qsub passes them on."""
    try:
        shlex.split(text)
        return getopt.gnu_getopt(_WORD.findall(text), OPTIONS)
    except (getopt.GetoptError, ValueError):  # qsub says so itself
        return [], []


def unquoted(value: str) -> str:
    return " ".join(shlex.split(value))


def rendered(prefix: str, options: Options, rest: List[str]) -> str:
    words = [word for option in options for word in option if word]
    return " ".join([prefix, *words, *rest])


def changed(options: Options, word: str) -> Options:
    """With the property of the nodes; what has it already stays as it stands there."""
    new = []
    for option, value in options:
        plain = unquoted(value) if option == "-l" else ""
        better = resources(plain, word)
        if better != plain:
            value = f'"{better}"' if " " in better else better
        new.append((option, value))
    return new


def filtered(arguments: List[str], script: str, queues: Queues) -> Tuple[str, str]:
    """The script as it is to be, and why the job is refused, if it is. Pure."""
    properties, default = queues
    options, _ = getopt.gnu_getopt(arguments, OPTIONS)
    values = dict(options)
    lines, prefix = script.split("\n"), values.get("-C", PREFIX)
    ours = [(first, end, *parse_directive(text)) for first, end, text in directives(lines, prefix)]
    named = [unquoted(value) for *_, some, _ in ours for option, value in some if option == "-q"]
    queue = (values.get("-q") or (named[-1] if named else "") or default).partition("@")[0]
    word = properties.get(queue)
    if not word:
        return script, ""
    told = asked_nodes(options)
    if told is not None and with_property(told, word) != told:
        better = with_property(told, word)
        why = f"jobs of queue {queue} run on nodes with the property {word}: write -l nodes="
        return script, why + better
    for first, end, some, rest in reversed(ours):
        new = changed(some, word)
        if new != some:
            lines[first:end] = [rendered(prefix, new, rest)]
    return "\n".join(lines), ""


def main() -> None:
    script = sys.stdin.buffer.read()
    try:
        with open(QUEUES, encoding="utf-8") as file:  # noqa: PTH123 - for any Python 3
            queues = parse_queues(file.read())
        text, refused = filtered(sys.argv[1:], script.decode("latin-1"), queues)
    except OSError as error:
        say(f"nodes of jobs are not checked: {QUEUES}: {error.strerror}")
        text, refused = script.decode("latin-1"), ""
    except getopt.GetoptError:  # qsub says so itself
        text, refused = script.decode("latin-1"), ""
    if refused:
        say(refused)
        sys.exit(REFUSED)
    sys.stdout.buffer.write(text.encode("latin-1"))


def say(words: str) -> None:
    sys.stderr.write(f"qsub: {words}\n")


if __name__ == "__main__":
    main()
