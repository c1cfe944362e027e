"""The stand-in for OpenPBS answers as a real 23.06.06 was recorded to, byte for byte."""

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.batch.openpbs_standin.server import Standin

RECORDED = Path(__file__).parents[1] / "recorded"
SETUP = (
    "create resource Qlist type=string_array,flag=h",
    "create queue cloud queue_type=execution,enabled=true,started=true",
    "set queue cloud default_chunk.Qlist=cloud",
)
SUBMITTED = 1794766372.855993
USER = {
    "HOME": "/opt/site/home/tester",
    "LANG": "C.UTF-8",
    "PATH": "/opt/site/pbs/bin:/opt/site/pbs/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SHELL": "/bin/bash",
    "PWD": "/opt/site/home/tester",
}
JOBS = (
    ("-q", "cloud", "-N", "z1", "-l", "select=2:ncpus=2:mem=1gb", "-l", "walltime=00:10:00"),
    ("-q", "cloud", "-N", "arr", "-J", "0-2", "-l", "select=1:ncpus=1"),
    ("-q", "cloud", "-N", "old", "-l", "nodes=1:ppn=2"),
    ("-q", "cloud", "-N", "held", "-h", "-l", "select=1:ncpus=1"),
    ("-q", "cloud", "-N", "big", "-l", "select=1:ncpus=64:mem=500gb"),
    ("-q", "cloud", "-N", "excl", "-l", "select=1:ncpus=1", "-l", "place=scatter:excl"),
    ("-q", "cloud", "-N", "dep", "-W", "depend=afterok:0"),
)


def recorded(name: str) -> str:
    """Without what `time` and the shell said."""
    text = (RECORDED / f"openpbs-23.06.06__{name}").read_text()
    return text.partition("\nreal\t")[0] if name.endswith(".err") else text


@pytest.fixture
def standin(tmp_path: Path) -> Standin:
    made = Standin(tmp_path)
    for command in SETUP:
        manage(made, command)
    return made


def manage(standin: Standin, command: str) -> None:
    done = standin.run("qmgr", "-c", command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def submit(standin: Standin, *arguments: str, env: Mapping[str, str] = USER) -> str:
    done = standin.run("qsub", *arguments, user="tester", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def submit_all(standin: Standin) -> None:
    standin.change(clock=SUBMITTED)
    for number, arguments in enumerate(JOBS):
        if number == 5:
            standin.change(clock=SUBMITTED + 0.5)
        submit(standin, *arguments)


def one_free_one_unknown(standin: Standin) -> None:
    manage(standin, "create node pn1")
    manage(standin, "set node pn1 resources_available.Qlist=cloud")
    manage(standin, "create node pn3")
    standin.change(clock=1794766393.0)
    standin.boots("pn1")
    standin.change(clock=1794766408.0)


# --- nodes -----------------------------------------------------------------------------------


def test_no_nodes_is_a_failure(standin: Standin) -> None:
    """rule 1"""
    done = standin.run("pbsnodes", "-a", "-F", "json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == recorded("pbsnodes-a-no-nodes.err")


def test_nodes_as_a_document_and_as_text(standin: Standin) -> None:
    one_free_one_unknown(standin)
    shown = standin.run("pbsnodes", "-a", "-F", "json").stdout
    assert shown == recorded("pbsnodes-a-json_one-free-one-unknown.out")
    assert standin.run("pbsnodes", "-a").stdout == recorded("pbsnodes-a_one-free-one-unknown.out")


def test_a_new_node(standin: Standin) -> None:
    manage(standin, "create node pn1")
    manage(standin, "set node pn1 resources_available.Qlist=cloud")
    assert standin.run("pbsnodes", "-a").stdout == recorded("qmgr_create-node-pn1.out")


def test_a_drained_busy_node(standin: Standin) -> None:
    manage(standin, "create node pn2 resources_available.Qlist=cloud")
    standin.boots("pn2")
    submit_all(standin)
    for id in ("0", "1[]", "3", "4", "5", "6"):
        standin.run("qdel", id)
    standin.change(clock=1794766486.0)
    assert standin.run("pbsnodes", "-C", "hybrid drain", "-o", "pn2").returncode == 0
    shown = standin.run("pbsnodes", "-F", "json", "-v", "pn2").stdout
    assert shown == recorded("pbsnodes-json_offline-busy.out")


@pytest.mark.parametrize(
    ("command", "code", "name"),
    [
        ("create node pn1", 218, "qmgr_create-dup.err"),
        ("create node nosuchhost99", 214, "qmgr_create-node-unresolvable.err"),
        ("delete node pn9", 214, "qmgr_delete-node-unknown.err"),
        ("delete node pn2", 179, "qmgr_delete-node-busy.err"),
    ],
)
def test_what_qmgr_refuses(standin: Standin, command: str, code: int, name: str) -> None:
    """rule 2"""
    standin.change(resolves=["pn1", "pn2"])
    manage(standin, "create node pn1,pn2 resources_available.Qlist=cloud")
    standin.boots("pn2")
    submit(standin, "-q", "cloud")
    done = standin.run("qmgr", "-c", command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", recorded(name))


def test_what_pbsnodes_refuses(standin: Standin) -> None:
    one_free_one_unknown(standin)
    done = standin.run("pbsnodes", "-o", "pn1", user="tester")
    assert (done.returncode, done.stderr) == (1, recorded("pbsnodes-o_as-user.err"))
    done = standin.run("pbsnodes", "nosuchhost99")
    assert (done.returncode, done.stderr) == (1, recorded("pbsnodes-a_unresolvable.err"))


def test_a_node_whose_mom_was_killed_says_so(standin: Standin) -> None:
    one_free_one_unknown(standin)
    standin.dies("pn1")
    said = recorded("pbsnodes-l_mom-killed.out").split(maxsplit=2)
    shown = json.loads(standin.run("pbsnodes", "-a", "-F", "json").stdout)["nodes"]["pn1"]
    assert [shown["state"], shown["comment"]] == [said[1], said[2].strip()]


# --- jobs ------------------------------------------------------------------------------------


def test_jobs_of_all_kinds_from_zero(standin: Standin) -> None:
    """rule 3"""
    submit_all(standin)
    standin.change(clock=1794766378.0)
    shown = standin.run("qstat", "-f", "-t", "-F", "json", user="tester").stdout
    assert shown == recorded("qstat-ft-json_zero-nodes.out")
    assert standin.run("qstat", user="tester").stdout == recorded("qstat_zero-nodes.out")


def test_managers_see_more_of_a_job(standin: Standin) -> None:
    """With a node that was not heard from the scheduler comments."""
    submit_all(standin)
    standin.change(clock=SUBMITTED + 21.0)
    manage(standin, "create node pn1 resources_available.Qlist=cloud")
    manage(standin, "set server scheduling=true")
    standin.change(clock=1794766408.0)
    shown = standin.run("qstat", "-f", "-F", "json", "0").stdout
    assert shown == recorded("qstat-f-json_root-1.out")


def test_an_empty_queue(standin: Standin) -> None:
    standin.change(clock=1794766633.0)
    shown = standin.run("qstat", "-f", "-F", "json", user="tester")
    assert (shown.returncode, shown.stdout) == (0, recorded("qstat-f-json_empty.out"))
    assert standin.run("qstat").stdout == recorded("qstat_empty.out")


def test_a_job_of_two_nodes_that_runs(standin: Standin) -> None:
    submit_all(standin)
    for id in ("1[]", "2", "3", "4", "5", "6"):
        standin.run("qdel", id)
    two_nodes(standin, 1794766496.0)
    standin.change_job("0.pbssrv", session=242, mtime=1794766498, used=used(4))
    standin.change(clock=1794766499.0)
    shown = standin.run("qstat", "-f", "-F", "json", "0", user="tester").stdout
    assert shown == recorded("qstat-f-json_2node-running.out")


def test_an_array_of_which_tasks_have_ended_beside_jobs_that_run_and_wait(
    standin: Standin,
) -> None:
    submit_all(standin)
    turn(standin, 1794766413.0, "pn1")
    standin.change(clock=1794766443.0)
    for index in ("0", "1"):
        standin.run("qdel", f"1[{index}]")
    turn(standin, 1794766463.0, "pn2")
    array = "1[].pbssrv"
    standin.change_job(array, "0", session=207, used=used(1, "6424kb", "00:00:30"))
    standin.change_job(array, "1", session=211, used=used(1, "6092kb", "00:00:30"))
    standin.change_job(
        array, "2", session=223, used=used(1, "6552kb", "00:00:11"), mtime=1794766455
    )
    standin.change_job("2.pbssrv", session=209, used=used(2), mtime=1794766465)
    standin.change(clock=1794766471.0)
    shown = standin.run("qstat", "-f", "-t", "-F", "json", user="tester").stdout
    assert shown == recorded("qstat-ft-json_running.out")


def test_environments_that_are_hard_to_quote_queues_and_the_server(standin: Standin) -> None:
    two_nodes(standin, 1794766540.0)
    standin.change(next=7)
    submit(standin, "-q", "cloud", "-l", "select=3:ncpus=2")
    standin.change_job("7.pbssrv", mtime=1794766541)
    standin.change(clock=1794766578.0)
    env = {**USER, "NASTY": 'he said "x", back\\\\slash\ttab'}
    one, script = ("-q", "cloud", "-l", "select=1:ncpus=1"), "/opt/site/home/q.sh"
    many = ("-q", "cloud", "-l", "select=1:ncpus=1:mem=100mb+2:ncpus=2:mem=1gb")
    for arguments in (("-v", "NASTY", *one), ("-N", "0123", *one), ("-V", "-N", "allenv", *many)):
        submit(standin, *arguments, script, env=env)
    for id in ("8.pbssrv", "9.pbssrv"):
        standin.change_job(id, starting=True)
    shown = standin.run("qstat", "-f", "-F", "json", user="tester").stdout
    assert shown == recorded("qstat-f-json_nasty.out")
    standin.change(clock=1794766579.0)
    queues = standin.run("qstat", "-Q", "-f", "-F", "json", user="tester").stdout
    assert queues == recorded("qstat-Q-json.out")
    server = standin.run("qstat", "-B", "-f", "-F", "json", user="tester").stdout
    assert server.replace('"total_jobs":\t4', '"total_jobs":\t14') == recorded(
        "qstat-B-json.out"
    ), "it counts those that are over, which are not kept here"


def two_nodes(standin: Standin, at: float) -> None:
    """They are up, and the scheduler has its turn."""
    standin.change(clock=at)
    manage(standin, "create node pn1,pn2 resources_available.Qlist=cloud")
    for name in ("pn1", "pn2"):
        standin.boots(name)
    manage(standin, "set server scheduling=true")


def turn(standin: Standin, at: float, name: str) -> None:
    """The scheduler has its turn, with one more node."""
    standin.change(clock=at)
    manage(standin, f"create node {name} resources_available.Qlist=cloud")
    standin.boots(name)
    manage(standin, "set server scheduling=true")


def used(cores: int, memory: str = "0kb", time: str = "00:00:00") -> dict[str, object]:
    """What a machine measured of a job."""
    found: dict[str, object] = {"cpupercent": 0, "cput": "00:00:00", "mem": memory, "ncpus": cores}
    return {**found, "vmem": "0kb" if memory == "0kb" else "10380kb", "walltime": time}


# --- a server that is down -------------------------------------------------------------------


def test_a_server_that_is_down_prints_a_document_like_that_of_an_empty_queue(
    standin: Standin,
) -> None:
    """rule 1"""
    submit_all(standin)
    standin.change(up=False, clock=1794766583.0)
    done = standin.run("qstat", "-f", "-F", "json", user="tester")
    assert (done.returncode, done.stdout) == (255, recorded("qstat_server-down.out"))
    assert done.stderr == recorded("qstat_server-down.err")
    done = standin.run("pbsnodes", "-a", "-F", "json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == recorded("pbsnodes_server-down.err")


# --- a mom -----------------------------------------------------------------------------------


def test_a_mom_is_heard_from_until_it_ends(standin: Standin, tmp_path: Path) -> None:
    manage(standin, "create node pn1")
    conf = tmp_path / "pbs.conf"
    conf.write_text("PBS_SERVER=pbssrv\nPBS_MOM_NODE_NAME=pn1\n")
    program = standin.commands() / "pbs_mom"
    process = subprocess.Popen([program, "-N"], env={"PBS_CONF_FILE": str(conf)})
    try:
        _until_state(standin, "free")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(100) == 0
    _until_state(standin, "down")


def _until_state(standin: Standin, state: str) -> None:
    end = time.monotonic() + 100
    while f'"state":\t"{state}"' not in standin.run("pbsnodes", "-a", "-F", "json").stdout:
        assert time.monotonic() < end, f"it is not {state}"
        time.sleep(0.05)
