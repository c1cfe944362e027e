"""A cluster file with other sizes and images, and otherwise as it was.

Each tests/cases/rewrite/NAME.yaml starts with a comment that says what is asked for, as in
`# resize general=6`. NAME.after.yaml is what the file is then, or NAME.txt what a person is told.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide import nodeset, spec
from springtide.spec.growth import NoNumber, grown, invented

CASES = Path(__file__).parents[1] / "cases" / "rewrite"
BEFORE = sorted(path for path in CASES.glob("*.yaml") if not path.name.endswith(".after.yaml"))
FILE = """\
cluster: blue
groups:
  general:
    nodes: blue-[000-003]
    min: 1
  quick: {nodes: "q[1-2]"}
"""


def asked(text: str, name: str) -> str:
    """What the text is after what its first line asks for."""
    what, *arguments = text.lstrip("\ufeff# ").splitlines()[0].split()
    values = dict(argument.split("=") for argument in arguments)
    if what == "resize":
        return spec.resized(text, name, {group: int(size) for group, size in values.items()})
    return spec.reimaged(text, name, values)


def answer(path: Path) -> tuple[str, bytes]:
    try:
        return ".after.yaml", asked(path.read_bytes().decode(), path.name).encode()
    except spec.SpecError as error:
        return ".txt", f"{error}\n".encode()


# Cases


@pytest.mark.parametrize("case", BEFORE, ids=lambda case: case.stem)
def test_a_file_is_changed_in_one_place_or_not_at_all(case: Path) -> None:
    suffix, content = answer(case)
    assert content.decode() == case.with_suffix(suffix).read_bytes().decode()


def test_no_expected_answer_has_lost_its_file() -> None:
    expected = {path.name.split(".")[0] for path in CASES.iterdir()}
    assert expected == {case.stem for case in BEFORE}
    assert len(list(CASES.iterdir())) == 2 * len(BEFORE)


def test_an_unknown_group_is_told_apart_from_a_wrong_file() -> None:
    with pytest.raises(spec.UnknownGroup, match="did you mean 'general'"):
        spec.resized(FILE, "c.yaml", {"genreal": 3})
    with pytest.raises(spec.UnknownGroup, match="there are no groups"):
        spec.reimaged("cluster: blue", "c.yaml", {"general": "host"})


def test_nothing_asked_for_changes_nothing() -> None:
    assert spec.resized(FILE, "c.yaml", {}) == FILE
    assert spec.resized(FILE, "c.yaml", {"general": 1, "quick": 0}) == FILE
    assert spec.reimaged(FILE, "c.yaml", {"general": "host"}) == FILE


def test_a_file_can_be_resized_up_and_down_again() -> None:
    up = spec.resized(FILE, "c.yaml", {"general": 4, "quick": 2})
    assert spec.parse(up, "c.yaml").always_up == tuple(nodeset.expand("blue-[000-003],q[1-2]"))
    down = spec.resized(up, "c.yaml", {"general": 1})
    assert down == FILE.replace('"q[1-2]"', '"q[1-2]", min: 2')


def test_a_file_from_windows_stays_one() -> None:
    text = "\ufeff" + FILE.rstrip().replace("\n", "\r\n")
    after = spec.resized(text, "c.yaml", {"general": 5})
    expected = text.replace("min: 1", "min: 5").replace("000-003", "000-004")
    assert after.encode() == expected.encode()
    bare = text.replace("    min: 1\r\n", "")
    assert spec.resized(bare, "c.yaml", {"general": 1}) == text


# Names that go on


@pytest.mark.parametrize(
    ("before", "size", "after"),
    [
        ("blue-[000-003]", 6, "blue-[000-005]"),
        ("n[8-9]", 4, "n[8-11]"),
        ("n[08-09]", 4, "n[08-11]"),
        ("n[98-99]", 3, "n[98-100]"),
        ("n[00-99]", 101, "n[00-99,100]"),
        ("rack[01-02]n[1-6]", 13, "rack[01-02]n[1-7]"),
        ("rack[01-02]n[1-6]", 14, "rack[01-02]n[1-7]"),
        ("n1", 3, "n[1-3]"),
        ("n1,n2", 4, "n1,n[2-4]"),
        ("a[1-2],x007", 4, "a[1-2],x[007-008]"),
        ("n[1-2]-ib", 3, "n[1-3]-ib"),
        ("r[1-2]n7", 3, "r[1-3]n7"),
        ("n[4-6,1-2]", 7, "n[4-6,1-3,7]"),
        ("n[4-6], n[1-2]", 7, "n[4-6], n[1-3,7]"),
        ("[1-2]", 3, "[1-3]"),
    ],
)
def test_names_go_on_from_the_last_one(before: str, size: int, after: str) -> None:
    assert grown(before, size) == after


@pytest.mark.parametrize("text", ["lab", "n[1-2],lab", "n1-ib", f"n{'9' * 18}"])
def test_a_name_without_a_number_cannot_go_on(text: str) -> None:
    with pytest.raises(NoNumber):
        grown(text, 9)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["a[1-3]", "a[04-05]", "b[1,5]", "r[1-2]n[1-2]", "x7", "y[01-02]z"]),
        min_size=1,
        unique=True,
    ).map(",".join),
    st.integers(1, 60),
)
def test_a_host_list_that_grows_has_all_its_names_and_enough_new_ones(text: str, more: int) -> None:
    names = nodeset.expand(text)
    after = nodeset.expand(grown(text, len(names) + more))
    assert len(set(after)) == len(after)
    assert set(names) <= set(after)
    assert len(names) + more <= len(after) <= len(names) + more + 1


def test_first_names_are_free() -> None:
    assert invented("blue", "gpu", 3, ()) == "blue-gpu-[1-3]"
    assert invented("blue", "gpu", 1, ()) == "blue-gpu-1"
    assert invented("blue", "gpu", 3, ("blue-gpu-3", "blue-gpu-2-1")) == "blue-gpu-3-[1-3]"


# Any file


@dataclass(frozen=True)
class Chunk:
    """A group as it stands in a file."""

    key: str
    lines: tuple[str, ...]


COMMENTS = st.sampled_from(["", "  # two, or 3", " # nodes: x[1-2]"])
KEYS = st.permutations(["nodes", "min", "image", "zones"]).flatmap(
    lambda keys: st.integers(0, 4).map(lambda count: keys[:count])
)


@st.composite
def chunks(draw: st.DrawFn, key: str) -> Chunk:
    quote = draw(st.sampled_from(["", "'", '"']))
    values = {
        "nodes": draw(st.sampled_from([f"{key}[1-3]", f"{key}-07", f"{key}[1-2],{key}x[08-10]"])),
        "min": draw(st.sampled_from(["0", "1", "~", ""])),
        "image": draw(st.sampled_from(["host", "base"])),
    }
    values |= {name: f"{quote}{value}{quote}" for name, value in values.items() if value not in "~"}
    values |= {"zones": "[1, 2]"}
    if "nodes" not in (keys := draw(KEYS)):
        values["min"] = "0"
    if draw(st.booleans()):
        values["nodes"] = values["nodes"] if quote else f'"{values["nodes"]}"'
        inside = ", ".join(f"{name}: {values[name]}" for name in keys)
        return Chunk(key, (f"  {key}: {{{inside}}}{draw(COMMENTS)}",))
    lines = [f"    {name}: {values[name]}{draw(COMMENTS)}" for name in keys]
    above = [f"    # min of {key}"] * draw(st.integers(0, 1))
    return Chunk(key, (f"  {key}:{draw(COMMENTS)}", *above, *lines))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str, str, str]:
    """What stands before a group, the group, what stands behind it, and its name."""
    groups = [draw(chunks(key)) for key in draw(st.sampled_from([["a"], ["a", "b"], ["c", "a"]]))]
    chosen = draw(st.sampled_from(groups))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    at = groups.index(chosen)
    head = ["cluster: blue", "images: {base: {path: /srv/base}}", "groups:  # min: 3"]
    head += [line for group in groups[:at] for line in group.lines]
    tail = [line for group in groups[at + 1 :] for line in group.lines]
    tail += draw(st.sampled_from([[], ["timing: {idle: 5m}"], ["", "# the end"]]))
    parts = [end.join(part) + end for part in (head, chosen.lines, tail) if part]
    text = "".join(parts)
    if draw(st.booleans()):
        text = text.removesuffix(end)
    before = draw(st.sampled_from(["", "\ufeff"])) + parts[0]
    behind = text[len(parts[0]) + len(parts[1]) :]
    group = text[len(parts[0]) : len(text) - len(behind)]
    return before, group, behind, chosen.key


def comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


@settings(deadline=None, max_examples=300)
@given(files(), st.integers(0, 12))
def test_a_resize_keeps_every_other_line_and_every_comment(
    file: tuple[str, str, str, str], size: int
) -> None:
    before, group, behind, key = file
    text = spec.resized(before + group + behind, "c.yaml", {key: size})
    assert text.startswith(before)
    assert text.endswith(behind)
    changed = text[len(before) : len(text) - len(behind)]
    assert comments(changed) == comments(group)
    assert ("\r" in changed) == ("\r" in text and "\n" in changed)
    assert spec.parse(text, "c.yaml").groups[key].min == size
    assert spec.resized(text, "c.yaml", {key: size}) == text


@settings(deadline=None, max_examples=150)
@given(files(), st.sampled_from(["host", "base"]))
def test_another_image_keeps_every_other_line_and_every_comment(
    file: tuple[str, str, str, str], image: str
) -> None:
    before, group, behind, key = file
    text = spec.reimaged(before + group + behind, "c.yaml", {key: image})
    assert text.startswith(before)
    assert text.endswith(behind)
    assert comments(text[len(before) : len(text) - len(behind)]) == comments(group)
    assert spec.parse(text, "c.yaml").image_of(key) == image


@settings(deadline=None)
@given(st.data())
def test_a_damaged_file_is_changed_or_refused_but_never_means_something_else(
    data: st.DataObject,
) -> None:
    text = (
        (CASES / data.draw(st.sampled_from([path.name for path in BEFORE]))).read_bytes().decode()
    )
    lines = text.splitlines(keepends=True)
    at = data.draw(st.integers(1, len(lines) - 1))
    lines[at] = lines[at].replace(*data.draw(st.tuples(st.sampled_from(":[]{}-, 2\n"), st.text())))
    assert all(len(problem.splitlines()) == 1 for problem in told("".join(lines)))


def told(text: str) -> list[str]:
    """What is said against what a text asks for; a text that is changed is checked by itself."""
    try:
        asked(text, "c.yaml")
    except spec.SpecError as error:
        return [str(problem) for problem in error.problems]
    return []
