"""`tide finish`: people log in early, and are told why it is not over yet."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.cli import finish
from springtide.cli.client import Client
from springtide.cli.endings import Exit
from springtide.cli.finish import first_configuration, of_deploys
from springtide.ports import Denied
from tests.unit.cli_world import LONG_S, World, run, served, wait_until

pytestmark = pytest.mark.accepts("C3")

FILE = "cluster: early\nstate: STATE\nprovider: {kind: fake}\nbatch: {kind: fake}\n"


class Machine:
    """This machine, with a cloud-init that says what the test wants."""

    def __init__(self, place: Path) -> None:
        self.place, self.file = place, place / "cluster.yaml"
        self.program = place / "bin" / "cloud-init"
        self.program.parent.mkdir()

    def cloud_init(self, status: str) -> None:
        fresh = self.program.with_suffix(".new")
        fresh.write_text(f"#!/bin/sh\necho 'status: {status}'\n")
        fresh.chmod(0o755)
        fresh.replace(self.program)

    def describe(self, groups: str = "") -> None:
        self.file.write_text(FILE.replace("STATE", str(self.place / "s")) + groups)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return found


def test_it_refuses_while_cloud_init_configures_the_machine(machine: Machine) -> None:
    machine.cloud_init("running")
    machine.describe('groups: {g: {nodes: "a1"}}\n')
    done = run("finish", str(machine.file))
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert "this cannot be finished yet:\n- cloud-init still configures this machine" in done.err


@pytest.mark.parametrize("status", ["not run", "not started"])
def test_it_refuses_before_cloud_init_has_begun_if_it_will(
    machine: Machine, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "ENABLED", machine.place / "enabled")
    machine.cloud_init(status)
    assert list(first_configuration()) == []
    (machine.place / "enabled").touch()
    [reason] = first_configuration()
    assert reason.passes


def test_it_refuses_after_a_cloud_init_that_failed(machine: Machine) -> None:
    machine.cloud_init("error")
    assert ["cloud-init failed" in one.text for one in first_configuration()] == [True]
    machine.cloud_init("done")
    assert list(first_configuration()) == []
    machine.cloud_init("disabled")
    assert list(first_configuration()) == []


def test_it_refuses_without_a_file_or_limits(machine: Machine) -> None:
    machine.cloud_init("done")
    done = run("finish", str(machine.file))
    assert done.code == Exit.FAILED
    assert f"there is no {machine.file} yet: write it, or begin with `tide init" in done.err
    machine.describe()
    done = run("finish", str(machine.file))
    assert done.code == Exit.FAILED
    assert "has no nodes, and there are no limits: write limits.yaml first" in done.err
    done = run("finish", str(machine.file), "--limits", "nothing.yaml")
    assert "nothing.yaml: write it, or leave --limits out" in done.err


def test_the_file_here_counts_whatever_the_environment_says(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDE_STATE", str(machine.place / "s"))
    machine.describe()
    done = run("finish")
    assert f"{machine.file} has no nodes" in done.err
    done = run("finish", "--state", str(machine.place / "other"))
    assert f"there is no {machine.place}/other/cluster.yaml yet" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="others are refused before it")
@pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm's programs")
def test_sizes_of_shapes_of_ones_own_can_be_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{machine.place}/bin:{os.defpath}:/usr/sbin:/sbin")
    real = f"cluster: early\nstate: {machine.place}/s\nprovider: {{kind: none}}\n"
    machine.file.write_text(f"{real}batch: {{port: 17149}}\n")
    (machine.place / "limits.yaml").write_text("mine: 2\n")
    (machine.place / "shapes.yaml").write_text("mine: {memory: 900, cores_per_socket: 3}\n")
    done = run("finish", "--shapes", "shapes.yaml", "--dry-run")
    assert done.code == 0, done.err
    assert "mine: {cpus: 3, memory: 900M" in done.out


def test_it_refuses_what_the_checks_refuse(machine: Machine) -> None:
    machine.describe('groups: {g: {nodes: "a1"}}\n')
    done = run("finish", str(machine.file))
    assert done.code == Exit.FAILED
    assert "provider.kind fake is for tests and simulation only; set it to" in done.err


@pytest.fixture
def world() -> Iterator[World]:
    with served() as found:
        yield found


def test_a_deploy_that_is_under_way_is_waited_for(world: World) -> None:
    daemon, file = Client(world.layout.state), world.file
    assert list(of_deploys(daemon, file)) == []
    world.faults.boot_s = LONG_S
    assert world.run("resize", "general=1", "--yes", "--no-wait").code == Exit.DONE
    daemon.post("/operations", {"operation": "deploy"})
    reasons = list(of_deploys(daemon, file))
    assert [("is under way" in one.text, one.passes) for one in reasons] == [(True, True)]
    world.boot()
    wait_until(lambda: list(of_deploys(daemon, file)) == [])


def test_a_deploy_that_failed_is_told_with_its_reason(world: World) -> None:
    daemon = Client(world.layout.state)
    world.faults.refused_nodes = {"c1": Denied("no rights here")}
    world.run("resize", "general=1", "--yes")
    daemon.post("/operations", {"operation": "deploy"})
    wait_until(lambda: not any(one.passes for one in of_deploys(daemon, world.file)))
    told = [one.text for one in of_deploys(daemon, world.file)]
    assert len(told) == 1
    assert "(deploy) failed: " in told[0]
    assert f"run `tide deploy {world.file}`" in told[0]
