"""Hostlists: tables of what is right and wrong, round trips, and an independent implementation."""

import re
from collections.abc import Sequence
from random import Random

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from springtide import nodeset
from springtide.nodeset import NodeNameError, expand, fold, natural_key, sort, validate_name

EXPANDED = [
    ("a", ["a"]),
    ("a,b", ["a", "b"]),
    (" a ,  b ", ["a", "b"]),
    ("b,a,b", ["b", "a", "b"]),
    ("1-3", ["1-3"]),
    ("n.example.org", ["n.example.org"]),
    ("a[1-3,7,009-011]", ["a1", "a2", "a3", "a7", "a009", "a010", "a011"]),
    ("a[1]", ["a1"]),
    ("a[1-1]", ["a1"]),
    ("a[3,1-2,2]", ["a3", "a1", "a2", "a2"]),
    ("a[9-11]", ["a9", "a10", "a11"]),
    ("a[09-11]", ["a09", "a10", "a11"]),
    ("a[009-11]", ["a009", "a010", "a011"]),
    ("a[99-101]", ["a99", "a100", "a101"]),
    ("a[0-0]", ["a0"]),
    ("a[00-01]", ["a00", "a01"]),
    ("[8-10]", ["8", "9", "10"]),
    ("10.77.1.[2-3]", ["10.77.1.2", "10.77.1.3"]),
    ("a[1-2],b,c[3-4]", ["a1", "a2", "b", "c3", "c4"]),
    ("rack[0-1]u[01-02]", ["rack0u01", "rack0u02", "rack1u01", "rack1u02"]),
    ("a[1-2][3-4]", ["a13", "a14", "a23", "a24"]),
    ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    ("r[0-1]u[1-2]-x", ["r0u1-x", "r0u2-x", "r1u1-x", "r1u2-x"]),
    ("a[1-2]b[1-2]c[1-2]", [f"a{i}b{j}c{k}" for i in (1, 2) for j in (1, 2) for k in (1, 2)]),
    ("a[999999999999999998-999999999999999999]", ["a" + "9" * 17 + d for d in "89"]),
]

REFUSED = [
    ("", "empty host list"),
    ("   ", "empty host list"),
    ("a,,b", "at character 3: a name is missing"),
    (",a", "at character 1: a name is missing"),
    ("a,", "at character 3: a name is missing"),
    ("a, ,b", "at character 3: a name is missing"),
    ("a b", "at character 2: a space"),
    ("a[1, 2]", "at character 5: a space"),
    ("a[ 1-2]", "at character 3: a space"),
    ("a[", "at character 2: this '[' is never closed"),
    ("b,a[1", "at character 4: this '[' is never closed"),
    ("a]", "at character 2: this ']' closes nothing"),
    ("a[1]]", "at character 5: this ']' closes nothing"),
    ("a[[1]]", "at character 3: a '[' inside a bracket"),
    ("a[1,b[2]]", "at character 6: a '[' inside a bracket"),
    ("a[]", "at character 3: a number is missing"),
    ("a[1,,2]", "at character 5: a number is missing"),
    ("a[,1]", "at character 3: a number is missing"),
    ("a[1,]", "at character 5: a number is missing"),
    ("a[x]", "at character 3: 'x' is neither a number nor a range"),
    ("a[1,2,0x3]", "at character 7: '0x3' is neither"),
    ("a[1-]", "at character 3: '1-' is neither"),
    ("a[-1]", "at character 3: '-1' is neither"),
    ("a[1-2-3]", "at character 3: '1-2-3' is neither"),
    ("a[1--2]", "at character 3: '1--2' is neither"),
    ("a[3-1]", "at character 3: the range 3-1 goes down"),
    ("a[5,3-1]", "at character 5: the range 3-1 goes down"),
    ("a[1-010]", "at character 3: the range 1-010 pads only its end"),
    ("a[1234567890123456789]", "at character 3: a number has more than 18 digits"),
    ("a\tb", r"at character 2: '\t' is not allowed"),
    ("a\n", r"at character 2: '\n' is not allowed"),
    ("a\0", r"at character 2: '\x00' is not allowed"),
    ("a[\u0661-2]", r"at character 3: '\u0661' is not allowed"),
    ("nö", r"at character 2: '\xf6' is not allowed"),
    ("a;b", "at character 2: ';' is not allowed"),
    ("$(id)", "at character 1: '$' is not allowed"),
    ("a/b", "at character 2: '/' is not allowed"),
    ("-a", "character 1 is '-'; it must be a letter or a digit"),
    ("x,_[1-2]", "at character 3: '_0' is no node name"),
    ("a..b", "a part is missing at character 3"),
    ("a[1-2].", "a part is missing at character 4"),
    ("a" * 64, "the part at character 1 is longer than 63 characters"),
    ("a" * 62 + "[9-10]", "the part at character 1 is longer than 63 characters"),
    ("a." * 127, "it has 254 characters; at most 253"),
    ("a[1]" * 250_000, "it has 500000 characters; at most 253"),
    ("x" * 1_000_001, "it has 1000001 characters; at most 1000000"),
    ("a[0-1000000]", "it stands for 1000001 names; at most 1000000"),
    ("a[0-999]" * 10, "names; at most 1000000"),
    ("a[0-999999],b", "it stands for 1000001 names"),
    ("a[0-999999999999999999]", "it stands for 1000000000000000000 names"),
]

FOLDED = [
    ([], ""),
    (["a"], "a"),
    (["a", "a"], "a"),
    (["n1"], "n1"),
    (["n1", "n2", "n3"], "n[1-3]"),
    (["n3", "n1", "n2", "n1"], "n[1-3]"),
    (["n1", "n3"], "n[1,3]"),
    (["n10", "n9", "n2"], "n[2,9-10]"),
    (["n09", "n10"], "n[09-10]"),
    (["n9", "n10"], "n[9-10]"),
    (["n1", "n01", "n001"], "n[1,01,001]"),
    (["n9", "n09", "n10"], "n[9,09-10]"),
    (["n099", "n100"], "n[099-100]"),
    (["n09", "n10", "n99", "n100"], "n[09-10,99-100]"),
    ([f"n{i:02}" for i in range(9, 102)], "n[09-99,100-101]"),
    (["n0", *[f"n{i}" for i in range(1, 12)]], "n[0-11]"),
    (["n99", "n100", "n101"], "n[99-101]"),
    (["n98", "n99", "n100", "n001"], "n[001,98-100]"),
    (["n0", "n00"], "n[0,00]"),
    (["8", "9", "10"], "[8-10]"),
    (["n", "n1", "n2"], "n,n[1-2]"),
    (["b2", "b1", "a1", "x"], "a1,b[1-2],x"),
    (["n2-ib", "n10-ib", "n1-ib"], "n1-ib,n2-ib,n10-ib"),
    (["r10u1", "r10u2", "r9u1", "r9u2"], "r[9-10]u[1-2]"),
    (["r1u1", "r1u2", "r2u1"], "r1u[1-2],r2u1"),
    (["a1b1", "a2b1"], "a1b1,a2b1"),
    (["a1b1", "a2b1", "a3b1"], "a[1-3]b[1]"),
    (["r01u1", "r1u1", "r2u1", "r02u1"], "r[1-2,01-02]u[1]"),
    (["n1234567890123456789", "n1"], "n1,n1234567890123456789"),
]


# Small enough that names often collide and join.
HEADS = ["n", "a-", "rack", "x.y", "A_", ""]
MIDDLES = ["", "u", "-", ".z", "_b"]
TAILS = ["", "", "", "-ib", ".org"]


def names() -> SearchStrategy[str]:
    number = st.text(alphabet="0189", max_size=3) | st.integers(0, 120).map(str)
    parts = st.tuples(
        st.sampled_from(HEADS), number, st.sampled_from(MIDDLES), number, st.sampled_from(TAILS)
    )
    return parts.map("".join).filter(is_name)


def is_name(text: str) -> bool:
    try:
        validate_name(text)
    except NodeNameError:
        return False
    return True


@st.composite
def ranges(draw: DrawFn) -> str:
    low = draw(st.integers(0, 120))
    width = draw(st.integers(1, 4))
    high = low + draw(st.integers(0, 12))
    first = f"{low:0{width}d}"
    return draw(st.sampled_from([first, f"{first}-{high:0{width}d}"]))


@st.composite
def texts(
    draw: DrawFn, brackets: int = 2, suffix: bool = True, between: Sequence[str] = ("", "u", "-")
) -> str:
    """Valid host lists of up to three items."""
    return ",".join(draw(st.lists(items(brackets, suffix, between), min_size=1, max_size=3)))


@st.composite
def items(draw: DrawFn, brackets: int, suffix: bool, between: Sequence[str]) -> str:
    item = draw(st.sampled_from(["n", "a-", "rack1-", "x.y"]))
    for _ in range(draw(st.integers(0, brackets))):
        bodies = draw(st.lists(ranges(), min_size=1, max_size=3 if brackets < 3 else 1))
        item += draw(st.sampled_from(between)) + f"[{','.join(bodies)}]"
    if suffix or "[" not in item:
        item += draw(st.sampled_from(["", "x", "-ib", ".org"]))
    return item


def outgrows(text: str) -> bool:
    """Whether a padded range ends in a number of more digits than it started with."""
    ranges = re.findall(r"(0[0-9]+)-([0-9]+)", text)
    return any(len(low) != len(high) for low, high in ranges)


@pytest.mark.parametrize(("text", "expected"), EXPANDED)
def test_text_stands_for_these_names_in_this_order(text: str, expected: list[str]) -> None:
    assert expand(text) == expected


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text[:20] for text, _ in REFUSED])
def test_wrong_text_is_refused_with_its_place_and_reason(text: str, reason: str) -> None:
    with pytest.raises(NodeNameError) as error:
        expand(text)
    assert reason in str(error.value)


@pytest.mark.parametrize("text", [text for text, _ in REFUSED])
def test_messages_are_short_and_printable_whatever_the_text(text: str) -> None:
    with pytest.raises(NodeNameError) as error:
        expand(text)
    message = str(error.value)
    assert len(message) < 400
    assert message.isprintable()


@pytest.mark.parametrize(("given_names", "text"), FOLDED)
def test_names_fold_to_this_text(given_names: list[str], text: str) -> None:
    assert fold(given_names) == text


def test_fold_takes_any_iterable() -> None:
    assert fold(name for name in ("n2", "n1")) == "n[1-2]"


def test_ranges_are_cut_where_slurm_would_refuse_them() -> None:
    assert fold(expand("blue-[00000-99999]")) == "blue-[00000-65535,65536-99999]"


def test_more_heads_than_slurm_takes_are_not_joined() -> None:
    heads = nodeset.MAX_RANGE + 1
    assert "]n[" not in fold(f"r{i}n1" for i in range(heads))
    assert fold(f"r{i}n1" for i in range(heads - 1)) == "r[0-65535]n[1]"


def test_the_limit_counts_names_given_twice() -> None:
    assert len(expand("a[1-2],a[1-2]", limit=4)) == 4
    with pytest.raises(NodeNameError, match="4 names; at most 3"):
        expand("a[1-2],a[1-2]", limit=3)
    with pytest.raises(NodeNameError, match="3 names; at most 2"):
        expand("a,b,c", limit=2)


@pytest.mark.parametrize(
    "name", ["", "a,b", "a[1]", "a b", "-a", "a..b", "a.", ".a", "a\n", "n\u0661", "a" * 64]
)
def test_a_wrong_name_is_neither_valid_nor_folded(name: str) -> None:
    with pytest.raises(NodeNameError, match="node name"):
        validate_name(name)
    with pytest.raises(NodeNameError, match="node name"):
        fold(["a1", name, name + "1"] if name else [name, "1"])


@pytest.mark.parametrize("name", ["a", "7", "a_b", "a-", "n1.x.org", "a" * 63, "a." * 126 + "a"])
def test_a_good_name_is_returned(name: str) -> None:
    assert validate_name(name) == name
    assert expand(fold([name])) == [name]


def test_names_sort_by_their_numbers_then_by_their_padding() -> None:
    ordered = ["7", "a", "a1", "a01", "a1b2", "a1b10", "a2", "a10", "b"]
    assert sort(reversed(ordered)) == ordered
    assert natural_key("n2") < natural_key("n10")


@given(st.lists(names(), max_size=40))
def test_folding_and_expanding_gives_the_same_set(given_names: list[str]) -> None:
    text = fold(given_names)
    expanded = expand(text) if given_names else []
    assert sorted(expanded) == sorted(set(given_names))
    assert fold(reversed(given_names)) == text


@given(st.text(alphabet="an019,-[]. ", max_size=30) | st.text(max_size=30))
def test_any_text_gives_valid_names_or_a_refusal(text: str) -> None:
    try:
        expanded = expand(text, limit=5000)
    except NodeNameError:
        return
    assert 0 < len(expanded) <= 5000
    assert [validate_name(name) for name in expanded] == expanded


@given(st.lists(names(), unique=True), st.randoms())
def test_sorting_does_not_depend_on_the_order_given(given_names: list[str], random: Random) -> None:
    shuffled = list(given_names)
    random.shuffle(shuffled)
    assert sort(shuffled) == sort(given_names)


# ClusterShell refuses brackets side by side, `a[1][2]`, and ranges that outgrow their padding,
# `a[09-101]` and `a[009-11]`; Slurm and we take them, and fold writes neither.
@given(texts(between=["u", "-"]).filter(lambda text: not outgrows(text)))
def test_clustershell_expands_our_text_to_the_same_names(text: str) -> None:
    assert set(NodeSet(text)) == set(expand(text))


@given(st.lists(names(), min_size=1, max_size=40))
def test_clustershell_and_we_read_each_others_folds(given_names: list[str]) -> None:
    assert set(NodeSet(fold(given_names))) == set(given_names)
    assert set(expand(str(NodeSet.fromlist(given_names)))) == set(given_names)
