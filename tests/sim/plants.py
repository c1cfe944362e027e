"""Bugs planted on purpose: decisions without their guard. The weeks must notice each of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from springtide import decide


def _suspend_blindly() -> Any:
    """A suspend deletes without a look at whether the batch system wants its nodes again."""
    return patch.object(decide, "still_wanted", lambda names, batch: {})


PLANTS: Mapping[str, Callable[[], Any]] = {
    "suspend-blindly": _suspend_blindly,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """With this bug, for the length of the block."""
    if name is None:
        yield
        return
    with PLANTS[name]():
        yield
