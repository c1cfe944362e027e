"""What a module must have to make nodes for us, found in its text; pure."""

import re

from springtide.ports import Check

PAGE = "docs/providers/terraform.md"


def decide_missing(text: str, resource: str) -> list[Check]:
    """A failed check for each part that is not declared."""
    wanted = {
        "variable `nodes`": _declared("variable", "nodes"),
        "output `nodes`": _declared("output", "nodes"),
        resource: _block(resource),
    }
    return [
        Check("module", False, f"it declares no {name}", f"add it: {PAGE} shows how")
        for name, pattern in wanted.items()
        if not re.search(pattern, text, re.MULTILINE)
    ]


def _block(resource: str) -> str:
    first, *rest = resource.split(".")
    if first == "module":
        return _declared("module", rest[0])
    return _declared("resource", first, rest[0])


def _declared(*words: str) -> str:
    kind, *labels = words
    return rf"^\s*{kind}\s+" + r"\s+".join(rf'"{re.escape(label)}"' for label in labels)
