"""`tide why`: the story of a job or a node, in plain words."""

import re
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import quote

import typer

from springtide.cli import output
from springtide.cli.client import Json
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.parameters import hosts
from springtide.cli.place import Choice, ClusterOption, StateOption, client

LABEL = 6
"""Columns of what a line is about."""
_JOB = re.compile(r"[0-9]+(?:\[[0-9]*\])?(?:\.[A-Za-z0-9.-]+)?")
"""As batch systems write ids; brackets in one are no list of names."""


def why(
    what: Annotated[str, typer.Argument(metavar="JOB|NODE", help="A job's id, or a node.")],
    all: Annotated[bool, typer.Option("--all", "-a", help="All that happened to it.")] = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """Why a job waits, or a node is as it is.

    How it stands, how that came, what happens next, and what you can do.
    """
    one = _one(what)
    answer = client(Choice(cluster, state)).get(f"/why/{quote(one, safe='')}", all=int(all) or None)
    if json:
        output.put_json(answer)
        return
    for problem in answer["problems"]:
        output.note(f"tide: incomplete: {output.printable(problem)}")
    output.put("\n".join(render_story(answer)))


def _one(text: str) -> str:
    if _JOB.fullmatch(text):
        return text
    if not text.strip():
        raise Complaint("name a job or a node", Exit.WRONG)
    names = hosts(text)
    if len(names) != 1:
        raise Complaint(f"name one job or one node; {text} are {len(names)}", Exit.WRONG)
    return names[0]


def render_story(answer: Json) -> Iterator[str]:
    """A line for each thing that is told; what it is about stands before the first of its kind."""
    yield from _lines("now", [answer["now"]])
    yield from _lines(
        "past", [f"{output.render_time(p['at'])}  {p['text']}" for p in answer["past"]]
    )
    yield from _lines("next", [answer["next"]])
    yield from _lines("do", [answer["do"]])


def _lines(label: str, texts: list[str]) -> Iterator[str]:
    for index, text in enumerate(text for text in texts if text):
        yield f"{'' if index else label:{LABEL}}{output.printable(text)}"
