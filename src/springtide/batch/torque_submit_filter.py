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
import sys
from typing import Dict, List, Optional, Tuple

QUEUES = "/etc/springtide/torque-queues"
REFUSED = 255
OPTIONS = "a:A:b:c:C:d:D:e:EfF:hIj:J:k:K:l:L:m:M:nN:o:p:P:q:r:S:t:T:u:v:Vw:W:xXz"
PREFIX = "#PBS"
_NODES = re.compile(r"(-l\s*(?:[^\s,]+,)*nodes=)([^\s,]+)")
_QUEUE = re.compile(r"(?:^|\s)-q\s*(\S+)")

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


def asked_nodes(options: List[Tuple[str, str]]) -> Optional[str]:
    """What the command line asks for; the last word counts."""
    listed = [value for option, value in options if option == "-l"]
    items = [item for value in listed for item in value.split(",")]
    found = [item.partition("=")[2] for item in items if item.startswith("nodes=")]
    return found[-1] if found else None


def directives(script: str, prefix: str) -> List[int]:
    """The numbers of the lines that qsub takes for options: none after the first command."""
    found = []
    for number, line in enumerate(script.split("\n")):
        if line.startswith(prefix):
            found.append(number)
        elif line.strip() and not line.startswith(("#", ":")):
            break
    return found


def filtered(arguments: List[str], script: str, queues: Queues) -> Tuple[str, str]:
    """The script as it is to be, and why the job is refused, if it is. Pure."""
    properties, default = queues
    options, _ = getopt.gnu_getopt(arguments, OPTIONS)
    values = dict(options)
    lines = script.split("\n")
    ours = directives(script, values.get("-C", PREFIX))
    named = [found for number in ours for found in _QUEUE.findall(lines[number])]
    queue = (values.get("-q") or (named[-1] if named else "") or default).partition("@")[0]
    word = properties.get(queue)
    if not word:
        return script, ""
    told = asked_nodes(options)
    if told is not None and with_property(told, word) != told:
        better = with_property(told, word)
        why = f"jobs of queue {queue} run on nodes with the property {word}: write -l nodes="
        return script, why + better
    for number in ours:
        lines[number] = _NODES.sub(
            lambda found: found.group(1) + with_property(found.group(2), word or ""), lines[number]
        )
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
