"""A slurm.conf that somebody else wrote, what its slurmctld says, and what we put beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from springtide.batch.slurm_existing import (
    Conf,
    Running,
    UnreadableConf,
    parse_lines,
    parse_running,
    read,
)
from springtide.batch.slurm_include import (
    compose_include,
    decide_clashes,
    decide_differences,
    parse_former,
    render_left,
    same,
)
from springtide.batch.slurm_standing import Standing
from springtide.batch.unread import UnreadableError
from springtide.spec import Cluster, parse

RECORDED = Path(__file__).parents[1] / "recorded"
CONF = Path("/etc/slurm/slurm.conf")
OURS = Path("/var/lib/springtide/blue/conf/springtide.conf")
PLAIN = """\
# The site's own file, written by hand long ago.
ClusterName=old
SlurmctldHost=head(10.0.0.1)
SlurmUser=slurm
TreeWidth=10
PrologSlurmctld=/etc/slurm/prolog
SlurmctldParameters=enable_configless
SuspendTime=300  # does nothing without programs
NodeName=static[1-3],big CPUs=2 \\
    RealMemory=1000
PartitionName=DEFAULT MaxTime=1-0
PartitionName=old Nodes=static[1-3] Default=YES
"""


def conf_of(text: str = PLAIN, **others: str) -> Conf:
    files = {CONF: text, **{CONF.parent / name: each for name, each in others.items()}}

    def read_text(path: Path) -> str:
        try:
            return files[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", str(path)) from None

    return read(CONF, OURS, read_text)


def cluster_with() -> Cluster:
    batch = f"batch: {{attach: {CONF}, prolog: /etc/slurm/prolog}}"
    groups = "groups: {general: {nodes: 'n[1-9]'}}"
    return parse(f"cluster: blue\n{batch}\n{groups}\n", "c.yaml")


@pytest.fixture(scope="module")
def running() -> Running:
    text = (RECORDED / "slurm-22.05.8__scontrol-show-config_plain.out").read_text()
    return parse_running(text)


# The file


def test_a_slurm_conf_is_read_with_comments_quotes_and_lines_that_go_on() -> None:
    conf = conf_of()
    assert conf.settings["suspendtime"] == "300"
    assert conf.settings["slurmctldparameters"] == "enable_configless"
    assert conf.nodes == ["static1", "static2", "static3", "big"]
    assert conf.partitions == ["old"]
    assert conf.default_partition == "old"
    assert [line.number for line in conf.defaults] == [11]
    assert parse_lines('A="x y"  B = z # c')[0].pairs == (("a", "x y"), ("b", "z"))


def test_a_slurm_conf_is_read_with_what_it_includes() -> None:
    conf = conf_of("include nodes.conf\nTreeWidth=7\n", **{"nodes.conf": "NodeName=a[1-2]\n"})
    assert conf.nodes == ["a1", "a2"]
    assert conf.files == [CONF, CONF.parent / "nodes.conf"]
    assert conf.ours is None
    assert conf.settings == {"treewidth": "7"}


def test_our_include_is_found_and_not_taken_for_the_sites_own() -> None:
    conf = conf_of(f"{PLAIN}  Include  {OURS}\n")
    assert conf.ours is not None
    assert conf.ours.number == 13
    assert conf.settings == conf_of().settings
    assert conf.render("TreeWidth=1").endswith("Default=YES\nTreeWidth=1\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("include gone.conf\n", "gone.conf cannot be read: No such file or directory"),
        ("include slurm.conf\n", "is included by files that include each other"),
    ],
)
def test_a_slurm_conf_that_cannot_be_read_is_told_of(text: str, said: str) -> None:
    with pytest.raises(UnreadableConf, match=said):
        conf_of(text)


# slurmctld


def test_what_slurmctld_says_of_itself_is_understood(running: Running) -> None:
    assert running.version == "22.05.8"
    assert running.release == (22, 5)
    assert running.user == "slurm"
    assert running.host == "head"
    assert running.has_read_the_file
    assert running.booted_at > 1_700_000_000
    assert running.get("treewidth") == "10"
    assert running.get("resumeprogram") == ""


def test_newer_versions_number_what_there_can_be_several_of() -> None:
    text = "SLURM_VERSION = 24.11.5\nPrologSlurmctld[0]      = /etc/slurm/prolog\n"
    assert parse_running(text).get("prologslurmctld") == "/etc/slurm/prolog"


def test_something_else_than_a_configuration_is_refused() -> None:
    with pytest.raises(UnreadableError):
        parse_running("slurm_load_ctl_conf error: Unable to contact slurm controller\n")


# The include


def test_the_include_merges_lists_protects_nodes_and_leaves_the_default(running: Running) -> None:
    include = compose_include(cluster_with(), conf_of(), running, "")
    ours = dict(pair for line in parse_lines(include) for pair in line.settings)
    assert "enable_configless" in ours["slurmctldparameters"].split(",")
    assert ours["suspendexcnodes"] == "big,static[1-3]"
    assert ours["suspendtime"] == "INFINITE"
    assert "Default=NO" in include
    assert parse_former(include) == {
        "treewidth": "10",
        "prologslurmctld": "/etc/slurm/prolog",
        "slurmctldparameters": "enable_configless",
        "suspendtime": "300",
    }


def test_the_include_stays_the_same_when_the_lines_have_gone_as_told(running: Running) -> None:
    first = compose_include(cluster_with(), conf_of(), running, "")
    gone = ("TreeWidth", "PrologSlurmctld", "SlurmctldParameters", "SuspendTime")
    rest = [line for line in PLAIN.splitlines() if not line.startswith(gone)]
    conf = conf_of("\n".join([*rest, f"include {OURS}"]))
    assert decide_clashes(conf, first) == []
    assert compose_include(cluster_with(), conf, running, first) == first


def test_what_is_right_already_may_stay_where_it_is(running: Running) -> None:
    text = PLAIN.replace("TreeWidth=10", "TreeWidth=13").replace("=300", "=INFINITE")
    include = compose_include(cluster_with(), conf_of(text), running, "")
    keys = {clash.keys for clash in decide_clashes(conf_of(text), include)}
    assert keys == {("PrologSlurmctld",), ("SlurmctldParameters",)}
    assert "TreeWidth" not in include
    assert "SuspendTime=INFINITE" not in include.splitlines()


def test_lists_of_the_cluster_file_are_added_to_those_of_the_site(running: Running) -> None:
    conf = conf_of(f"{PLAIN}SchedulerParameters=bf_continue,bf_interval=60\n")
    batch = "{attach: /etc/slurm/slurm.conf, parameters: {SchedulerParameters: bf_interval=5}}"
    cluster = parse(f"cluster: blue\nbatch: {batch}\n", "c.yaml")
    include = compose_include(cluster, conf, running, "")
    assert "SchedulerParameters=bf_continue,bf_interval=5" in include.splitlines()


def test_every_line_that_stands_against_the_include_is_named(running: Running) -> None:
    conf = conf_of(f"{PLAIN}ResumeRate=5 MaxJobCount=9\n")
    clashes = decide_clashes(conf, compose_include(cluster_with(), conf, running, ""))
    assert [(clash.line.number, clash.keys, clash.is_all) for clash in clashes] == [
        (5, ("TreeWidth",), True),
        (6, ("PrologSlurmctld",), True),
        (7, ("SlurmctldParameters",), True),
        (8, ("SuspendTime",), True),
        (13, ("ResumeRate",), False),
    ]


def test_what_slurmctld_runs_with_is_compared_with_what_we_want(running: Running) -> None:
    include = compose_include(cluster_with(), conf_of(), running, "")
    differences = decide_differences(include, running)
    assert differences["treewidth"] == "10"
    assert differences["resumeprogram"] == ""
    ours = dict(pair for line in parse_lines(include) for pair in line.settings)
    shown = {**running.settings, **ours, "resumerate": "0 nodes/min"}
    assert decide_differences(include, Running(shown)) == {}


@pytest.mark.parametrize(
    ("key", "one", "other", "alike"),
    [
        ("resumerate", "0", "0 nodes/min", True),
        ("suspendtime", "600", "600 sec", True),
        ("suspendtime", "600", "INFINITE", False),
        ("suspendexcnodes", "a[1-2],b", "b,a1,a2", True),
        ("suspendexcnodes", "a[1-2]", "a1", False),
        ("slurmctldparameters", "x,y=1", "y=1,x", True),
        ("slurmctldparameters", "x,y=1", "y=2,x", False),
        ("resumeprogram", "/a", "", False),
    ],
)
def test_values_are_the_same_however_slurm_prints_them(
    key: str, one: str, other: str, alike: bool
) -> None:
    assert same(key, one, other) is alike


def test_what_stays_of_the_include_is_what_slurm_conf_has_lost_to_it(running: Running) -> None:
    include = compose_include(cluster_with(), conf_of(), running, "")
    left = render_left(include, conf_of("TreeWidth=10\n"))
    assert [line.text for line in parse_lines(left)] == [
        "PrologSlurmctld=/etc/slurm/prolog",
        "SlurmctldParameters=enable_configless",
        "SuspendTime=300",
    ]
    assert str(CONF) in left
    assert parse_lines(render_left("", conf_of())) == []


def test_what_stays_of_the_include_can_be_left_again_and_attached_again(running: Running) -> None:
    include = compose_include(cluster_with(), conf_of(), running, "")
    bare = conf_of(f"NodeName=static[1-3],big\nPartitionName=old Default=YES\ninclude {OURS}\n")
    left = render_left(include, bare)
    assert render_left(left, bare) == left
    assert compose_include(cluster_with(), bare, running, left) == include


# How we stand


@pytest.fixture
def taken(running: Running) -> Standing:
    """A slurmctld that was started with our include."""
    conf = conf_of(f"{PLAIN}include {OURS}\n")
    include = compose_include(cluster_with(), conf, running, "")
    ours = dict(pair for line in parse_lines(include) for pair in line.settings)
    shown = Running({**running.settings, **ours})
    return Standing(conf, shown, (), include, include, shown.booted_at - 5, "")


def test_a_slurmctld_that_was_started_since_runs_with_the_include(taken: Standing) -> None:
    assert taken.is_taken
    assert taken.needs_restart  # for all that we know, as nobody has seen it run with ours yet


def test_a_slurmctld_that_was_not_started_since_does_not(taken: Standing) -> None:
    assert not replace(taken, written_at=taken.running.booted_at + 5).is_taken
    assert not replace(taken, missing=("n1",)).is_taken
    assert not replace(taken, conf=conf_of()).is_taken
    unread = Running({**taken.running.settings, "hash_val": "Different Ours=0x1 Slurmctld=0x2"})
    assert not replace(taken, running=unread).is_taken
    assert replace(taken, running=unread, taken=taken.wanted).is_taken


def idle(standing: Standing) -> Standing:
    """Somebody wants another idle time, which can be reread."""
    wanted = standing.wanted.replace("SuspendTime=600", "SuspendTime=60")
    return replace(standing, taken=standing.wanted, wanted=wanted)


def more(standing: Standing) -> Standing:
    wanted = standing.wanted.replace("n[1-9]", "n[1-10]")
    return replace(standing, taken=standing.wanted, wanted=wanted)


def test_an_old_slurmctld_rereads_only_what_does_not_kill_it(taken: Standing) -> None:
    assert idle(taken).may_reload
    assert not more(taken).may_reload
    assert not taken.may_reload


def test_an_old_slurmctld_is_not_asked_to_read_what_its_owner_may_have_in_mind(
    taken: Standing,
) -> None:
    pending = {**taken.running.settings, "hash_val": "Different Ours=0x1 Slurmctld=0x2"}
    assert not replace(idle(taken), running=Running(pending)).may_reload


def test_a_new_slurmctld_rereads_everything(taken: Standing) -> None:
    new = Running({**taken.running.settings, "slurm_version": "23.11.4"})
    assert replace(more(taken), running=new).may_reload
    assert not replace(more(taken), running=new).needs_restart
