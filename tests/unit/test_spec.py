"""cluster.yaml: what is read from it, and what is said when it cannot be read.

Each tests/cases/spec/NAME.yaml is a wrong file; NAME.txt beside it is what a person is told.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from springtide import nodeset, spec

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "examples"
CASES = sorted((TESTS / "cases" / "spec").glob("*.yaml"))
NOBODY = 65534

MIXED = """
cluster: blue
groups:
  general:
    nodes: blue-[000-199]
    min: 2
  metal:
    nodes: m[1-4]
    min: 1
    provider: {kind: none}
  gpu:
    nodes: gpu-[1-2]
    min: 1
"""


def problems_of(text: str) -> list[spec.Problem]:
    try:
        spec.parse(text, "cluster.yaml")
    except spec.SpecError as error:
        return error.problems
    return []


def problem_of(text: str) -> str:
    return "\n".join(map(str, problems_of(text)))


def refusal_of(path: Path) -> str:
    with pytest.raises(spec.SpecError) as caught:
        spec.load(path)
    return str(caught.value)


# Wrong files


@pytest.mark.accepts("A21")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_wrong_file_is_refused_with_every_problem_and_its_place(case: Path) -> None:
    with pytest.raises(spec.SpecError) as caught:
        spec.parse(case.read_text(), case.name)
    assert str(caught.value) + "\n" == case.with_suffix(".txt").read_text()


def test_no_expected_message_has_lost_its_wrong_file() -> None:
    expected = (TESTS / "cases" / "spec").glob("*.txt")
    assert {path.stem for path in expected} == {case.stem for case in CASES}


@pytest.mark.accepts("A21")
def test_an_unknown_key_names_the_nearest_valid_one() -> None:
    text = "cluster: blue\ngroups:\n  general:\n    flavours: [default]\n"
    expected = "unknown key 'flavours' in group 'general'; did you mean 'flavors'?"
    assert problem_of(text) == f"cluster.yaml:4:5: {expected}"


@pytest.mark.accepts("A21")
def test_an_unknown_key_like_no_valid_one_lists_them_all() -> None:
    expected = "unknown key 'xyzzy' in image 'base'; valid keys are path, id, build"
    text = "cluster: blue\nimages: {base: {path: /srv/base, xyzzy: 1}}"
    assert problem_of(text) == f"cluster.yaml:2:34: {expected}"


@pytest.mark.accepts("E32")
def test_a_node_in_two_groups_is_refused_with_its_name_and_both_groups() -> None:
    text = "cluster: blue\ngroups:\n  a: {nodes: n007}\n  b:\n    nodes: n[006-009]\n"
    expected = "node n007 is in group 'a' and in group 'b'; a node belongs to one group"
    assert problem_of(text) == f"cluster.yaml:5:12: {expected}"


def test_a_problem_carries_its_file_line_column_and_message() -> None:
    with pytest.raises(spec.SpecError) as caught:
        spec.parse("cluster: blue\nprotected: perhaps\n", "c.yaml")
    expected = "protected must be true or false, not 'perhaps'"
    assert caught.value.problems == [spec.Problem("c.yaml", 2, 12, expected)]


@settings(deadline=None)
@given(st.text(st.characters() | st.sampled_from("[]{}:,-?&*!|>'\"%@ \n\t#"), max_size=200))
def test_any_text_is_a_cluster_or_problems_of_one_line_each(text: str) -> None:
    assert all(len(str(problem).splitlines()) == 1 for problem in problems_of(text))


@settings(deadline=None)
@given(st.data())
def test_a_damaged_example_is_a_cluster_or_problems_of_one_line_each(data: st.DataObject) -> None:
    lines = (EXAMPLES / "containers.yaml").read_text().splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = lines[at].replace(*data.draw(st.tuples(st.sampled_from(":[]{}-, "), st.text())))
    assert all(len(str(problem).splitlines()) == 1 for problem in problems_of("".join(lines)))


# Files that are no text


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    assert refusal_of(path).startswith(f"{path}: there is no such file; `tide init FILE` ")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    expected = "the file cannot be read: it is a directory; name the file in it"
    assert refusal_of(tmp_path) == f"{tmp_path}: {expected}"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a regular file" in refusal_of(tmp_path / "pipe")


@contextmanager
def without_rights() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_an_unreadable_file_is_said_to_be_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: blue\n")
    path.chmod(0)
    with without_rights():
        assert refusal_of(path) == f"{path}: the file cannot be read: Permission denied"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", b"---\n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(content)
    assert refusal_of(path).startswith(f"{path}:")
    assert "`cluster: NAME`" in refusal_of(path)


def test_a_binary_file_is_refused_at_its_first_byte_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(b"cluster: blue\n# \xc3\xa9\xff\xfe\x00")
    assert refusal_of(path) == f"{path}:2:4: the byte 0xff is no UTF-8; is this a text file?"


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"[", b"{", b"a: ", b"- ", b"&", b"\t", b'"'])
def test_a_megabyte_of_garbage_is_refused_at_once(tmp_path: Path, byte: bytes) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(byte * (1_000_000 // len(byte)))
    start = time.process_time()
    assert refusal_of(path) == f"{path}: the file is longer than 500 kB; is it the right one?"
    assert time.process_time() - start < 1


@pytest.mark.parametrize("piece", ["[", "{", "- ", "? ", "a: ", ":", "&", "x", "'", "|", "a: b\n"])
def test_garbage_of_a_file_s_size_is_refused(piece: str) -> None:
    assert problems_of(piece * 20_000)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(b"\xef\xbb\xbfcluster: blue\n")
    assert spec.load(path).cluster == "blue"


# What a file means


def test_only_a_name_is_needed() -> None:
    cluster = spec.parse("cluster: blue", "c.yaml")
    assert cluster.state == Path("/var/lib/springtide/blue")
    assert cluster.batch == spec.Slurm(port=6817, node_port=6818, user="slurm")
    assert cluster.provider == spec.Containers(subnet=None, mounts=())
    assert cluster.flavors == {"default": spec.Flavor(cpus=1, memory=256)}
    assert cluster.images == {"host": spec.Image(path=Path("/"))}
    assert cluster.partitions == {"main": spec.Partition(groups=(), default=True)}
    assert cluster.timing == spec.Timing(
        idle=600, start=600, stop=300, drain=86400, reconcile=30, lock=600, gather=0.005
    )


@pytest.mark.accepts("E32")
@pytest.mark.parametrize(
    "groups",
    ["", "groups:", "groups: {}", "groups: {a: {}}", "groups: {a: {nodes: ''}}", "groups: {a: }"],
)
def test_a_cluster_without_nodes_is_legal(groups: str) -> None:
    cluster = spec.parse(f"cluster: blue\n{groups}\n", "c.yaml")
    assert not cluster.node_group
    assert cluster.managed == cluster.always_up == ()


@pytest.mark.accepts("E32")
@pytest.mark.parametrize("nodes", ["007", "n[08-11]", "n[1-2],n[01-02]", "r[01-02]u[001-003]"])
def test_padded_names_survive(nodes: str) -> None:
    cluster = spec.parse(f"cluster: blue\ngroups:\n  a:\n    nodes: {nodes}\n", "c.yaml")
    assert cluster.names("a") == tuple(nodeset.expand(nodes))
    assert cluster.require(nodeset.expand(nodes)) == cluster.names("a")


@pytest.mark.accepts("E28")
@pytest.mark.parametrize("prefix", ["n", "green-", "GPU_node-", "rack1-slot", "a.b-", "2nd-", ""])
def test_nodes_may_have_any_prefix(prefix: str) -> None:
    cluster = spec.parse(f"cluster: blue\ngroups:\n  a:\n    nodes: '{prefix}[1-2]'\n", "c.yaml")
    assert cluster.names("a") == (f"{prefix}1", f"{prefix}2")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20ms", 0.02), ("30s", 30), ("10m", 600), ("1.5h", 5400), ("1d", 86400), ("90", 90)],
)
def test_times_have_units_or_are_seconds(text: str, seconds: float) -> None:
    timing = spec.parse(f"cluster: blue\ntiming: {{idle: {text}}}", "c.yaml").timing
    assert timing.idle == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "mib"), [("512M", 512), ("4G", 4096), ("1.5G", 1536), ("1T", 2**20), ("2GiB", 2048)]
)
def test_memory_is_counted_in_mib(text: str, mib: int) -> None:
    flavors = f"flavors: {{small: {{cpus: 1, memory: {text}}}}}"
    assert spec.parse(f"cluster: blue\n{flavors}", "c.yaml").flavor("small").memory == mib


def test_parameters_stay_as_they_are_written() -> None:
    parameters = "{ReturnToService: 2, Version: 1.10, Flag: true, X11Parameters: home_xauthority}"
    cluster = spec.parse(f"cluster: blue\nbatch: {{parameters: {parameters}}}", "c.yaml")
    assert isinstance(cluster.batch, spec.Slurm)
    assert cluster.batch.parameters == {
        "ReturnToService": "2",
        "Version": "1.10",
        "Flag": "true",
        "X11Parameters": "home_xauthority",
    }


def test_an_anchor_saves_writing_a_group_twice() -> None:
    text = """
        cluster: blue
        groups:
          a: &like_this
            nodes: a[1-2]
            zones: [1, 2]
          b: {<<: *like_this, nodes: b1}
    """
    cluster = spec.parse(text, "c.yaml")
    assert cluster.groups["b"] == spec.Group(nodes="b1", zones=("1", "2"))


def test_a_group_may_have_a_provider_of_its_own() -> None:
    cluster = spec.parse(
        "cluster: blue\nprovider: {subnet: 10.77.0.0/16}\ngroups: {a: {}, b: {provider: "
        "{kind: fake, boot: 5s}}}",
        "c.yaml",
    )
    assert cluster.provider_of("a") == spec.Containers(subnet=IPv4Network("10.77.0.0/16"))
    assert cluster.provider_of("b") == spec.FakeProvider(boot=5)


def test_a_partition_over_all_groups_is_there_by_itself() -> None:
    partitions = spec.parse("cluster: blue\ngroups: {a: {}, b: {}}", "c.yaml").partitions
    assert partitions == {"main": spec.Partition(groups=("a", "b"), default=True)}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_right(path: Path) -> None:
    assert spec.load(path).node_group


def test_the_containers_example_has_two_partitions_over_its_nodes() -> None:
    cluster = spec.load(EXAMPLES / "containers.yaml")
    assert list(cluster.partitions) == ["standard", "debug"]
    assert len(cluster.managed) == 18
    assert cluster.always_up == ("blue-quick-1",)


def test_a_cluster_made_by_a_program_is_checked_too() -> None:
    groups = {"a": spec.Group(nodes="n1"), "b": spec.Group(nodes="n1")}
    with pytest.raises(ValidationError, match="in group 'a' and in group 'b'"):
        spec.Cluster(cluster="blue", groups=groups)


def test_a_cluster_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec.parse("cluster: blue", "c.yaml").cluster = "green"  # type: ignore[misc]


def test_what_a_cluster_is_dumped_as_makes_the_same_cluster() -> None:
    cluster = spec.load(EXAMPLES / "containers.yaml")
    assert spec.Cluster.model_validate(cluster.model_dump()) == cluster


def test_the_schema_has_every_key_of_a_file() -> None:
    schema = spec.schema()
    assert schema["properties"].keys() == spec.Cluster.model_fields.keys()
    assert schema["required"] == ["cluster"]


# Nodes


def test_every_node_has_its_group_in_the_order_of_the_file() -> None:
    cluster = spec.parse(MIXED, "c.yaml")
    names = nodeset.expand("blue-[000-199],m[1-4],gpu-[1-2]")
    assert list(cluster.node_group) == names
    assert cluster.node_group["m2"] == "metal"


def test_machines_without_a_provider_are_not_managed_and_not_ours_to_keep_up() -> None:
    cluster = spec.parse(MIXED, "c.yaml")
    assert cluster.managed == (*cluster.names("general"), *cluster.names("gpu"))
    assert cluster.always_up == ("blue-000", "blue-001", "gpu-1")


def test_names_from_outside_are_answered_each_once_in_their_order() -> None:
    cluster = spec.parse(MIXED, "c.yaml")
    assert cluster.require(["gpu-2", "blue-007", "gpu-2"]) == ("gpu-2", "blue-007")
    assert cluster.require([]) == ()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["blue-7"], "unknown node blue-7; .*; did you mean blue-007\\?$"),
        (["bleu-007"], "unknown node bleu-007; .*; did you mean blue-007\\?$"),
        (["blue-200", "blue-201"], r"unknown nodes blue-\[200-201\]; the cluster has blue-\[000"),
        (["zzz"], r"has blue-\[000-199\] \(general\), m\[1-4\] \(metal\), gpu-\[1-2\] \(gpu\)$"),
        (["\x1b[2J", "x"], r"unknown nodes '\\x1b\[2J' and 1 more; "),
        ([""], "unknown node empty; "),
    ],
)
def test_unknown_nodes_are_named_with_what_there_is(names: list[str], told: str) -> None:
    with pytest.raises(spec.UnknownNodes, match=told):
        spec.parse(MIXED, "c.yaml").require(names)


def test_unknown_nodes_of_an_empty_cluster_are_refused() -> None:
    with pytest.raises(spec.UnknownNodes, match="unknown node n1; the cluster has no nodes"):
        spec.parse("cluster: blue", "c.yaml").require(["n1"])


def test_machines_without_a_provider_may_not_be_acted_on() -> None:
    with pytest.raises(spec.UnknownNodes, match=r"nodes of metal are never .* out m\[1-2\]"):
        spec.parse(MIXED, "c.yaml").require(["blue-007", "m1", "m2"])


def test_a_hundred_thousand_nodes_are_read_and_required_fast() -> None:
    text = "cluster: blue\ngroups:\n  a:\n    nodes: n[00000-65535],x[1-34464]\n"
    start = time.process_time()
    cluster = spec.parse(text, "c.yaml")
    names = cluster.require(cluster.node_group)
    assert len(names) == 100_000
    with pytest.raises(spec.UnknownNodes, match=r"unknown nodes y\[00000-65535\]"):
        cluster.require([name.replace("n", "y") for name in names[:65536]])
    assert time.process_time() - start < 2


def test_providers_of_one_kind_are_told_apart() -> None:
    """What one account is refused must not hold up another."""
    text = """
cluster: blue
images: {base: {id: ami-1}}
groups:
  here: {nodes: "a[1-2]"}
  one: {nodes: "b[1-2]", image: base, provider: {kind: aws, region: r1, subnets: {z: s-1}}}
  two: {nodes: "c[1-2]", image: base, provider: {kind: aws, region: r2, subnets: {z: s-1}}}
  three: {nodes: "d[1-2]", image: base, provider: {kind: aws, region: r2, subnets: {z: s-1}}}
"""
    names = {key: spec.parse(text, "x.yaml").provider_name(key) for key in ("here", "one", "two")}
    assert names["here"] == "containers"
    assert names["one"].startswith("aws-")
    assert names["two"].startswith("aws-")
    assert names["one"] != names["two"] == spec.parse(text, "x.yaml").provider_name("three")


def test_options_of_a_provider_stay_the_texts_they_are() -> None:
    text = """
cluster: blue
images: {base: {id: ami-1}}
provider:
  kind: aws
  region: r1
  subnets: {z: s-1}
  options: {account: "012345", version: 1.10, size: 3, on: true, deep: [{x: 0.5}]}
groups: {g: {nodes: n1, image: base}}
"""
    provider = spec.parse(text, "x.yaml").provider
    assert provider.options == {  # type: ignore[union-attr]
        "account": "012345",
        "version": "1.10",
        "size": 3,
        "on": True,
        "deep": [{"x": 0.5}],
    }
