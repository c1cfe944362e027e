"""Google's own description of its Compute API (packaged with google-api-python-client), and
whether requests and answers are as it says."""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

DOCUMENT = "compute.v1.json"
_OUTPUT = re.compile(r"(Output only\. |\[ ?Output Only)", re.IGNORECASE)


@dataclass(frozen=True)
class Method:
    """A call of the API."""

    id: str
    verb: str
    pattern: re.Pattern[str]
    parameters: dict[str, Any]
    request: str | None
    response: str | None


class Schema:
    """The methods that a server has, and the shapes of what they take and answer."""

    def __init__(self, document: dict[str, Any], known: frozenset[str]) -> None:
        self._schemas: dict[str, Any] = document["schemas"]
        self._everywhere = set(document["parameters"])
        self._methods = [
            _method(f"{resource}.{name}", each)
            for resource, group in document["resources"].items()
            for name, each in group["methods"].items()
            if f"{resource}.{name}" in known
        ]

    def find(self, verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
        """The method of a path below compute/v1/, and what it names."""
        for method in self._methods:
            if method.verb == verb and (found := method.pattern.fullmatch(path)):
                return method, found.groupdict()
        return None

    def wrong_request(self, method: Method, query: dict[str, str], body: Any) -> list[str]:
        problems = [
            f"{method.id} has no parameter {key}"
            for key in query
            if key not in method.parameters and key not in self._everywhere
        ]
        if (body is not None) != (method.request is not None):
            problems.append(f"{method.id}: a body where none belongs, or none where one does")
        elif method.request:
            problems += self._wrong(body, {"$ref": method.request}, method.id, asked=True)
        return problems

    def wrong_answer(self, method: Method, body: Any) -> list[str]:
        shape = {"$ref": method.response}
        return self._wrong(body, shape, method.id, asked=False) if method.response else []

    def _wrong(self, value: Any, shape: dict[str, Any], at: str, *, asked: bool) -> list[str]:
        if "$ref" in shape:
            shape = self._schemas[shape["$ref"]]
        match shape.get("type"):
            case "object":
                return self._wrong_object(value, shape, at, asked=asked)
            case "array" if isinstance(value, list):
                items = shape["items"]
                return [w for one in value for w in self._wrong(one, items, f"{at}[]", asked=asked)]
            case kind:
                return _wrong_value(value, shape, str(kind), at)

    def _wrong_object(
        self, value: Any, shape: dict[str, Any], at: str, *, asked: bool
    ) -> list[str]:
        if not isinstance(value, dict):
            return [f"{at}: {value!r} is no object"]
        problems: list[str] = []
        for key, each in value.items():
            inner = shape.get("properties", {}).get(key) or shape.get("additionalProperties")
            if inner is None:
                problems.append(f"{at} has no {key}")
            elif asked and _OUTPUT.match(inner.get("description", "")):
                problems.append(f"{at}.{key} is for answers only")
            else:
                problems += self._wrong(each, inner, f"{at}.{key}", asked=asked)
        return problems


def _wrong_value(value: Any, shape: dict[str, Any], kind: str, at: str) -> list[str]:
    types: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}
    right = isinstance(value, types.get(kind, ()))
    if kind in ("integer", "number") and isinstance(value, bool):
        right = False
    if not right:
        return [f"{at}: {value!r} is no {kind}"]
    if shape.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?[0-9]+", str(value)):
        return [f"{at}: {value!r} is no number"]
    if "enum" in shape and value not in shape["enum"]:
        return [f"{at}: {value!r} is none of its values"]
    if "pattern" in shape and not re.fullmatch(shape["pattern"], str(value)):
        return [f"{at}: {value!r} is not like {shape['pattern']}"]
    return []


def _method(id: str, raw: dict[str, Any]) -> Method:
    parameters = raw.get("parameters", {})

    def group(found: re.Match[str]) -> str:
        pattern = parameters[found[1]].get("pattern", "[^/]+")
        return f"(?P<{found[1]}>{pattern})"

    return Method(
        id,
        raw["httpMethod"],
        re.compile(re.sub(r"\{(\w+)\}", group, raw["path"])),
        parameters,
        raw.get("request", {}).get("$ref"),
        raw.get("response", {}).get("$ref"),
    )


@cache
def schema(known: frozenset[str]) -> Schema:
    folder = files("googleapiclient.discovery_cache") / "documents"
    return Schema(json.loads((folder / DOCUMENT).read_text()), known)


# --- partial answers -------------------------------------------------------------------


def masked(value: Any, fields: str) -> Any:
    """What `fields` leaves of an answer: names with commas, `/` and `()` for parts, `*` for all."""
    tree, rest = _mask(fields)
    assert not rest, f"{rest!r} is left of the fields {fields!r}"
    return _kept(value, tree)


def _mask(text: str) -> tuple[dict[str, Any], str]:
    tree: dict[str, Any] = {}
    while text:
        found = re.match(r"[\w*]+", text)
        assert found, f"no field at {text!r}"
        inner, text = _below(text[found.end() :])
        tree[found[0]] = _joined(tree.get(found[0], {}), inner)
        if not text.startswith(","):
            break
        text = text[1:]
    return tree, text


def _below(text: str) -> tuple[dict[str, Any], str]:
    if text.startswith("("):
        inner, rest = _mask(text[1:])
        assert rest.startswith(")"), f"no ) at {rest!r}"
        return inner, rest[1:]
    if text.startswith("/"):
        found = re.match(r"/([\w*]+)", text)
        assert found, f"no field at {text!r}"
        inner, rest = _below(text[found.end() :])
        return {found[1]: inner}, rest
    return {}, text


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {key: _joined(one.get(key, {}), other.get(key, {})) for key in {**one, **other}}


def _kept(value: Any, tree: dict[str, Any]) -> Any:
    if not tree:
        return value
    if isinstance(value, list):
        return [_kept(each, tree) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: (each, tree.get(key, tree.get("*"))) for key, each in value.items()}
    return {key: _kept(each, inner) for key, (each, inner) in kept.items() if inner is not None}
