"""Answers that cannot be read. What owners write of their jobs must not hide the jobs of others.

Pure; called by adapters that read.
"""

import re
from collections.abc import Callable
from typing import TypeVar
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from springtide.ports import OURS

T = TypeVar("T")

MOST_TOLD = 200
"""So much of what is wrong is told: a request may be as long as a command."""
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""What no XML may have; batch systems print it all the same, if somebody put it into a job."""


class UnreadableError(ValueError):
    """A batch system printed something that is not what was asked for."""


def parsed_xml(text: str, of: str, *tags: str) -> Element:
    """What the program `of` printed, with one of these tags."""
    text = _NOT_XML.sub("?", text)
    if "<!DOCTYPE" in text:
        raise UnreadableError(f"{of} printed a declaration, which it never does")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - without declarations nothing expands
    except ElementTree.ParseError as error:
        raise UnreadableError(f"{of} printed no valid XML: {error}") from None
    if root.tag not in tags:
        raise UnreadableError(f"{of} printed <{root.tag}> instead of <{tags[0]}>")
    return root


def told(read: Callable[[], T], otherwise: T) -> tuple[T, str]:
    """What was asked for, or something in its place and the reason for it.

    Sizes are bounded where they are read; what slips through is a number that Python refuses.
    """
    try:
        return read(), ""
    except (ValueError, ArithmeticError, RecursionError) as error:
        return otherwise, f"{OURS} cannot read what it asks for: {str(error)[:MOST_TOLD]}"
