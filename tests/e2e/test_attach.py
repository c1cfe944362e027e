"""Elastic nodes for a Slurm that is there without us, and that stays somebody else's."""

import os
import re
import stat
from datetime import datetime
from pathlib import Path

import pytest

from springtide.batch.slurm_versions import Change
from springtide.cli.endings import Exit
from tests.e2e.existing import Done, Existing, existing
from tests.e2e.real import until
from tests.slurm_release import installed

pytestmark = pytest.mark.real

SPEC = """
cluster: brown
batch:
  attach: ROOT/etc/slurm.conf
  munge_key: ROOT/key/munge.key
  prolog: ROOT/etc/prolog
provider: {kind: containers, mounts: [SHARED]}
groups: {general: {nodes: "c-[1-4]"}}
timing: {idle: 2s}
"""
WAIT = "touch SHARED/GO.waits; until [ -e SHARED/GO ]; do sleep 0.1; done; hostname"


def do_as_told(site: Existing, said: str) -> None:
    """Edit slurm.conf as its owner would who follows the text to the letter."""
    lines = site.conf.read_text().splitlines()
    numbers = re.findall(rf"  {site.conf}, line (\d+): ", said)
    for number in map(int, numbers):
        lines[number - 1] = f"# {lines[number - 1]}"
    line = re.search(r"add to .*, as its last line:\n  (include .*)", said)
    assert line is not None
    if link := re.search(r"\n  ln -s (\S+) (\S+)\n", said):
        Path(link[2]).symlink_to(link[1])
    site.conf.write_text("\n".join([*lines, line[1]]) + "\n")


def advice(done: Done) -> str:
    """What follows the checks."""
    return done.stdout.partition("\n\n")[2]


def waiting_job(site: Existing, sign: str, *options: str) -> str:
    """One that runs on its node already, and not only to slurmctld, which may be restarted."""
    script = WAIT.replace("SHARED", str(site.shared)).replace("GO", sign)
    id = site.sbatch(script, *options)
    until((site.shared / f"{sign}.waits").exists)
    until(lambda: site.job(id)["JobState"] == "RUNNING")
    return id


@pytest.mark.accepts("B8")
@pytest.mark.timeout(500)
def test_a_slurm_gets_elastic_nodes_and_is_left_as_it_was() -> None:
    with existing(SPEC, 17037) as site:
        before = site.conf.read_bytes()
        running = waiting_job(site, "first", "-p", "old")
        queued = site.sbatch("hostname", "-p", "old")
        started = site.job(running)["StartTime"]

        dry = site.attach("--dry-run")
        assert dry.returncode == Exit.DONE, dry.stdout
        assert f"include {site.state}/conf/springtide.conf" in dry.stdout
        assert not site.state.exists()

        told = site.attach()
        assert told.returncode == Exit.PARTLY, told.stdout + told.stderr
        assert told.stderr == ""
        assert site.conf.read_bytes() == before
        include = (site.state / "conf" / "springtide.conf").read_text()
        assert advice(site.attach()) == advice(told)
        assert (site.state / "conf" / "springtide.conf").read_text() == include

        do_as_told(site, told.stdout)
        site.restart_slurmctld()
        done = site.attach()
        assert done.returncode == Exit.DONE, done.stdout + done.stderr
        assert "slurmctld runs with our nodes" in done.stdout
        again = site.attach()
        assert "nothing had to be changed" in again.stdout
        assert again.returncode == Exit.DONE
        assert site.tide("check", str(site.file)).returncode == Exit.DONE

        cloud = site.sbatch("srun hostname", "-p", "main", "-N2")
        site.finished(cloud)
        assert site.output(cloud) == ["c-1", "c-2"]
        assert cloud in site.prologs()
        assert site.job(running)["StartTime"] == started
        assert site.job(queued)["JobState"] == "PENDING"
        (site.shared / "first").touch()
        site.finished(running)
        site.finished(queued)
        site.all_off("c-[1-4]")
        until(lambda: site.node("static1")["State"] == "IDLE")
        assert not [event for event in site.events() if event["node"] == "static1"]

        leave(site, before)


def leave(site: Existing, before: bytes) -> None:
    """First while a job runs, then with its end; then once more when slurm.conf is as it was."""
    busy = waiting_job(site, "second", "-p", "main")
    refused = site.attach("--remove")
    assert refused.returncode == Exit.FAILED
    assert f"{busy} of root" in refused.stderr
    site.stop("slurmctld")
    unseen = site.attach("--remove", "--yes")
    assert unseen.returncode == Exit.FAILED
    assert "may have jobs, so nothing was removed; start slurmctld" in unseen.stderr
    site.start_slurmctld()
    (site.shared / "second").touch()
    left = site.attach("--remove", "--yes")
    assert left.returncode == Exit.PARTLY, left.stdout + left.stderr
    assert site.job(busy)["JobState"] == "COMPLETED"
    assert not site.state.joinpath("record.db").exists()
    between = site.sbatch("hostname", "-p", "old")
    site.finished(between)
    assert between in site.prologs()

    assert f"include {site.state}/conf/springtide.conf" in left.stdout
    assert f"PrologSlurmctld={site.root}/etc/prolog" in left.stdout
    site.restart_slurmctld()  # the line is still there, and it starts
    assert site.attach("--remove").returncode == Exit.PARTLY
    site.conf.write_bytes(before)
    site.restart_slurmctld()
    gone = site.attach("--remove")
    assert gone.returncode == Exit.DONE, gone.stdout + gone.stderr
    assert not site.state.exists()
    after = site.sbatch("hostname", "-p", "old")
    site.finished(after)
    assert after in site.prologs()
    assert site.slurm("sinfo", "-h", "-o", "%N %P").strip() == "static1 old*"


MINIMUM = SPEC.replace('"c-[1-4]"', '"c-[1-4]", min: 1').replace("2s", "1h")


@pytest.mark.accepts("B7", "B10")
@pytest.mark.timeout(500)
def test_an_attached_cluster_follows_its_file_and_says_what_is_wrong() -> None:
    with existing(MINIMUM, 17041, "enable_configless") as site:
        before = site.conf.read_bytes()
        do_as_told(site, site.attach().stdout)
        assert site.conf.with_name("springtide.conf").is_symlink()
        site.restart_slurmctld()
        assert site.attach().returncode == Exit.DONE
        assert site.states("c-1") == {"ready"}
        assert site.states("c-[2-4]") == {"off"}

        # What slurmctld can reread it is asked to reread.
        site.rewrite(MINIMUM.replace("1h", "30m"))
        changed = site.attach()
        assert changed.returncode == Exit.DONE, changed.stdout + changed.stderr
        assert site.is_running("slurmctld")
        assert "SuspendTime=1800" in site.slurm("scontrol", "show", "partition", "main")

        site.rewrite(MINIMUM.replace("1h", "30m").replace("c-[1-4]", "c-[1-6]"))
        attach_again(site)
        sixth = site.sbatch("hostname", "-p", "main", "-w", "c-6")
        site.finished(sixth)
        assert site.output(sixth) == ["c-6"]

        find_what_is_wrong(site)
        work_as_any_cluster(site)

        assert site.tide("deploy", str(site.file)).returncode == Exit.WRONG
        site.conf.write_text(re.sub("include .*", "", site.conf.read_text()))
        destroyed = site.tide("destroy", "--yes")
        site.restart_slurmctld()
        for left in (destroyed, site.attach("--remove")):
            assert left.returncode == Exit.PARTLY, left.stdout + left.stderr
            assert f"\n  PrologSlurmctld={site.root}/etc/prolog\n" in left.stdout
        site.conf.write_bytes(before)
        site.restart_slurmctld()
        assert site.attach("--remove").returncode == Exit.DONE
        assert not site.state.exists()


@pytest.mark.accepts("A3")
@pytest.mark.timeout(500)
def test_rebuilds_work_in_a_slurm_that_nobody_tuned_and_that_has_a_reboot_program() -> None:
    """Its priorities are Slurm's own, by the time of submission alone."""
    spec = MINIMUM.replace("min: 1", "min: 2")
    with existing(spec, 17049, lines="PriorityType=priority/basic\n") as site:
        do_as_told(site, site.attach().stdout)
        site.restart_slurmctld()
        assert site.attach().returncode == Exit.DONE
        first = waiting_job(site, "fourth", "-p", "main", "-N2", "-w", "c-[1-2]", "--exclusive")
        later = [site.sbatch("hostname", "-p", "main", "-w", f"c-{n}") for n in (1, 2)]
        asked = site.tide("rebuild", "c-[1-2]", "--via", "jobs", "--force", "--yes", "--no-wait")
        assert asked.returncode == Exit.DONE, asked.stdout + asked.stderr
        (site.shared / "fourth").touch()
        for job in (first, *later):
            site.finished(job)
        begun = {e["node"]: e["at"] for e in site.events() if e["what"] == "instance rebooted"}
        assert begun.keys() == {"c-1", "c-2"}
        for job, node in zip(later, ("c-1", "c-2"), strict=True):
            started_at = datetime.fromisoformat(site.job(job)["StartTime"]).timestamp()
            assert started_at >= int(begun[node]), "the rebuild went first"

        site.conf.write_text(f"RebootProgram=/bin/true\n{site.conf.read_text()}")
        site.restart_slurmctld()
        attach_again(site)
        refused = site.tide("rebuild", "c-1", "--force", "--yes", "--via", "reboot")
        assert refused.returncode == Exit.WRONG
        assert "RebootProgram" in refused.stderr
        rebuilt = site.tide("rebuild", "c-1", "--force", "--yes")
        assert rebuilt.returncode == Exit.DONE, rebuilt.stdout + rebuilt.stderr
        again = [e for e in site.events(node="c-1") if e["what"] == "instance rebooted"]
        assert len(again) == 2


def attach_again(site: Existing) -> None:
    """An old slurmctld needs a restart, which is not ours to do; nodes that are there go on."""
    added = site.attach()
    if not Change.RELOADS_ALL.applies(installed()):
        assert added.returncode == Exit.PARTLY, added.stdout + added.stderr
        assert "restart slurmctld" in added.stdout
        assert site.is_running("slurmctld")
        site.restart_slurmctld()
        added = site.attach()
    assert added.returncode == Exit.DONE, added.stdout + added.stderr


def work_as_any_cluster(site: Existing) -> None:
    """What people do with one of their own works here too, and touches nothing of the site's."""
    static = waiting_job(site, "third", "-p", "old")
    rebuilt = site.tide("rebuild", "c-1", "--force", "--yes")
    assert rebuilt.returncode == Exit.DONE, rebuilt.stdout + rebuilt.stderr
    assert "instance rebooted" in {event["what"] for event in site.events(node="c-1")}
    assert site.tide("stop", "--yes").returncode == Exit.DONE
    waiting = site.sbatch("hostname", "-p", "main")
    assert site.states("c-[1-6]") == {"off"}
    assert site.job(waiting)["JobState"] == "PENDING"
    assert site.tide("start").returncode == Exit.DONE
    site.finished(waiting)
    assert site.job(waiting)["Restarts"] == "0"
    assert site.job(static)["JobState"] == "RUNNING"
    (site.shared / "third").touch()
    site.finished(static)


def find_what_is_wrong(site: Existing) -> None:
    """With what slurmctld runs with."""
    program = site.state / "bin" / "hook"
    program.chmod(program.stat().st_mode | stat.S_IWGRP)
    assert "✗ Slurm's programs" in wrong(site, "check", str(site.file))
    program.chmod(0o755)

    good = site.conf.read_text()
    site.conf.write_text(f"{good}TreeWidth=2\n")
    site.restart_slurmctld()
    said = wrong(site, "attach", str(site.file))
    assert "✗ TreeWidth: 2 for 7 nodes" in said
    assert f"take TreeWidth=2 out of {site.conf}" in said
    site.conf.write_text(good)
    site.restart_slurmctld()
    assert site.attach().returncode == Exit.DONE

    include = site.state / "conf" / "springtide.conf"
    text = include.read_text()
    include.unlink()
    said = wrong(site, "check", str(site.file))
    assert f"includes {include}, which is not there" in said
    assert f"run `tide attach {site.file}`" in said
    assert site.attach().returncode == Exit.DONE
    assert include.read_text() == text


def wrong(site: Existing, *command: str) -> str:
    done = site.tide(*command)
    assert done.returncode == Exit.FAILED, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(400)
def test_what_would_not_work_is_found_before_anything_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with existing(SPEC, 17045) as site:
        before = site.conf.read_bytes()

        def found(spec: str) -> str:
            site.rewrite(spec)
            said = wrong(site, "attach", str(site.file))
            assert not site.state.exists()
            return said

        other = site.root / "key" / "other.key"
        site.make_key(other)
        assert "✗ munge: " in found(SPEC.replace("munge.key", "other.key"))
        assert "✗ names of nodes: static1" in found(SPEC.replace("c-[1-4]", "static[1-4]"))
        assert "✗ names of partitions: partition old" in found(
            f"{SPEC}partitions: {{old: {{groups: [general]}}}}\n"
        )
        assert "✗ SlurmUser: slurmctld runs as slurm" in found(
            SPEC.replace("batch:", "batch:\n  user: munge")
        )
        unchained = found(SPEC.replace("  prolog: ROOT/etc/prolog\n", ""))
        assert f"set `batch: {{prolog: {site.root}/etc/prolog}}`" in unchained
        site.conf.write_bytes(before + b"ResumeProgram=/usr/sbin/wake\n")
        assert "✗ their programs: ResumeProgram is /usr/sbin/wake" in found(SPEC)
        spool = f"{site.root}/etc/spool"
        site.conf.write_bytes(before + f"SlurmdSpoolDir={spool}\n".encode())
        assert f"✗ places: SlurmdSpoolDir is {spool}, but container nodes see" in found(SPEC)
        site.conf.write_bytes(before)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{old_slurm(site)}:{os.environ['PATH']}")
            assert "✗ Slurm's version: Slurm 20.11 is too old" in found(SPEC)
        site.stop("slurmctld")
        assert "✗ slurmctld: " in found(SPEC)


def old_slurm(site: Existing) -> Path:
    """Where to find an scontrol whose slurmctld claims to be old."""
    program = site.root / "bin" / "scontrol"
    program.parent.mkdir()
    claims = "s/^\\(SLURM_VERSION *= \\).*/\\120.11.4/"
    program.write_text(f"#!/bin/sh\n/usr/bin/scontrol \"$@\" | sed '{claims}'\n")
    program.chmod(0o755)
    return program.parent
