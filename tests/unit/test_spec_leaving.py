"""From one cluster file to another while the cluster lives."""

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide import nodeset, spec
from springtide.spec.changes import FIXED, Setting
from springtide.spec.leaving import diff, union

FORMER = """
cluster: blue
images: {base: {path: /srv/base}, old: {path: /srv/old}}
flavors:
  small: {cpus: 1, memory: 256M, price: 0.1}
  large: {cpus: 2, memory: 1G}
groups:
  general: {nodes: "n[1-6]", min: 2, flavors: [small], image: base}
  quick: {nodes: "q[1-3]", min: 1, flavors: [large, small], image: old}
partitions:
  standard: {groups: [general], default: true}
  debug: {groups: [quick, general], parameters: {MaxTime: 30}}
timing: {idle: 5m}
"""


def former() -> spec.Cluster:
    return spec.parse(FORMER, "former.yaml")


def after(*changes: tuple[str, str]) -> spec.Cluster:
    """The former cluster with some pieces of its text replaced."""
    text = FORMER
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return spec.parse(text, "wanted.yaml")


FEWER = ("n[1-6]", "n[1-4]")
NO_QUICK = (
    '  quick: {nodes: "q[1-3]", min: 1, flavors: [large, small], image: old}\n',
    "",
)
NOT_IN_DEBUG = ("[quick, general]", "[general]")
NO_DEBUG = ("  debug: {groups: [quick, general], parameters: {MaxTime: 30}}\n", "")


# Who stays


@pytest.mark.parametrize("staying", [[], ["n1", "q1"], ["stranger"]])
def test_where_nobody_stays_that_left_it_is_the_wanted_cluster(staying: Collection[str]) -> None:
    wanted = after(FEWER)
    assert union(wanted, former(), staying) is wanted


def test_nodes_that_are_still_up_stay_in_their_group_behind_the_others() -> None:
    both = union(after(FEWER, ("min: 2", "min: 4")), former(), ["n6", "n1", "q2"])
    assert both.names("general") == ("n1", "n2", "n3", "n4", "n6")
    assert both == after(("n[1-6]", "n[1-4],n6"), ("min: 2", "min: 4"))


def test_a_group_that_has_no_names_any_more_keeps_those_that_are_up() -> None:
    both = union(after(("n[1-6]", ""), ("min: 2", "min: 0")), former(), ["n5", "n6"])
    assert both.names("general") == ("n5", "n6")


def test_a_group_that_left_stays_with_what_it_is_made_of_and_where_it_was() -> None:
    images = ("{base: {path: /srv/base}, old: {path: /srv/old}}", "{base: {path: /srv/base}}")
    no_large = ("  large: {cpus: 2, memory: 1G}\n", "")
    wanted = after(NO_QUICK, NOT_IN_DEBUG, images, no_large)
    both = union(wanted, former(), ["q1", "q3"])
    quick = former().groups["quick"]
    assert both.groups["quick"] == quick.but(nodes="q[1,3]", min=0)
    assert both.flavors == former().flavors
    assert both.images["old"] == former().images["old"]
    assert both.partitions["standard"].groups == ("general",)
    assert both.partitions["debug"].groups == ("general", "quick")
    assert both.always_up == wanted.always_up


def test_what_the_wanted_cluster_defines_is_what_counts() -> None:
    new_path = ("old: {path: /srv/old}", "old: {path: /srv/new}")
    wanted = after(NO_QUICK, NOT_IN_DEBUG, new_path, ("cpus: 2", "cpus: 4"))
    both = union(wanted, former(), ["q1"])
    assert both.images == wanted.images
    assert both.flavors == wanted.flavors


def test_a_partition_that_left_with_its_group_stays_as_long_and_is_not_the_default() -> None:
    wanted = after(NO_QUICK, NO_DEBUG)
    both = union(wanted, former(), ["q1"])
    assert both.partitions == {
        "standard": wanted.partitions["standard"],
        "debug": former().partitions["debug"].but(groups=("quick", "general")),
    }
    swapped = spec.parse(
        FORMER.replace(", default: true", "").replace(
            "general], para", "general], default: true, para"
        ),
        "c.yaml",
    )
    assert not union(wanted, swapped, ["q1"]).partitions["debug"].default


def test_a_group_that_left_keeps_the_provider_it_had() -> None:
    was = spec.parse(FORMER + "provider: {kind: fake, boot: 5s}\n", "c.yaml")
    wanted = after(NO_QUICK, NOT_IN_DEBUG)
    assert union(wanted, was, ["q1"]).provider_of("quick") == spec.FakeProvider(boot=5)
    assert union(wanted, former(), ["q1"]).groups["quick"].provider is None


def test_a_node_that_moved_to_another_group_belongs_there() -> None:
    wanted = after(("n[1-6]", "n[1-6],q1"), ("q[1-3]", "q[2-3]"))
    assert union(wanted, former(), ["q1", "n1"]) is wanted


def test_a_group_that_would_split_rebuild_partitions_stays_without_partitions() -> None:
    rebuilds = "rebuild: {partitions: {ours: [standard]}}\n"
    wanted = spec.parse(FORMER.replace(*NO_QUICK).replace(*NO_DEBUG) + rebuilds, "c.yaml")
    both = union(wanted, former(), ["q1"])
    assert both.partitions == wanted.partitions
    assert both.names("quick") == ("q1",)


def test_the_partition_that_is_there_by_itself_takes_those_who_stay() -> None:
    was = spec.parse("cluster: blue\ngroups: {a: {nodes: a1}, b: {nodes: b1}}", "c.yaml")
    wanted = spec.parse("cluster: blue\ngroups: {a: {nodes: a1}}", "c.yaml")
    assert union(wanted, was, ["b1"]) == was


GROUPS = st.dictionaries(
    st.sampled_from("abc"),
    st.sets(st.sampled_from([f"n{i}" for i in range(9)])).map(sorted),
)


@st.composite
def clusters(draw: st.DrawFn) -> spec.Cluster:
    taken: set[str] = set()
    groups = {}
    for key, names in draw(GROUPS).items():
        mine = [name for name in names if name not in taken]
        taken |= set(mine)
        size = draw(st.integers(0, len(mine)))
        flavors = draw(st.sampled_from([["x"], ["y", "x"]]))
        nodes = ",".join(mine)
        groups[key] = spec.Group(nodes=nodes, min=size, flavors=tuple(flavors))
    partitions = {
        key: spec.Partition(groups=tuple(listed))
        for key, listed in draw(
            st.dictionaries(
                st.sampled_from(["p", "q", "r"]),
                st.lists(st.sampled_from(sorted(groups)), unique=True) if groups else st.just([]),
            )
        ).items()
    }
    listed = draw(st.lists(st.sampled_from(sorted(partitions)), unique=True)) if partitions else []
    rebuilds = {key: names for key, names in (("y", listed[:1]), ("z", listed[1:])) if names}
    flavors_of = {name: spec.Flavor(cpus=1, memory=64) for name in "xy"}
    values = {"cluster": "blue", "groups": groups, "flavors": flavors_of, "partitions": partitions}
    try:
        return spec.Cluster.model_validate(values | {"rebuild": {"partitions": rebuilds}})
    except ValueError:
        return spec.Cluster.model_validate(values)


@settings(deadline=None, max_examples=200)
@given(clusters(), clusters(), st.sets(st.sampled_from([f"n{i}" for i in range(12)])))
def test_any_two_clusters_can_be_united_without_a_change_to_the_wanted_nodes(
    wanted: spec.Cluster, was: spec.Cluster, staying: set[str]
) -> None:
    both = union(wanted, was, staying)
    gone = staying & was.node_group.keys() - wanted.node_group.keys()
    assert both.node_group.keys() == wanted.node_group.keys() | gone
    assert wanted.node_group.items() <= both.node_group.items()
    assert {name: both.node_group[name] for name in gone} == {n: was.node_group[n] for n in gone}
    assert both.always_up == wanted.always_up
    assert union(wanted, both, staying) == both
    assert not diff(both, both).lines


# What changes


def test_the_same_file_changes_nothing() -> None:
    changes = diff(former(), former())
    assert not changes.lines
    assert not changes.refusals
    assert changes.only_sizes


def test_sizes_and_names_are_told_by_group() -> None:
    changes = diff(former(), after(("n[1-6]", "n[2-8]"), ("min: 2", "min: 5")))
    assert changes.names_removed == {"general": "n1"}
    assert changes.names_added == {"general": "n[7-8]"}
    assert changes.sizes == {"general": (2, 5)}
    assert changes.only_sizes
    assert changes.lines == (
        "groups.general: n1 leave",
        "groups.general: n[7-8] come",
        "groups.general.min: 2 → 5",
    )


def test_groups_and_partitions_that_come_and_go_are_named() -> None:
    changes = diff(former(), after(NO_QUICK, NO_DEBUG))
    assert changes.groups_removed == ("quick",)
    assert changes.partitions_removed == ("debug",)
    assert changes.lines == ("group quick leaves, with q[1-3]", "partition debug leaves")
    back = diff(after(NO_QUICK, NO_DEBUG), former())
    assert back.groups_added == ("quick",)
    assert back.partitions_added == ("debug",)
    assert back.lines == ("group quick comes, with q[1-3]", "partition debug comes")
    assert not changes.only_sizes
    assert not back.only_sizes


def test_images_and_flavors_of_groups_are_told_as_they_were_and_are() -> None:
    changes = diff(former(), after(("image: old", "image: base"), ("[large, small]", "[large]")))
    assert changes.images == {"quick": ("old", "base")}
    assert changes.flavors == {"quick": (("large", "small"), ("large",))}
    assert changes.lines == (
        "groups.quick.image: old → base",
        "groups.quick.flavors: large, small → large",
    )


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        (("idle: 5m", "idle: 90s"), Setting("timing.idle", "300 s", "90 s")),
        (("memory: 1G", "memory: 2G"), Setting("flavors.large.memory", "1024 MiB", "2048 MiB")),
        ((", price: 0.1", ""), Setting("flavors.small.price", "0.1", "nothing")),
        (("path: /srv/old", "path: /srv/x"), Setting("images.old.path", "/srv/old", "/srv/x")),
        (("timing:", "protected: true\ntiming:"), Setting("protected", "false", "true")),
        (
            ("timing:", "batch: {parameters: {MaxJobCount: 9}}\ntiming:"),
            Setting("batch.parameters.MaxJobCount", "nothing", "9"),
        ),
        (
            ("timing:", "batch: {accounting: {}}\ntiming:"),
            Setting("batch.accounting.port", "nothing", "6819"),
        ),
        (
            ("timing:", "provider: {mounts: [/home, /srv]}\ntiming:"),
            Setting("provider.mounts", "nothing", "/home, /srv"),
        ),
        (
            ("image: base}", "image: base, features: [x]}"),
            Setting("groups.general.features", "nothing", "x"),
        ),
        (
            ("MaxTime: 30", "MaxTime: 60"),
            Setting("partitions.debug.parameters.MaxTime", "30", "60"),
        ),
        (NOT_IN_DEBUG, Setting("partitions.debug.groups", "quick, general", "general")),
    ],
)
def test_all_else_is_told_by_its_key(change: tuple[str, str], setting: Setting) -> None:
    changes = diff(former(), after(change))
    assert changes.settings == (setting,)
    assert changes.lines == (str(setting),)
    assert not changes.only_sizes
    assert not changes.refusals
    assert changes.partitions_changed == (("debug",) if "debug" in setting.key else ())


def test_shared_filesystems_are_told_by_their_paths() -> None:
    both = "shared: [{path: /home}, {path: /data, source: 'nas:/x', options: [ro]}]\ntiming:"
    before, wanted = (
        after(("timing:", "shared: [{path: /home}]\ntiming:")),
        after(("timing:", both)),
    )
    assert diff(before, wanted).lines == (
        "shared./data.path: nothing → /data",
        "shared./data.source: nothing → nas:/x",
        "shared./data.type: nothing → nfs4",
        "shared./data.options: nothing → ro",
    )


def test_a_long_value_is_cut() -> None:
    long = "x" * 100
    change = ("timing:", f"batch: {{parameters: {{MailProg: {long}}}}}\ntiming:")
    (setting,) = diff(former(), after(change)).settings
    assert setting.new == "x" * 59 + "…"


# What cannot change


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("cluster", ""),
        ("state", "state: /srv/blue"),
        ("control", "control: container"),
        ("batch.kind", "batch: {kind: fake}"),
        ("batch.attach", "batch: {attach: /etc/slurm/slurm.conf}"),
        ("batch.user", "batch: {user: root}"),
    ],
)
def test_what_a_living_cluster_is_made_on_cannot_change(key: str, lines: str) -> None:
    name = "green" if key == "cluster" else "blue"
    changes = diff(former(), after(("cluster: blue", f"cluster: {name}\n{lines}")))
    assert changes.refusals[0].startswith(f"{key} cannot change from ")
    assert FIXED[key] in changes.refusals[0]
    assert not changes.only_sizes


WATCHED = """\
cluster: blue
batch: {BATCH}
provider: {kind: command, create: [on], delete: [off], list: [list]}
groups: {general: {nodes: "c[1-2]"}}
partitions: {cloud: {groups: [general]}}
"""


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("kind: torque, server: a", "kind: torque, server: b", "batch.server"),
        ("kind: openpbs", "kind: openpbs, server: b", "batch.server"),
        ("kind: gridengine, root: /a", "kind: gridengine, root: /b", "batch.root"),
        ("kind: gridengine, cell: a", "kind: gridengine", "batch.cell"),
        ("kind: gridengine", "kind: gridengine, placeholder: nobody", "batch.placeholder"),
        ("attach: /s.conf", "attach: /s.conf, polling: {every: 5s}", "batch.polling"),
        ("attach: /s.conf, polling: {}", "attach: /s.conf", "batch.polling"),
    ],
)
def test_the_batch_system_that_is_watched_cannot_change(old: str, new: str, key: str) -> None:
    """Its nodes would look as if they were lost, and their instances would be deleted."""
    was, wanted = (spec.parse(WATCHED.replace("BATCH", text), "c.yaml") for text in (old, new))
    (refusal,) = diff(was, wanted).refusals
    assert refusal.startswith(f"{key} cannot ")
    assert refusal.endswith("; put it back, or destroy the cluster and deploy it again")


def test_how_it_is_watched_can_change() -> None:
    old, new = "kind: torque", "kind: torque, bin: /opt/bin, polling: {every: 5s}"
    was, wanted = (spec.parse(WATCHED.replace("BATCH", text), "c.yaml") for text in (old, new))
    assert not diff(was, wanted).refusals


def test_accounting_can_be_given_up() -> None:
    was = spec.parse(FORMER + "batch: {accounting: {}}\n", "c.yaml")
    assert not diff(was, former()).refusals


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        ("{kind: none}", "from containers to none"),
        ("{subnet: 10.1.0.0/20}", "from containers to containers 10.1.0.0/20"),
    ],
)
@pytest.mark.parametrize("nodes", ["n[1-6]", "x[1-6]"])
def test_nodes_cannot_move_to_another_provider(provider: str, told: str, nodes: str) -> None:
    wanted = after(("n[1-6]", nodes), ("image: base}", f"image: base, provider: {provider}}}"))
    (refusal,) = diff(former(), wanted).refusals
    assert refusal.startswith(f"nodes of group general cannot move {told}; ")


def test_nodes_cannot_move_to_a_group_of_another_provider() -> None:
    wanted = after(
        ("q[1-3]", "q[2-3]"),
        (
            "partitions:",
            "  metal: {nodes: q1, provider: {kind: none}, flavors: [small]}\npartitions:",
        ),
    )
    (refusal,) = diff(former(), wanted).refusals
    assert refusal.startswith("nodes of group quick cannot move to group metal from containers")


def test_a_group_without_nodes_may_get_another_provider() -> None:
    was = after(("n[1-6]", ""), ("min: 2", "min: 0"))
    wanted = after(("n[1-6]", ""), ("min: 2, ", "provider: {kind: none}, "))
    assert not diff(was, wanted).refusals


def test_big_clusters_are_compared_fast() -> None:
    text = "cluster: blue\ngroups:\n  a:\n    nodes: n[00000-65535],x[1-34464]\n"
    was = spec.parse(text, "c.yaml")
    wanted = spec.parse(text.replace("34464", "30000"), "c.yaml")
    both = union(wanted, was, nodeset.expand("x[30001-34464]"))
    assert both.groups["a"].nodes == "n[00000-65535],x[1-30000],x[30001-34464]"
    assert diff(was, wanted).names_removed == {"a": "x[30001-34464]"}


def test_nodes_with_addresses_of_their_own_can_leave_one_by_one() -> None:
    top = "cluster: c\nprovider: {kind: none}\n"
    pool = f"{top}groups: {{p: {{nodes: 'a[1-3]', addresses: {{a1: 10.0.0.1, a3: 10.0.0.3}}}}}}"
    former, wanted = spec.parse(pool, "c.yaml"), spec.parse(top, "c.yaml")
    both = union(wanted, former, ["a2", "a3"])
    assert (both.groups["p"].nodes, both.addresses) == ("a[2-3]", {"a3": "10.0.0.3"})
