"""What `tide attach` finds and says, from what a real slurmctld printed."""

import asyncio
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.batch import slurm_commands, slurm_munge
from springtide.batch.running import Output
from springtide.batch.slurm_attached import AttachedSlurm
from springtide.batch.slurm_attachment import Attachment
from springtide.batch.slurm_commands import Commands
from springtide.batch.slurm_existing import (
    MUNGE_SOCKET,
    Conf,
    Line,
    Running,
    parse_lines,
    parse_running,
    read,
)
from springtide.batch.slurm_include import compose_include, decide_clashes
from springtide.batch.slurm_service import PATH
from springtide.batch.slurm_standing import Standing
from springtide.cli import attach_checks, attach_remove, attached, attached_checks
from springtide.cli.attach_checks import Sight
from springtide.cli.attach_text import render_joining, render_leaving, render_restart
from springtide.cli.client import Client
from springtide.cli.consent import Consent
from springtide.cli.endings import Complaint
from springtide.cli.main import app
from springtide.cli.subject import Check, Subject
from springtide.ports import Unavailable
from springtide.spec import Cluster, parse

RECORDED = Path(__file__).parents[1] / "recorded"
HOST = socket.gethostname()
CONF = Path("/etc/slurm/slurm.conf")
PLAIN = f"""\
SlurmctldHost={HOST}
SlurmUser=slurm
TreeWidth=3
PrologSlurmctld=/etc/slurm/prolog
NodeName=static[1-3] CPUs=2
PartitionName=old Nodes=static[1-3] Default=YES
"""
CLOUD = "provider: {kind: command, create: [on], delete: [off], list: [list]}"
BATCH = "attach: /etc/slurm/slurm.conf, prolog: /etc/slurm/prolog"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may write for others")


class World:
    """A Slurm as it would be read, and a cluster for it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        text = (RECORDED / "slurm-22.05.8__scontrol-show-config_plain.out").read_text()
        shown = parse_running(text.replace("head(10.0.0.1)", HOST)).settings
        self.shown = {**shown, "treewidth": "3", "slurmctldparameters": ""}

    def cluster(self, batch: str = BATCH, more: str = "") -> Cluster:
        groups = "groups: {general: {nodes: 'n[1-9]'}}"
        head = f"cluster: blue\nstate: {self.state}\n"
        return parse(f"{head}batch: {{{batch}}}\n{groups}\n{more}", "c.yaml")

    def conf(self, text: str = PLAIN) -> Conf:
        ours = self.state / "conf" / "springtide.conf"
        return read(CONF, ours, lambda path: text)

    def sight(self, cluster: Cluster | None = None, conf: str = PLAIN, **shown: str) -> Sight:
        spec = cluster or self.cluster()
        found, running = self.conf(conf), Running({**self.shown, **shown})
        wanted = compose_include(spec, found, running, "")
        standing = Standing(found, running, (), wanted, wanted, running.booted_at - 9, "")
        about = Subject(spec, Client(spec.state), None, Path("/root/cluster.yaml"))
        return Sight(about, Attachment(spec), found, running, standing)

    def loaded(self, cluster: Cluster | None = None, conf: str = "", **shown: str) -> Sight:
        """A slurmctld that runs with our include; but what is shown counts."""
        text = f"{PLAIN}{conf}include {self.state}/conf/springtide.conf\n"
        plain = self.sight(cluster, text)
        assert isinstance(plain.standing, Standing)
        ours = dict(pair for line in parse_lines(plain.standing.wanted) for pair in line.settings)
        return self.sight(cluster, text, **{**ours, **shown})

    def beside(self, cluster: Cluster) -> Sight:
        """The include is linked, and included without a path."""
        sight = self.loaded(cluster)
        now = standing(sight)
        conf = replace(now.conf, ours=Line(CONF, 7, "include springtide.conf"))
        return replace(sight, conf=conf, standing=replace(now, conf=conf))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    lookup(monkeypatch, socket.EAI_NONAME)
    return World(tmp_path / "s")


def lookup(monkeypatch: pytest.MonkeyPatch, errno: int) -> None:
    """Have no name server of this machine be asked for our nodes."""

    def fail(*_: object) -> None:
        raise socket.gaierror(errno, "as the test wants it")

    monkeypatch.setattr(socket, "getaddrinfo", fail)


def only(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


# --- what must be right before -------------------------------------------------------------


def before(sight: Sight) -> list[Check]:
    looks = [look for look in attach_checks.required(sight) if look not in UNTRIED]
    return attached_checks.look(looks, sight)


UNTRIED = (attach_checks.look_at_munge, attach_checks.look_at_include)
"""They run programs."""


def test_a_plain_slurm_can_be_attached_to(world: World) -> None:
    assert [check for check in before(world.sight()) if check.ok is False] == []


def test_an_answer_that_makes_no_sense_is_told_in_words(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks prints them, and no traceback."""
    done = Output(["scontrol"], 0, "nonsense\n", "")
    monkeypatch.setattr(Commands, "run", lambda self, command, conf=None: done)
    attachment = Attachment(world.cluster())
    with pytest.raises(Unavailable, match="scontrol printed 'nonsense' instead of a node"):
        attachment.look(world.conf(), Running(world.shown))
    with pytest.raises(Unavailable, match="squeue printed 'nonsense' instead of a job"):
        attachment.jobs()
    with pytest.raises(Unavailable, match="scontrol did not print the configuration"):
        attachment.read_running()


@needs_root
@pytest.mark.parametrize(
    ("munge", "limit_s", "said"),
    [
        ("echo 'Failed to access /s' >&2; exit 6", 60, "munge says: Failed to access /s"),
        ("exec sleep infinity", 0.1, "munge took longer than 0.1 s"),
    ],
)
def test_a_munged_that_is_away_is_to_be_started(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    munge: str,
    limit_s: float,
    said: str,
) -> None:
    (tmp_path / "munge").write_text(f"#!/bin/sh\n{munge}\n")
    (tmp_path / "munge").chmod(0o755)
    monkeypatch.setattr(slurm_munge, "PATH", f"{tmp_path}:{PATH}")
    monkeypatch.setattr(slurm_munge, "ANSWER_S", limit_s)
    (found,) = attach_checks.look_at_munge(world.sight())
    assert found.ok is False
    assert found.text == f"munged at {MUNGE_SOCKET} does not answer: {said}"
    assert found.todo == "start munged; if it runs, restart it"


def test_a_version_that_is_too_old_is_refused(world: World) -> None:
    sight = world.sight()
    old = Running({**world.shown, "slurm_version": "20.11.4"})
    found = only(before(replace(sight, running=old)), "Slurm's version")
    assert (found.ok, found.text) == (
        False,
        "Slurm 20.11 is too old; install Slurm 22.05 or newer",
    )


def test_a_slurmctld_elsewhere_is_refused(world: World) -> None:
    found = only(before(world.sight(slurmctldhost="head(10.0.0.1)")), "slurmctld")
    assert found.ok is False
    assert found.todo == "run this on head: slurmctld calls our programs there"


def test_a_slurmctld_of_another_user_is_refused(world: World) -> None:
    found = only(before(world.sight(slurmuser="root(0)")), "SlurmUser")
    assert found.ok is False
    assert found.todo == "set `batch: {user: root}`"


def test_names_that_are_taken_are_refused(world: World) -> None:
    taken = PLAIN.replace("static", "n").replace("PartitionName=old", "PartitionName=main")
    found = before(world.sight(conf=taken))
    assert only(found, "names of nodes").text == f"n[1-3] is defined in {CONF} already"
    assert only(found, "names of partitions").ok is False


def test_a_power_saving_of_theirs_is_refused(world: World) -> None:
    found = only(before(world.sight(conf=f"{PLAIN}ResumeProgram=/sbin/wake\n")), "their programs")
    assert found.ok is False
    assert "ResumeProgram is /sbin/wake" in found.text


def test_a_slurm_has_one_cluster_attached_to_it(world: World, tmp_path: Path) -> None:
    """What is said of programs and partitions of others would break the first one."""
    first = tmp_path / "burst"
    first.mkdir()
    conf = PLAIN.replace("/etc/slurm/prolog", f"{first}/bin/prolog")
    conf += f"PartitionName=main Nodes=ALL\nResumeProgram={first}/bin/resume\n"
    assert "other cluster" not in [check.name for check in before(world.sight(conf=conf))]
    (first / "cluster.yaml").touch()
    (found,) = [check for check in before(world.sight(conf=conf)) if check.ok is False]
    assert found.name == "other cluster"
    assert found.text.startswith(f"the cluster in {first} is attached to this Slurm already")
    assert found.todo.startswith(f"add your groups to its file (see `tide status --state {first}`)")


def test_of_a_slurm_conf_that_cannot_be_read_nothing_else_is_said(world: World) -> None:
    missing = Unavailable("/x/slurm.conf cannot be read: No such file or directory")
    sight = replace(world.sight(), conf=missing, running=missing, standing=missing)
    assert "their programs" not in [check.name for check in before(sight)]


def test_a_prolog_of_theirs_must_be_chained(world: World) -> None:
    cluster = world.cluster("attach: /etc/slurm/slurm.conf")
    found = only(before(world.sight(cluster)), "their prolog")
    assert (found.ok, found.todo) == (False, "set `batch: {prolog: /etc/slurm/prolog}`")
    assert only(before(world.sight()), "their prolog").ok


def test_a_reboot_program_of_theirs_may_stay(world: World) -> None:
    sight = world.sight(conf=f"{PLAIN}RebootProgram=/sbin/reboot\n")
    found = only(before(sight), "their RebootProgram")
    assert found.ok is None
    assert "`tide rebuild` drains them" in found.todo


def test_with_power_actions_it_does_not_matter_what_their_reboot_program_is(world: World) -> None:
    cluster = world.cluster(f"{BATCH}, actions: true")
    conf = (
        f"{PLAIN}RebootProgram=/sbin/reboot\nPowerAction=Reboot Location=slurmd Program=/sbin/r\n"
    )
    sight = world.sight(cluster, conf=conf, slurm_version="26.05.5")
    assert isinstance(sight.standing, Standing)
    assert "PowerAction=rebuild " in sight.standing.wanted
    assert "PowerAction=reboot " not in sight.standing.wanted
    assert not [check for check in before(sight) if check.name == "their RebootProgram"]
    clashes = decide_clashes(sight.standing.conf, sight.standing.wanted)
    assert not [clash for clash in clashes if clash.line.kind == "poweraction"]


def test_a_name_server_that_is_away_is_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "names" not in [check.name for check in state(world.loaded())]
    lookup(monkeypatch, socket.EAI_AGAIN)
    told = only(state(world.loaded()), "names")
    assert told.ok is None
    assert told.text == "nobody answers for n1: slurmctld would wait 10 s for each such name"


def test_a_slurm_that_does_not_answer_is_told_of_once(world: World) -> None:
    away = Unavailable("nobody answers")
    sight = replace(world.sight(), running=away, standing=away)
    wrong = [check.name for check in before(sight) if check.ok is False]
    assert wrong == ["slurmctld"]
    assert "nobody" not in " ".join(check.text for check in state(sight))


def test_a_slurm_conf_in_etc_itself_cannot_be_mounted(world: World) -> None:
    cluster = world.cluster("attach: /etc/slurm.conf, prolog: /etc/slurm/prolog")
    found = only(before(world.sight(cluster)), "slurm.conf")
    assert found.ok is False
    assert found.todo == "move it to a directory of its own"


IN_ITS_DIRECTORY = f"""\
{PLAIN}SlurmdSpoolDir=/etc/slurm/spool/%n
SlurmdLogFile=/etc/slurm/slurmd.log
SlurmdPidFile=/run/slurmd.pid
"""


def places(sight: Sight) -> list[str]:
    found = [check for check in before(sight) if check.name == "places"]
    assert all(check.ok is False and check.todo for check in found)
    return [check.text for check in found]


def test_what_container_nodes_cannot_write_is_found(world: World) -> None:
    assert places(world.sight()) == []
    seen = "but container nodes see /etc/slurm read-only, as it is here"
    assert places(world.sight(conf=IN_ITS_DIRECTORY)) == [
        f"SlurmdSpoolDir is /etc/slurm/spool/%n, {seen}",
        f"SlurmdLogFile is /etc/slurm/slurmd.log, {seen}",
    ]
    assert places(world.sight(world.cluster(more=CLOUD), conf=IN_ITS_DIRECTORY)) == []


def test_nodes_may_write_to_what_is_mounted_into_them(world: World) -> None:
    for more in (
        "provider: {kind: containers, mounts: [/etc/slurm]}",
        "provider: {kind: containers, mounts: [/etc/slurm/spool]}",
    ):
        found = places(world.sight(world.cluster(more=more), conf=IN_ITS_DIRECTORY))
        assert len(found) == ("spool" in more)


def test_a_node_has_a_munge_of_its_own_unless_its_socket_lies_beside_the_key(world: World) -> None:
    inside = f"{PLAIN}AuthInfo=socket=/etc/slurm/munge/socket\n"
    assert places(world.sight(conf=inside)) == []
    cluster = world.cluster(f"{BATCH}, munge_key: /etc/slurm/munge/key")
    assert places(world.sight(cluster, conf=inside)) == [
        "munge's socket is /etc/slurm/munge/socket, but container nodes see /etc/slurm/munge "
        "read-only, as it is here"
    ]


# --- how it runs with us -------------------------------------------------------------------


def state(sight: Sight) -> list[Check]:
    looks = [look for look in attached_checks.STATE if look is not attached_checks.look_at_times]
    return attached_checks.look(looks, sight)


def test_a_slurm_that_is_not_attached_yet_has_nothing_wrong(world: World) -> None:
    found = state(world.sight())
    assert [check for check in found if check.ok is False] == []
    assert only(found, "include").text.endswith("springtide.conf yet")
    assert only(found, "loaded").ok is None


def test_a_slurm_that_runs_with_us_is_well(world: World) -> None:
    found = state(world.loaded())
    assert [check for check in found if check.ok is False] == []
    assert only(found, "loaded").ok
    assert only(found, "their nodes").text == "3, none is ever suspended"


def test_a_tree_that_is_too_small_is_wrong(world: World) -> None:
    found = only(state(world.loaded(treewidth="11")), "TreeWidth")
    assert found.ok is False
    assert found.text.startswith("11 for 12 nodes")
    assert found.todo == f"take TreeWidth=3 out of {CONF}, line 3"
    assert only(state(world.loaded(treewidth="12")), "TreeWidth").ok


def test_options_that_slurmctld_does_not_have_are_wrong(world: World) -> None:
    found = state(world.loaded(slurmctldparameters="power_save_interval=1"))
    missing = {check.text.split()[0] for check in found if check.name == "SlurmctldParameters"}
    assert {"cloud_reg_addrs", "reboot_from_controller"} <= missing


def test_nodes_of_theirs_that_would_be_suspended_are_wrong(world: World) -> None:
    found = only(
        state(world.loaded(suspendtime="300 sec", suspendexcnodes="static[1-2]")), "their nodes"
    )
    assert (found.ok, found.text) == (False, "static3 would be suspended after 300 sec")
    assert only(state(world.loaded(suspendexcnodes="")), "their nodes").ok


def test_hidden_nodes_are_wrong_unless_they_are_wanted_so(world: World) -> None:
    assert only(state(world.loaded(privatedata="jobs")), "PrivateData").ok is False
    hiding = world.cluster(f"{BATCH}, hide_off: true")
    names = [check.name for check in state(world.loaded(hiding, privatedata="jobs"))]
    assert "PrivateData" not in names


def test_a_line_that_was_taken_out_again_is_wrong(world: World) -> None:
    sight = world.sight(resumeprogram=f"{world.state}/bin/resume")
    found = only(state(sight), "include")
    assert found.ok is False
    assert "any more" in found.text


def test_other_machines_need_the_include_too(world: World) -> None:
    found = only(state(world.loaded()), "other machines")
    assert "copy it there" in found.todo
    configless = world.loaded(conf="SlurmctldParameters=enable_configless\n")
    assert "ln -s" in only(state(configless), "other machines").todo
    here = PLAIN.replace("static[1-3] CPUs", f"static1 NodeHostname={HOST} CPUs")
    assert "other machines" not in [check.name for check in state(world.sight(conf=here))]


def test_nodes_in_a_cloud_are_not_handed_an_include_with_a_path(world: World) -> None:
    assert only(state(world.loaded()), "include").ok
    found = only(state(world.loaded(world.cluster(more=CLOUD))), "include")
    assert found.ok is False
    assert "not hand that out" in found.text
    assert f"ln -s {world.state}/conf/springtide.conf /etc/slurm/springtide.conf" in found.todo
    assert "`include springtide.conf`" in found.todo
    assert only(state(world.beside(world.cluster(more=CLOUD))), "include").ok


def test_nor_are_they_handed_other_includes_with_a_path(world: World) -> None:
    theirs = Line(CONF, 2, "include /srv/slurm/nodes.conf")

    def checks(cluster: Cluster) -> list[Check]:
        sight = world.loaded(cluster)
        conf = replace(standing(sight).conf, apart=(theirs,))
        return [one for one in state(replace(sight, conf=conf)) if one.name == "slurm.conf"]

    (found,) = checks(world.cluster(more=CLOUD))
    assert (found.ok, found.text.startswith(f"{CONF}, line 2: /srv/slurm/nodes.conf ")) == (
        False,
        True,
    )
    assert found.todo == f"put it beside {CONF}, and write `include nodes.conf`"
    assert checks(world.cluster()) == []


def test_other_machines_with_a_slurm_conf_of_their_own_need_the_include_beside_it(
    world: World,
) -> None:
    """That slurmctld is configless for nodes of ours hands nothing to them."""
    found = only(state(world.beside(world.cluster(more=CLOUD))), "other machines")
    assert "copy it there beside their slurm.conf" in found.todo


def test_what_may_surprise_is_told(world: World) -> None:
    found = only(state(world.loaded(returntoservice="0")), "ReturnToService")
    assert (found.ok, found.text) == (True, "0, so we give nodes of ours back to service")
    sight = world.loaded(conf="ProctrackType=proctrack/cgroup\n")
    assert only(state(sight), "cgroups").ok is None


# --- an include that somebody deleted ------------------------------------------------------


def without_include(world: World, taken: str = "") -> Attachment:
    """slurm.conf includes our file, which is not there; slurmctld was seen to run with it."""
    world.state.mkdir()
    conf = world.state / "slurm.conf"
    conf.write_text(f"{PLAIN}include {world.state}/conf/springtide.conf\n")
    (world.state / "run").mkdir()
    (world.state / "run" / "springtide.conf").write_text(taken)
    return Attachment(world.cluster(f"attach: {conf}"))


def refuse_to_run(command: object, *_: object) -> Output:
    raise AssertionError(f"{command} would try for a minute")


def test_an_include_that_is_gone_is_told_of_and_slurm_is_not_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_commands, "ran", refuse_to_run)
    conf = without_include(world).conf
    spec = world.cluster(f"attach: {conf}")
    sight = attach_checks.see(Subject(spec, Client(spec.state), None, Path("/root/cluster.yaml")))
    found = only(before(sight), "include")
    gone = f"{conf}, line 7 includes {world.state}/conf/springtide.conf, which is not there"
    assert (found.ok, found.text) == (False, f"{gone}, so that no command of Slurm answers")
    assert found.todo == "run `tide attach /root/cluster.yaml`"
    assert "slurmctld" not in [check.name for check in before(sight)]
    with pytest.raises(Unavailable, match=re.escape(f"{gone}; run `tide attach`")):
        asyncio.run(AttachedSlurm(spec).jobs())


@needs_root
def test_an_include_that_is_gone_is_written_as_slurmctld_last_ran_with_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    attachment = without_include(world, "TreeWidth=12\n")
    spec = world.cluster(f"attach: {attachment.conf}")
    attached.restore(spec)
    assert attachment.include.read_text() == "TreeWidth=12\n"
    assert "springtide.conf, which is not there; it was written again" in capsys.readouterr().err
    attached.restore(spec)
    assert capsys.readouterr().err == ""


def test_partitions_that_were_closed_stay_so_until_nodes_are_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachment = without_include(world, "as before")
    attachment.include.parent.mkdir()
    attachment.include.write_text("PartitionName=main Nodes=n1 State=UP\n")
    taken = replace(standing(world.loaded()), taken="as before")
    asked: list[str] = []

    def answer(_: object, command: list[str], conf: Path | None = None) -> Output:
        asked.append(" ".join(command[1:]))
        up = sum("update" in one for one in asked) % 2 == 0
        return Output(command, 0, f"PartitionName=main State={'UP' if up else 'DOWN'}\n", "")

    monkeypatch.setattr(Commands, "run", answer)
    monkeypatch.setattr(Attachment, "load", lambda self: taken)
    attachment.close()
    attachment.reload()
    assert [one for one in asked if "update" in one] == ["update partitionname=main state=DOWN"]
    attachment.reopen()
    assert asked[-1] == "update partitionname=main state=UP"
    before = list(asked)
    attachment.reopen()
    assert asked == before


# --- what is to be done ------------------------------------------------------------------------


def standing(sight: Sight) -> Standing:
    assert isinstance(sight.standing, Standing)
    return sight.standing


def joining(sight: Sight) -> list[str]:
    now = standing(sight)
    restart = render_restart(now.running, "systemctl restart slurmctld")
    return render_joining(now, sight.attachment.include, restart, "tide attach FILE")


def test_the_lines_to_add_and_to_take_out_are_told_exactly(world: World) -> None:
    assert joining(world.sight()) == [
        f"add to {CONF}, as its last line:",
        f"  include {world.state}/conf/springtide.conf",
        "take out what the include has now, with what it was if it is a list:",
        f"  {CONF}, line 3: TreeWidth=3",
        f"  {CONF}, line 4: PrologSlurmctld=/etc/slurm/prolog",
        "restart slurmctld; jobs go on (no `scontrol reconfigure` before that: 22.05.8 ends when "
        "nodes come or go):",
        "  systemctl restart slurmctld",
        "then run this again:",
        "  tide attach FILE",
    ]


def test_only_a_part_of_a_line_may_have_to_go(world: World) -> None:
    lines = joining(world.sight(conf=PLAIN.replace("TreeWidth=3", "TreeWidth=3 MaxJobCount=9")))
    assert f"  {CONF}, line 3: TreeWidth of `TreeWidth=3 MaxJobCount=9`" in lines


def test_what_holds_for_all_later_nodes_must_not_hold_for_ours(world: World) -> None:
    lines = joining(world.sight(conf=f"NodeName=DEFAULT Gres=gpu:8\n{PLAIN}"))
    assert lines[0].startswith(f"add to {CONF}, before line 1 (what `NodeName=DEFAULT Gres=gpu:8`")


def test_a_configless_slurm_is_told_to_link_the_include(world: World) -> None:
    lines = joining(world.sight(slurmctldparameters="enable_configless"))
    assert f"  ln -s {world.state}/conf/springtide.conf /etc/slurm/springtide.conf" in lines
    assert "  include springtide.conf" in lines


def test_a_slurm_that_gets_configless_by_us_is_told_so_too(world: World) -> None:
    lines = joining(world.sight(world.cluster(more=CLOUD)))
    assert f"  ln -s {world.state}/conf/springtide.conf /etc/slurm/springtide.conf" in lines
    assert "  include springtide.conf" in lines


def test_a_newer_slurmctld_need_not_be_restarted(world: World) -> None:
    assert not [line for line in joining(world.sight(slurm_version="23.11.4")) if "restart" in line]
    assert render_restart(None, "as you do")[0] == "start slurmctld, which does not answer:"


def test_whoever_leaves_says_what_to_put_back(world: World) -> None:
    include = standing(world.sight()).wanted
    conf = world.conf(f"TreeWidth=3\ninclude {world.state}/conf/springtide.conf\n")
    path = world.state / "conf" / "springtide.conf"
    assert render_leaving(conf, path, include, [], "tide attach --remove") == [
        f"take out of {CONF}, line 2:",
        f"  include {path}",
        f"put back into {CONF} (until then {path} has it):",
        "  PrologSlurmctld=/etc/slurm/prolog",
        "then run this again, which removes the rest:",
        "  tide attach --remove",
    ]


def test_whoever_leaves_a_slurmctld_that_is_away_is_told_to_start_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --yes it is refused all the same, while a node is up."""

    def away(*_: object) -> Output:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(Commands, "run", away)
    with pytest.raises(Complaint, match="nobody answers; start slurmctld, and run this again; if"):
        attach_remove._refuse_jobs(Attachment(world.cluster()), Consent(yes=False))


def test_a_file_without_attach_is_told_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"cluster: own\nstate: {tmp_path / 's'}\n")
    with pytest.raises(SystemExit) as ended:
        app(["attach", str(file)])
    assert ended.value.code == 2
    assert "attach: /etc/slurm/slurm.conf" in capsys.readouterr().err


def test_a_file_with_attach_is_not_deployed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"cluster: own\nstate: {tmp_path / 's'}\nbatch: {{attach: /x/slurm.conf}}\n")
    with pytest.raises(SystemExit) as ended:
        app(["deploy", str(file)])
    assert ended.value.code == 2
    assert f"use `tide attach {file}`" in capsys.readouterr().err
