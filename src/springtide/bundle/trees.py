"""Takes secrets out of data that was parsed, by what they are called. Pure."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from springtide.bundle.lines import MASK, mask_lines
from springtide.bundle.names import is_flag, is_secret

LONGEST = 2000
"""Letters of a text; a longer one is cut."""
_MASK = MASK.decode()


def mask_json(content: bytes, found: Counter[str]) -> bytes:
    """ValueError if it is none."""
    return dumped(_masked(json.loads(content), found))


def mask_json_lines(content: bytes, found: Counter[str]) -> bytes:
    rows = (_masked(json.loads(line), found) for line in content.splitlines() if line.strip())
    return b"".join(dumped(row, indent=None) for row in rows)


def dumped(value: Any, indent: int | None = 1) -> bytes:
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")


def secret_values(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """What is called a secret, with all below it."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from secret_values(one, str(key) if is_secret(str(key)) else name)
    elif isinstance(value, list):
        for before, one in zip(["", *value], value, strict=False):
            flagged = isinstance(before, str) and is_flag(before)
            yield from secret_values(one, str(before) if flagged else name)
    elif name and value is not None and not isinstance(value, bool):
        yield name, str(value)


def _masked(value: Any, found: Counter[str]) -> Any:
    if isinstance(value, dict):
        return {
            _text(str(key), found): _hidden(one, str(key), found)
            if is_secret(str(key)) or (key == "value" and is_secret(str(value.get("name"))))
            else _masked(one, found)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [
            _hidden(one, before, found)
            if isinstance(before, str) and is_flag(before)
            else _masked(one, found)
            for before, one in zip(["", *value], value, strict=False)
        ]
    return _text(value, found) if isinstance(value, str) else value


def _hidden(value: Any, name: str, found: Counter[str]) -> Any:
    """All that it holds; what says nothing stays."""
    if isinstance(value, dict):
        return {_text(str(key), found): _hidden(one, name, found) for key, one in value.items()}
    if isinstance(value, list):
        return [_hidden(one, name, found) for one in value]
    if value is None or isinstance(value, bool) or value in ("", _MASK):
        return value
    found[f"the value of {name.lstrip('-')}"] += 1
    return _MASK


def _text(text: str, found: Counter[str]) -> str:
    """A text may be data itself, or many lines."""
    if text[:1] in ("{", "["):
        try:
            inner = json.loads(text)
        except ValueError:
            pass
        else:
            text = json.dumps(_masked(inner, found), ensure_ascii=False)
            return text if len(text) <= LONGEST else f"{text[:LONGEST]} <cut>"
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]} <cut>"
    return mask_lines(short.encode(errors="backslashreplace"), found).decode(errors="replace")
