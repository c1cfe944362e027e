"""`tide import`: limits.yaml and hosts.json become parts of a cluster file, which always loads."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.cli.endings import Exit
from springtide.imports import hosts, limits, shapes
from springtide.imports.into import merge
from springtide.imports.parts import Wish, of_limits, of_pool, render
from springtide.ports import CloudFlavor
from springtide.providers.cloud.memory import seen_by_linux
from springtide.spec import SpecError, parse
from tests.unit.cli_world import run
from tests.unit.google_file import google_file

OCI = shapes.table("oci")
HERE = Wish("containers", "compute")
NOWHERE = Wish("none", "pool", provider=True)
ORACLE = "VM.Standard2.1:\n  1: 2\n  2: 0\nVM.GPU3.1: {PHX-AD-3: 1}\n"
OTHERS = "n1-standard-1: 3\nn1-standard-2: 12\n"
FILE = """\
# a cluster of mine
cluster: blue
flavors:
  small: {cpus: 1, memory: 1G}  # cheap
groups:
  # the first
  general: {nodes: "blue-[0-3]", flavors: [small]}
partitions:
  standard: {groups: [general], default: true}
# the end
"""


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        of_limits(limits.parse_limits(text, "limits.yaml"), OCI, HERE)
    return [str(problem) for problem in caught.value.problems]


def merged(text: str, wanted: str, wish: Wish = HERE) -> str:
    return merge(text, "c.yaml", of_limits(limits.parse_limits(wanted, "l"), OCI, wish)).text


# --- limits ----------------------------------------------------------------------------------


@pytest.mark.accepts("C4")
def test_limits_of_oracle_are_a_group_for_each_shape_and_domain() -> None:
    cluster = parse(
        "cluster: blue\nimages: {b: {id: x}}\nprovider: {kind: oci, compartment: c, subnet: s}\n"
        + render(of_limits(limits.parse_limits(ORACLE, "l"), OCI, Wish("oci", "compute", "b"))),
        "c.yaml",
    )
    assert list(cluster.groups) == ["vm-standard2-1-ad1", "vm-gpu3-1-ad3"]
    assert cluster.names("vm-standard2-1-ad1") == (
        "vm-standard2-1-ad1-0001",
        "vm-standard2-1-ad1-0002",
    )
    group, flavor = cluster.groups["vm-gpu3-1-ad3"], cluster.flavor("VM.GPU3.1")
    assert (group.zones, group.features, group.image) == (("PHX-AD-3",), ("ad=PHX-AD-3",), "b")
    assert (flavor.cpus, flavor.threads, flavor.gres) == (12, 2, ("gpu:1",))
    assert flavor.features == ("shape=VM.GPU3.1",)
    assert cluster.partitions["compute"].groups == tuple(cluster.groups)


@pytest.mark.accepts("C4")
def test_limits_of_other_clouds_are_a_group_for_each_type() -> None:
    found = of_limits(limits.parse_limits(OTHERS, "l"), shapes.table("google"), HERE)
    cluster = parse(f"cluster: blue\n{render(found)}", "c.yaml")
    assert {key: len(one.names) for key, one in cluster.groups.items()} == {
        "n1-standard-1": 3,
        "n1-standard-2": 12,
    }
    assert cluster.names("n1-standard-2")[-1] == "n1-standard-2-0012"


@pytest.mark.accepts("C4")
@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("VM.Standard2.1: -1\n", "1:17", "a whole number from 0 to 65536; it is not -1"),
        ("VM.Standard2.1:\n  1: 2\n  2: 1.5\n", "3:6", "a whole number from 0 to 65536"),
        ("VM.Standard2.1:\n  1: many\n", "2:6", "it is not 'many'"),
        ("VM.Standard2.1:\n", "1:1", "it is missing"),
        ("VM.Standard2.1: {}\n", "1:17", "'VM.Standard2.1' has no availability domain"),
        ("VM.Standart2.1: {}\n", "1:17", "'VM.Standart2.1' has no availability domain"),
        ("VM.Standard2.1: 1\nVM.Standard2.2: 1\nVM.Standard2.1: 2\n", "3:1", "twice, first in"),
        ("VM.Standard2.1: {1: 1, 1: 2}\n", "1:24", "the key '1' is here twice"),
        ("VM.Standard2.1: [1, 2]\n", "1:17", "it is not a list"),
        ("VM.Standard2.1: {a b: 1}\n", "1:18", "'a b' is no availability domain"),
        ("VM.Standard2.1: {1: 1, AD-1: 2}\n", "1:24", "both be called vm-standard2-1-ad1-0001"),
        ("VM.Standard2.1: {1\n", "2:1", "not valid YAML"),
    ],
)
def test_a_bad_line_of_limits_is_named(text: str, place: str, said: str) -> None:
    [problem] = problems(text)
    assert problem.startswith(f"limits.yaml:{place}: ")
    assert said in problem


@pytest.mark.accepts("C4")
def test_an_unknown_shape_is_an_error_that_lists_the_nearest() -> None:
    [problem] = problems("VM.Standard2.1: 1\nVM.Standard2.3: 1\n")
    assert problem.startswith("limits.yaml:2:1: there is no shape 'VM.Standard2.3'")
    assert all(name in problem for name in ("VM.Standard2.2", "VM.Standard2.4", "--shapes"))
    [problem] = problems("qqq: 1\n")
    assert "; known ones are VM.Standard1.1, VM.Standard1.2" in problem
    [problem] = problems("my.shape: 1\nVM.Standard2.1: 1\n")
    assert "the nearest known ones are" in problem
    [problem] = problems("VM.Standard.E4.Flex: 1\n")
    assert "such as VM.Standard.E4.Flex.4.64" in problem


@pytest.mark.accepts("C4")
def test_an_unknown_shape_is_named_beside_other_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("VM.Standard2.1: {1: -1}\nmine: x\n-bad-: 1\n")
    done = run("import", str(file), "--control-shape", "VM.Standard2.1")
    assert (done.code, done.out) == (Exit.WRONG, "")
    lines = done.err.splitlines()
    places = [line.partition("limits.yaml:")[2].split(": ")[0] for line in lines]
    assert places == ["1:21", "2:1", "2:7", "3:1"]
    assert "there is no shape 'mine'" in lines[1]


def test_a_file_that_mixes_both_forms_is_taken_and_that_is_said() -> None:
    found = limits.parse_limits("VM.Standard2.1: 1\nVM.Standard2.2: {1: 2}\n", "l")
    (note,) = of_limits(found, OCI, HERE).notes
    assert note.startswith("VM.Standard2.2 has domains, and VM.Standard2.1 has none")
    assert of_limits(limits.parse_limits("VM.Standard2.1: 1\n", "l"), OCI, HERE).notes == ()


def test_a_flexible_shape_has_its_size_in_its_name() -> None:
    shape = shapes.flexible("VM.Standard.E4.Flex.4.64")
    assert shape is not None
    assert (shape.cpus, shape.threads, shape.memory) == (8, 2, seen_by_linux(65536))
    arm = shapes.flexible("VM.Standard.A1.Flex.4.24")
    assert arm is not None
    assert (arm.cpus, arm.arch) == (4, "aarch64")
    assert shapes.flexible("VM.Standard.E4.Flex") is None
    assert shapes.flexible("VM.Standard2.1") is None


# --- the management node ---------------------------------------------------------------------


@pytest.mark.accepts("C5")
def test_the_management_node_counts_against_the_limit_of_its_own_shape() -> None:
    found = limits.parse_limits("VM.Standard2.1: {1: 2, 2: 2}\nVM.Standard2.2: {1: 2}\n", "l")
    left = limits.without(found, limits.Control("VM.Standard2.1", "2"))
    assert [one.count for one in left.limits] == [2, 1, 2]
    only = limits.without(found, limits.Control("VM.Standard2.2"))
    assert [one.count for one in only.limits] == [2, 2, 1]


@pytest.mark.accepts("C5")
def test_a_shape_of_which_only_the_management_node_is_left_has_no_group(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("VM.Standard2.1: 1\nVM.Standard2.2: 2\n")
    done = run("import", str(file), "--control-shape", "VM.Standard2.1")
    assert (done.code, done.err) == (Exit.DONE, "VM.Standard2.1: none, so there is no group\n")
    assert list(parse(f"cluster: c\n{done.out}", "c").groups) == ["vm-standard2-2"]


@pytest.mark.accepts("C5")
def test_that_the_management_node_is_not_counted_is_said(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("VM.Standard2.1: 1\n")
    done = run("import", str(file))
    assert done.code == Exit.DONE
    assert "the control node is not counted" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--control-shape", "VM.Standard2.8"], "there is no limit of VM.Standard2.8"),
        (["--control-shape", "VM.Standard2.1"], "say with --control-ad where"),
        (["--control-shape", "VM.Standard2.1", "--control-ad", "3"], "in 3; it has 1, 2"),
        (["--control-shape", "VM.Standard2.1", "--control-ad", "2"], "is 0, but the control"),
        (["--control-ad", "2"], "--control-ad goes with --control-shape"),
    ],
)
def test_a_management_node_that_is_nowhere_is_refused(
    options: list[str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("VM.Standard2.1: {1: 2, 2: 0}\n")
    done = run("import", str(file), *options)
    assert (done.code, done.out) == (Exit.WRONG, "")
    assert said in done.err


# --- shapes ----------------------------------------------------------------------------------


def test_a_table_of_shapes_of_ones_own_is_read(tmp_path: Path) -> None:
    table, file = tmp_path / "shapes.yaml", tmp_path / "limits.yaml"
    table.write_text(
        "odd.1:\n  memory: 780\n  sockets: 2\n  cores_per_socket: 4\n  threads_per_core: 2\n"
        "  arch: aarch64\n  gres: gpu:2\n"
    )
    file.write_text("odd.1: 2\n")
    done = run("import", str(file), "--shapes", str(table))
    assert done.code == Exit.DONE
    flavor = parse(f"cluster: c\n{done.out}", "c").flavor("odd.1")
    assert (flavor.cpus, flavor.memory, flavor.sockets, flavor.threads) == (16, 780, 2, 2)
    assert (flavor.arch, flavor.gres) == ("aarch64", ("gpu:2",))


def test_a_bad_line_of_a_table_is_named() -> None:
    with pytest.raises(SpecError) as caught:
        shapes.parse_shapes("a: {memory: x, cores: 1}\nb: 3\n", "shapes.yaml")
    said = [str(problem) for problem in caught.value.problems]
    assert said[0].startswith("shapes.yaml:1:1: shape 'a' needs memory and cores_per_socket")
    assert said[1].startswith("shapes.yaml:1:13: memory must be a whole number from 1")
    assert said[2].startswith("shapes.yaml:1:16: unknown key 'cores' of a shape; valid keys are")
    assert said[3].startswith("shapes.yaml:2:4: shape 'b' must be a mapping")


def test_a_size_that_a_provider_tells_is_a_shape() -> None:
    told = shapes.of_flavor(CloudFlavor("x", 8, 16384, threads=2, gpus=1))
    assert told == shapes.Shape(8, seen_by_linux(16384), threads=2, gres=("gpu:1",))


def test_the_provider_of_the_cluster_file_is_asked_first(tmp_path: Path) -> None:
    with google_file(tmp_path) as target:
        file = tmp_path / "limits.yaml"
        file.write_text("t2a-standard-4: 2\n")
        done = run("import", str(file), "--into", str(target), "--dry-run")
        assert done.code == Exit.DONE, done.err
        assert f"memory: {seen_by_linux(16384, 'aarch64')}M" in done.out
        assert "arch: aarch64" in done.out


# --- into a cluster file ---------------------------------------------------------------------


def test_an_import_adds_to_a_file_and_leaves_every_other_line_alone() -> None:
    after = merged(FILE, ORACLE)
    assert [line for line in after.splitlines() if "tide import" not in line] == FILE.splitlines()
    cluster = parse(after, "c.yaml")
    assert cluster.partitions["compute"].groups == ("vm-standard2-1-ad1", "vm-gpu3-1-ad3")
    assert cluster.partitions["standard"].default


@pytest.mark.accepts("C4")
@pytest.mark.parametrize("flavors", ["", "flavors:\n", "flavors: {}\n"])
def test_groups_keep_the_size_that_a_file_without_flavors_gives_them(flavors: str) -> None:
    own = f'cluster: c\n{flavors}groups:\n  mine: {{nodes: "m[1-3]"}}\n'
    found = merged(own, "VM.Standard2.1: 4\n")
    assert "  default: {cpus: 1, memory: 256M}\n" in found
    spec = parse(found, "c")
    before = parse(own, "c")
    assert spec.flavor(spec.groups["mine"].flavors[0]) == before.flavor("default")
    assert merged(merged(found, "VM.Standard2.2: 1\n"), "VM.Standard2.1: 4\n").count("default") == 1


def test_an_import_again_changes_only_what_an_import_made() -> None:
    first = merged(FILE, "VM.Standard2.1: {1: 5, 2: 1}\nVM.Standard2.2: 2\n")
    mine = first.replace('ad1-[0001-0005]"', 'ad1-[0001-0005]", min: 4').replace("compute", "work")
    again = merged(mine, "VM.Standard2.1: {1: 3}\n")
    cluster = parse(again, "c.yaml")
    assert list(cluster.groups) == ["general", "vm-standard2-1-ad1"]
    group = cluster.groups["vm-standard2-1-ad1"]
    assert (group.nodes, group.min) == ("vm-standard2-1-ad1-[0001-0003]", 3)
    assert cluster.partitions["work"].groups == ("vm-standard2-1-ad1",)
    assert [line for line in again.splitlines() if "tide import" not in line] == FILE.splitlines()


def test_the_same_import_twice_changes_nothing(tmp_path: Path) -> None:
    file, target = tmp_path / "limits.yaml", tmp_path / "c.yaml"
    file.write_text(ORACLE)
    target.write_text(FILE)
    first = run("import", str(file), "--into", str(target), "--provider", "containers")
    assert first.code == Exit.DONE, first.err
    text = target.read_text()
    second = run("import", str(file), "--into", str(target), "--provider", "containers")
    assert second.out == f"{target} is so already: nothing was changed\n"
    assert target.read_text() == text


def test_a_dry_run_shows_the_lines_and_writes_nothing(tmp_path: Path) -> None:
    file, target = tmp_path / "limits.yaml", tmp_path / "c.yaml"
    file.write_text(ORACLE)
    target.write_text(FILE)
    done = run("import", str(file), "--into", str(target), "--dry-run")
    assert done.code == Exit.DONE
    assert "+   vm-standard2-1-ad1: {" in done.out
    assert target.read_text() == FILE


def test_a_name_that_a_person_uses_is_not_taken_away() -> None:
    taken = FILE.replace("general", "vm-standard2-1-ad1")
    with pytest.raises(SpecError, match="'vm-standard2-1-ad1' is there already, and no import"):
        merged(taken, ORACLE)
    used = merged(merged(FILE, ORACLE).replace("[small]", "[VM.GPU3.1]"), "VM.Standard2.1: 1")
    assert "VM.GPU3.1" in parse(used, "c.yaml").flavors


def test_a_file_in_which_there_is_no_room_is_left_to_a_person() -> None:
    with pytest.raises(SpecError, match="only a person can change; they should have"):
        merged("cluster: c\ngroups: {a: {nodes: a1}}\n", ORACLE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.yaml"], "there is no such file"),
        (["cluster.yaml"], "is nothing that can be imported; known are limits:"),
        (["limits.yaml", "--into", "nothing.yaml"], "`tide init nothing.yaml` makes one"),
        (["limits.yaml", "--into", "cluster.yaml", "--provider", "oci"], "not oci; write its"),
        (["limits.yaml", "--provider", "moon"], "there is no provider 'moon'"),
    ],
)
def test_what_cannot_be_imported_is_said(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("limits.yaml").write_text(ORACLE)
    Path("cluster.yaml").write_text(FILE)
    done = run("import", *arguments)
    assert (done.code, done.out) == (Exit.WRONG, "")
    assert said in done.err


# --- hosts -----------------------------------------------------------------------------------


@pytest.mark.accepts("N5")
def test_a_pool_is_a_group_of_these_hosts_and_no_others(tmp_path: Path) -> None:
    file, target = tmp_path / "hosts.json", tmp_path / "c.yaml"
    file.write_text('{"10.0.0.7": "wn7", "10.0.0.8": "wn8",\n "10.0.1.1": "big"}')
    target.write_text(FILE)
    options = ["--into", str(target), "--provider", "none", "--group", "hybrid"]
    assert run("import", str(file), *options).code == Exit.DONE
    cluster = parse(target.read_text(), "c.yaml")
    assert set(cluster.names("hybrid")) == {"wn7", "wn8", "big"}
    assert cluster.addresses == {"wn7": "10.0.0.7", "wn8": "10.0.0.8", "big": "10.0.1.1"}
    assert cluster.provider_of("hybrid").kind == "none"
    file.write_text('{"10.0.0.8": "wn8", "10.0.0.9": "wn9"}')
    assert run("import", str(file), *options).code == Exit.DONE
    assert parse(target.read_text(), "c.yaml").addresses == {"wn8": "10.0.0.8", "wn9": "10.0.0.9"}


def test_a_flavor_that_the_file_lacks_is_refused_also_when_the_pool_is_there_already(
    tmp_path: Path,
) -> None:
    file, target = tmp_path / "hosts.json", tmp_path / "c.yaml"
    file.write_text('{"10.0.0.7": "wn7"}')
    target.write_text(FILE)
    options = ["--into", str(target), "--provider", "none"]
    assert run("import", str(file), *options, "--flavor", "small").code == Exit.DONE
    done = run("import", str(file), *options, "--flavor", "nope")
    assert (done.code, "has no flavor 'nope'; it has small" in done.err) == (Exit.WRONG, True)


def test_a_pool_of_containers_is_refused_for_they_have_addresses_of_their_own(
    tmp_path: Path,
) -> None:
    file, target = tmp_path / "hosts.json", tmp_path / "c.yaml"
    file.write_text('{"10.0.0.7": "wn7"}')
    target.write_text(FILE)
    done = run("import", str(file), "--into", str(target))
    assert done.code == Exit.WRONG
    assert "nodes of group 'pool' are containers, which get addresses of" in done.err
    assert target.read_text() == FILE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"10.0.0.1": "a",\n x}', "hosts.json:2:2: not valid JSON: "),
        ('{"10.0.0.1": "a",\n "10.0.0.300": "b"}', "hosts.json:2:2: '10.0.0.300' is no IPv4"),
        ('{"10.0.0.1": "a", "10.0.0.1": "b"}', "hosts.json:1:19: the address '10.0.0.1' is here"),
        ('{"10.0.0.1": "a", "10.0.0.2": "a"}', "hosts.json:1:31: the name 'a' is here twice"),
        ('{"10.0.0.1": "a b"}', "hosts.json:1:14: node name 'a b': character 2 is ' '"),
        ('{"10.0.0.1": ["a"]}', "hosts.json:1:14: the name of a host is a text, not a list"),
        ('{"10.0.0.1": 7, "x": "b"}', "hosts.json:1:14: the name of a host is a text, not 7"),
        ("[]", "hosts.json: the file must be an object such as"),
        ("{}", "hosts.json: the pool is empty"),
    ],
)
def test_a_wrong_pool_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        hosts.parse_hosts(text, "hosts.json")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("value", ['[{"a": [1]}, 2]', '{"a": {"b": "c"}}', "7", "null"])
def test_what_follows_a_wrong_entry_of_a_pool_is_placed_as_well(value: str) -> None:
    with pytest.raises(SpecError) as caught:
        hosts.parse_hosts(f'{{"10.0.0.1": {value},\n "10.0.0.300": "b"}}', "hosts.json")
    first, second = caught.value.problems
    assert str(first).startswith("hosts.json:1:14: the name of a host is a text")
    assert str(second).startswith("hosts.json:2:2: '10.0.0.300' is no IPv4")


# --- whatever comes --------------------------------------------------------------------------

COUNTS = st.integers(0, 40)
DOMAINS = st.sampled_from(["1", "2", "3"])
ENTRIES = st.one_of(COUNTS, st.dictionaries(DOMAINS, COUNTS, min_size=1, max_size=3))
LIMITS = st.dictionaries(st.sampled_from(sorted(OCI)), ENTRIES, min_size=1, max_size=5)
FILES = st.sampled_from([FILE, "cluster: blue\n", "cluster: blue\ngroups:\npartitions: {}\n"])


def written(found: dict[str, int | dict[str, int]]) -> str:
    lines = []
    for shape, value in found.items():
        inner = (
            value
            if isinstance(value, int)
            else f"{{{', '.join(f'{k}: {v}' for k, v in value.items())}}}"
        )
        lines.append(f"{shape}: {inner}\n")
    return "".join(lines)


@settings(max_examples=60, deadline=None)
@given(FILES, st.lists(LIMITS, min_size=1, max_size=3), st.booleans())
def test_a_file_loads_and_has_just_what_was_imported_last(
    file: str, imports: list[dict[str, int | dict[str, int]]], windows: bool
) -> None:
    text = file.replace("\n", "\r\n") if windows else file
    for found in imports:
        text = merged(text, written(found))
    cluster = parse(text, "c.yaml")
    count = sum(len(one.names) for key, one in cluster.groups.items() if key != "general")
    assert count == sum(v if isinstance(v, int) else sum(v.values()) for v in imports[-1].values())
    assert merged(text, written(imports[-1])) == text
    kept = [line for line in file.splitlines() if line.startswith(("#", "  #"))]
    assert [line for line in text.splitlines() if line.strip().startswith("#")] == kept


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.ip_addresses(v=4).map(str),
            st.from_regex("[a-z][a-z0-9]{0,8}", fullmatch=True).filter(
                lambda name: name.upper() not in ("ALL", "NONE", "DEFAULT")
            ),
            min_size=1,
            max_size=8,
        ).filter(lambda pool: len(set(pool.values())) == len(pool)),
        min_size=1,
        max_size=3,
    )
)
def test_a_file_has_just_the_pool_that_was_imported_last(pools: list[dict[str, str]]) -> None:
    text = FILE
    for pool in pools:
        found = hosts.Pool({name: address for address, name in pool.items()})
        text = merge(text, "c.yaml", of_pool(found, "pool", "small", NOWHERE)).text
    cluster = parse(text, "c.yaml")
    assert cluster.addresses == {name: address for address, name in pools[-1].items()}
    assert set(cluster.names("pool")) == set(pools[-1].values())
