"""Prints the tables of the docs from the code, in place; run by `make docs`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->` of a Markdown file; TABLES has
the names. With --check nothing is written.
Exit codes: 0 done, 1 a table was stale (only with --check), 2 wrong usage, marker or source.
"""

import argparse
import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from typer.main import get_command

from springtide import decide, model, ports, triage
from springtide.cli.endings import Exit
from springtide.cli.main import app
from springtide.cli.plan import render_steps
from springtide.spec import schema
from springtide.store.sqlite import connect, migrations

TOP = Path(__file__).resolve().parent.parent
REGION = re.compile(r"(<!-- table: (?P<name>[^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

Rows = Iterable[Sequence[str]]
Json = Mapping[str, Any]


class DocsError(Exception):
    """A marker names no table, or the code no longer looks as it is read here."""


def table(columns: Sequence[str], rows: Rows) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def joined(text: str | None) -> str:
    return " ".join((text or "").split())


# --- the model ---------------------------------------------------------------------------

_EDGE = re.compile(r"\s+_S\.(\w+),  # (.+)")
_FROM = re.compile(r"\s+_S\.(\w+): frozenset\(")


def plans() -> str:
    return table(["step", *(kind.value for kind in model.PLANS)], render_steps())


def states() -> str:
    """Every edge with the comment beside it."""
    edges, start = [], ""
    for line in inspect.getsource(model.nodes).splitlines():
        if found := _FROM.fullmatch(line):
            start = found[1]
        elif found := _EDGE.fullmatch(line):
            edges.append((model.NodeState[start], model.NodeState[found[1]], found[2]))
    known = {(start, end) for start, ends in model.TRANSITIONS.items() for end in ends}
    if {edge[:2] for edge in edges} != known:
        raise DocsError("an edge of model.TRANSITIONS has no comment beside it")
    return table(["from", "to", "when"], ([code(a), code(b), why] for a, b, why in edges))


def troubles() -> str:
    """The rules of `triage` in their order; "any" is whatever the rules before left over."""
    columns = ["", "record", "batch system", "drained by", "cloud", "whose", "after", "then", "why"]
    return table(columns, ([code(str(n)), *_rule(rule)] for n, rule in enumerate(triage.RULES, 1)))


def _rule(rule: triage.Rule) -> list[str]:
    views: list[tuple[Iterable[StrEnum], type[StrEnum]]] = [
        (rule.record, model.NodeState),
        (rule.batch, triage.Batch),
        (rule.drained, triage.Drained),
        (rule.cloud, triage.Cloud),
    ]
    return [*(_set(*view) for view in views), rule.owner, rule.after, rule.repair, rule.why]


def _set(members: Iterable[StrEnum], kind: type[StrEnum]) -> str:
    """In the order of the code; most of them are told by what is missing."""
    there = set(members)
    found, missing = ([m.value for m in kind if (m in there) == i] for i in (True, False))
    if not missing:
        return "any"
    return f"not {', '.join(missing)}" if len(missing) <= 2 < len(found) else ", ".join(found)


def errors() -> str:
    kinds: list[type[ports.CloudError]] = [ports.Throttled, *ports.CloudError.__subclasses__()]
    rows = [
        [code(each.__name__), joined(each.__doc__), decide.explain(each()).rstrip(": ")]
        for each in kinds
    ]
    return table(["error", "meaning", "a node given back says"], rows)


def layers() -> str:
    """The contract of import-linter, with what each module says of itself."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    found = next(each["layers"] for each in contracts if each["id"] == "layers")
    names = [re.findall(r"springtide\.(\w+)", layer) for layer in found]
    there = [{name: path for name in some if (path := _source(name))} for some in names]
    rows = enumerate(filter(None, there), 1)
    return table(["layer", "modules"], ([str(number), _said(some)] for number, some in rows))


def _said(modules: Mapping[str, Path]) -> str:
    return "<br>".join(f"{code(name)}: {_sentence(path)}" for name, path in modules.items())


def _source(module: str) -> Path | None:
    """A module that a smaller build leaves out has none."""
    package = TOP / "src" / "springtide"
    paths = (package / f"{module}.py", package / module / "__init__.py")
    return next((path for path in paths if path.exists()), None)


def _sentence(path: Path) -> str:
    text = joined(ast.get_docstring(ast.parse(path.read_text())))
    first = re.match(r".+?\.(?= |$)", text)
    if first is None:
        raise DocsError(f"{path} has no docstring")
    return first[0]


def store() -> str:
    """As SQLite keeps it: the text of a table with its comments."""
    about = migrations()[0][1].partition("\n")[0].removeprefix("-- ")
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    rows = [[code(name), _columns(sql)] for name, sql in connect(":memory:").execute(query)]
    return f"{about}\n\n{table(['table', 'columns'], rows)}"


def _columns(sql: str) -> str:
    found = re.findall(r"^    (\w+) +[A-Z][^-\n]*(?:-- (.+))?$", sql, re.MULTILINE)
    return ", ".join(code(name) + (f" ({comment})" if comment else "") for name, comment in found)


# --- cluster.yaml ------------------------------------------------------------------------

MEANINGS = {
    "cluster": "Its name; everything that is made for it is tagged with it.",
    "state": "Where its record, its logs and Slurm's files are kept.",
    "protected": "Whether destroying, stopping, killing and shrinking it need its name.",
}
"""Of the keys for which the schema has none."""
DEFAULTS = {"state": "`/var/lib/springtide/CLUSTER`", "batch": "kind `slurm`"}
DEFAULTS["provider"] = "kind `containers`"
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1), ("ms", 0.001))
_FORMATS = {"path": "absolute path", "ipv4network": "IPv4 network"}
_TYPES = {"boolean": "`true` or `false`", "array": "list", "object": "mapping", "number": "number"}
_EXAMPLES = {"time": "ms|s|m|h|d", "size": "[MGT]"}
"""What the patterns of these types have in them."""


def keys() -> str:
    """A section for the file, and one for each of its parts; what is for tests comes last."""
    whole = schema()
    parts = list(_parts(whole))
    parts.sort(key=lambda part: "for tests" in part[1].get("description", ""))
    top = _section("The file", {**whole, "description": "One mapping."}, whole["$defs"])
    return "\n".join([top, *(_section(title, part, whole["$defs"]) for title, part in parts)])


def _parts(whole: Json) -> Iterator[tuple[str, Json]]:
    """Those of the file first, then what is below them; each once."""
    told: list[str] = []
    waiting = [(key, value) for key, value in whole["properties"].items()]
    while waiting:
        key, value = waiting.pop(0)
        for part in _targets(value, whole["$defs"]):
            if part["title"] in told:
                continue
            told.append(part["title"])
            name = f"{key}.NAME" if "additionalProperties" in value else key
            kind = part["properties"].get("kind", {}).get("const")
            each = ", each" if "items" in value else ""
            yield f"`{name}`{each}" + (f", kind `{kind}`" if kind else ""), part
            waiting += [(f"{name}.{one}", inner) for one, inner in part["properties"].items()]


def _targets(value: Json, defs: Json) -> list[Json]:
    """The parts that a key leads to: none, one, or one for each kind."""
    inner = value.get("additionalProperties") or value.get("items")
    choices = value.get("oneOf") or value.get("anyOf")
    choices = choices or [inner if isinstance(inner, dict) else value]
    return [defs[each["$ref"].rpartition("/")[2]] for each in choices if "$ref" in each]


def _section(title: str, part: Json, defs: Json) -> str:
    rows = [
        [code(key), _type(value), _default(key, value, part), _meaning(key, value, defs)]
        for key, value in sorted(part["properties"].items(), key=lambda item: item[0] != "kind")
    ]
    columns = ["key", "type", "default", "meaning"]
    return f"### {title}\n\n{joined(part.get('description'))}\n\n{table(columns, rows)}"


def _meaning(key: str, value: Json, defs: Json) -> str:
    about = [part.get("description") for part in _targets(value, defs)]
    text = value.get("description") or next(filter(None, about), None) or MEANINGS.get(key)
    if not text:
        raise DocsError(f"the key {key} has no description in springtide.spec")
    return joined(text)


def _type(value: Json) -> str:
    if "const" in value:
        return code(value["const"])
    if "anyOf" in value:
        return _type(value["anyOf"][0])
    if special := _special(value) or _FORMATS.get(value.get("format", "")):
        return special
    if value.get("type") == "integer":
        most = f" to {value['maximum']}" if "maximum" in value else " up"
        return f"whole number, {value['minimum']}{most}"
    return _TYPES.get(value.get("type", "object"), "text")


def _special(value: Json) -> str | None:
    pattern = value.get("pattern", "")
    return next((name for name, part in _EXAMPLES.items() if part in pattern), None)


def _default(key: str, value: Json, part: Json) -> str:
    if key in part.get("required", ()):
        return "must be there"
    default = value.get("default", {})
    if isinstance(default, dict):
        return DEFAULTS.get(key, "as below" if default else "")
    if _type(value) == "time":
        return code(_duration(default))
    if isinstance(default, list):
        return code(", ".join(default))
    return "" if default is None else code(str(default).lower())


def _duration(seconds: float) -> str:
    if not seconds:
        return "0"
    unit, size = next((unit, size) for unit, size in _UNITS if seconds >= size)
    return f"{seconds / size:g}{unit}"


# --- tide --------------------------------------------------------------------------------

EVERYWHERE = ("cluster", "state")
"""Options that every command has, and that are told once."""


def commands_in_short() -> str:
    found = _commands().items()
    rows = ([code(f"tide {name}"), _help(command)[0]] for name, command in found)
    return table(["command", "what it does"], rows)


def commands() -> str:
    tide = get_command(app)
    head = "Before the command's name; those that choose a cluster also after it:\n"
    everywhere = _options(map(_parameter, tide.params))
    return "\n".join(
        [head, everywhere, *(_command(name, each) for name, each in _commands().items())]
    )


def _commands() -> Mapping[str, Any]:
    """Those below a word are named by both, as they are written."""
    found: dict[str, Any] = {}
    for name, each in getattr(get_command(app), "commands", {}).items():
        below = getattr(each, "commands", {})
        found |= {f"{name} {word}": one for word, one in below.items()} or {name: each}
    return found


def _command(name: str, command: Any) -> str:
    own = [each for each in command.params if each.name not in EVERYWHERE]
    arguments = [each for each in own if each.param_type_name == "argument"]
    usage = " ".join([each.metavar if each.required else f"[{each.metavar}]" for each in arguments])
    about = f"### `{f'tide {name} {usage}'.rstrip()}`\n\n{' '.join(_help(command))}\n"
    return f"{about}\n{_options(map(_parameter, own))}" if own else about


def _help(command: Any) -> list[str]:
    """Its paragraphs."""
    return [joined(paragraph) for paragraph in inspect.cleandoc(command.help).split("\n\n")]


def _parameter(each: Any) -> list[str]:
    option = each.param_type_name == "option"
    names = ", ".join(map(code, each.opts)) if option else code(each.metavar)
    value = f" {each.metavar}" if option and each.metavar else ""
    default = "" if not option or each.is_flag else str(each.default or "")
    return [names + value, each.help, code(default)]


def _options(rows: Rows) -> str:
    return table(["option", "meaning", "default"], rows)


def exit_codes() -> str:
    """The first ones as `tide --help` tells them, the others by their names."""
    told = dict(re.findall(r"(\d) ([a-z ]+)", _help(get_command(app))[-1]))
    rows = ([str(int(each)), told.get(str(int(each)), _words(each.name))] for each in Exit)
    return table(["exit code", "meaning"], rows)


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


# --- in place ----------------------------------------------------------------------------

TABLES: Mapping[str, Callable[[], str]] = {
    "plans": plans,
    "states": states,
    "troubles": troubles,
    "errors": errors,
    "layers": layers,
    "store": store,
    "keys": keys,
    "commands in short": commands_in_short,
    "commands": commands,
    "exit codes": exit_codes,
}


def render(text: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    """The text with its tables as the code has them now."""

    def fresh(found: re.Match[str]) -> str:
        if found["name"] not in tables:
            raise DocsError(f"there is no table {found['name']!r}; known: {', '.join(tables)}")
        return f"{found[1]}\n{tables[found['name']]()}\n{found[3]}"

    if text.count("<!-- table: ") != len(REGION.findall(text)):
        raise DocsError("a table has no `<!-- end -->`")
    return REGION.sub(fresh, text)


def files() -> list[Path]:
    return [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]


def run(check: bool) -> int:
    stale = []
    for path in files():
        before = path.read_text(encoding="utf-8")
        if (after := render(before)) != before:
            stale.append(str(path.relative_to(TOP)))
            if not check:
                path.write_text(after, encoding="utf-8")
    if stale:
        print(f"{'stale, run `make docs`' if check else 'written'}: {', '.join(stale)}")
    elif not check:
        print("all tables are as the code has them")
    return int(check and bool(stale))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Print the tables of the docs from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    arguments = parser.parse_args(argv)
    try:
        return run(arguments.check)
    except (DocsError, OSError) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
