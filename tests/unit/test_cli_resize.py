"""`tide resize`: another number in the cluster file, and the cluster follows."""

import json
import os
from collections.abc import Iterator

import pytest

from springtide.cli.changing import foresee
from springtide.cli.client import Client, Refused
from springtide.cli.cluster_file import rewritten
from springtide.cli.endings import Exit
from springtide.cli.resize import rewrite
from tests.unit.cli_world import LONG_S, SPEC, World, run, served, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def world() -> Iterator[World]:
    with served() as world:
        yield world


def written(world: World) -> tuple[int, int]:
    """Another one after every change of the file."""
    seen = world.file.stat()
    return seen.st_ino, seen.st_mtime_ns


def test_a_group_is_enlarged_and_the_file_keeps_its_comments(world: World) -> None:
    done = world.run("resize", "general=2", "--yes")
    assert done.code == 0, done.err
    assert world.states("c1", "c2", "c3") == ["ready", "ready", "off"]
    assert 'general: {nodes: "c[1-4]", min: 2}  # the cheap ones\n' in world.file.read_text()
    assert world.layout.stored_spec.read_text() == world.file.read_text()
    assert world.run("apply").out.endswith("nothing was changed\n")


@pytest.mark.accepts("E20")
def test_the_present_size_is_said_and_nothing_is_changed(world: World) -> None:
    assert world.run("resize", "general=2", "--yes").code == 0
    before = world.operations(), written(world), world.states("c1", "c2", "c3", "c4")
    for words in ([], ["--yes"], ["--dry-run"]):
        done = world.run("resize", "general=2", *words)
        assert (done.code, done.err) == (0, "")
        assert done.out == f"general=2 is what {world.file} says already: nothing was changed\n"
    assert (world.operations(), written(world), world.states("c1", "c2", "c3", "c4")) == before


def test_a_dry_run_shows_plans_and_lines_and_changes_nothing(world: World) -> None:
    before = world.operations(), written(world)
    done = world.run("resize", "general=1", "--dry-run")
    assert (done.code, done.err) == (0, "nothing was changed\n")
    assert "plan     enlarge\nnodes    1: c1\n" in done.out
    assert '    7 -   general: {nodes: "c[1-4]"}  # the cheap ones\n' in done.out
    assert '    7 +   general: {nodes: "c[1-4]", min: 1}  # the cheap ones\n' in done.out
    assert (world.operations(), written(world)) == before


def test_a_no_leaves_the_file_alone(world: World) -> None:
    before = written(world)
    code, said = world.answered(b"no\n", "resize", "general=1")
    assert (code, "type yes to apply this to cluster sim" in said) == (Exit.FAILED, True)
    assert written(world) == before
    assert "nobody can be asked here: say --yes" in world.run("resize", "general=1").err


def test_a_file_that_somebody_changes_before_the_yes_is_left_alone(world: World) -> None:
    code, said = world.answered(
        b"yes\n",
        "resize",
        "general=1",
        meanwhile=lambda: world.file.write_text(f"# mine\n{SPEC}"),
    )
    assert (code, "was changed meanwhile and is left alone" in said) == (Exit.FAILED, True)
    assert world.file.read_text() == f"# mine\n{SPEC}"
    assert len(world.operations()) == 1


def test_a_file_that_differs_from_what_is_served_must_be_applied_first(world: World) -> None:
    changed = world.file.read_text().replace("start: 10m", "start: 20m")
    world.file.write_text(changed)
    done = world.run("resize", "general=1", "--yes")
    assert done.code == Exit.WRONG
    assert f"{world.file} was changed since it was applied; run `tide apply` first" in done.err
    assert world.file.read_text() == changed


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (["generl=1"], "there is no group 'generl': did you mean general?; the groups are"),
        (["gen=1"], "there is no group 'gen': did you mean general?; the groups are"),
        (["nope=1"], "there is no group 'nope'; the groups are general=0, bare=0"),
        (["general"], "'general' is no size: write GROUP=N, N from 0 to 65536; the groups"),
        (["general=99999999999"], "write GROUP=N, N from 0 to 65536; the groups are general=0"),
        (["general=two"], "'general=two' is no size"),
        (["general=-1"], "'general=-1' is no size"),
        (["general=1.5"], "'general=1.5' is no size"),
        (["=2"], "'=2' is no size"),
        (["general=1", "general=2"], "group general is named twice"),
        (["general=999999999"], "cannot have 999999999 nodes"),
        (["bare=1"], "provider is 'none'"),
    ],
)
def test_wrong_sizes_are_told_with_the_groups_there_are(
    shared: World, sizes: list[str], said: str
) -> None:
    done = shared.run("resize", *sizes, "--yes")
    assert done.code == Exit.WRONG
    assert said in done.err
    assert shared.file.read_text() == SPEC


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    """For commands that change nothing."""
    with served() as world:
        yield world


def test_a_size_must_be_named() -> None:
    done = run("--state", "/nowhere", "resize")
    assert (done.code, "Missing argument 'GROUP=N'" in done.err) == (Exit.WRONG, True)


def test_no_daemon_is_exit_code_4() -> None:
    assert run("--state", "/nowhere", "resize", "general=1").code == Exit.AWAY


def test_a_file_that_is_gone_is_told(world: World) -> None:
    world.file.unlink()
    done = world.run("resize", "general=1", "--yes")
    assert (done.code, "is there no more" in done.err) == (Exit.WRONG, True)


@needs_root
def test_a_file_that_may_not_be_written_stays_and_so_does_the_cluster() -> None:
    with served(SPEC + "admin_group: nogroup\n") as world:
        before = world.file.read_text()
        done = world.as_user("nobody", "resize", "general=1", "--yes")
        assert done.returncode == Exit.FAILED
        assert f"cannot write {world.file}: Permission denied; nothing was changed" in done.stderr
        assert (world.file.read_text(), len(world.operations())) == (before, 1)


@needs_root
def test_who_may_not_change_the_cluster_may_not_resize_it(world: World) -> None:
    done = world.as_user("nobody", "resize", "general=1", "--yes")
    assert done.returncode == Exit.FAILED
    assert "nobody may not change this cluster" in done.stderr


def test_without_a_person_s_file_the_stored_copy_is_changed() -> None:
    with served() as world:
        world.call(lambda: world.daemon.parts.keep_file(""))
        done = world.run("resize", "general=1", "--yes")
        assert done.code == 0, done.err
        assert "min: 1" in world.layout.stored_spec.read_text()
        assert world.file.read_text() == SPEC
        assert world.states("c1") == ["ready"]


# --- fewer nodes -----------------------------------------------------------------------------


UP = SPEC.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 3')
TWO = UP.replace("  bare:", '  big: {nodes: "d[1-2]"}\n  bare:')


def busy(world: World) -> None:
    """A job on the first node."""
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: bool(world.rows()["c1"]["batch"]["busy"]))


def test_the_highest_numbered_leave() -> None:
    with served(UP) as world:
        done = world.run("resize", "general=1", "--yes")
        assert done.code == 0, done.err
        assert "plan       shrink\nnodes      2: c[2-3]\n" in done.err
        assert "✓ drain, wait drained" in done.err
        assert world.states("c1", "c2", "c3") == ["ready", "off", "off"]
        assert "min: 1}  # the cheap ones" in world.file.read_text()


def test_jobs_end_before_their_nodes_leave() -> None:
    with served(UP) as world:
        busy(world)
        done = world.run_past_job("1 waited for: 1 on c1", "resize", "general=0", "--yes")
        assert done.code == 0, done.err
        assert (len(world.batch.finished), world.states("c1")) == (1, ["off"])


def test_jobs_that_do_not_end_in_time_keep_the_nodes_and_it_is_said() -> None:
    with served(UP.replace("start: 10m", "drain: 1s, start: 10m")) as world:
        busy(world)
        done = world.run("resize", "general=0", "--yes")
        assert done.code == Exit.FAILED
        assert "✗ drain, wait drained: c1: its jobs did not end within 1 s" in done.err
        assert "nodes that stayed leave when they are idle" in done.err
        assert world.states("c1", "c2", "c3") == ["ready"] * 3
        assert world.batch.killed_jobs == {}


def test_one_group_shrinks_while_another_grows() -> None:
    with served(TWO) as world:
        done = world.run("resize", "general=1", "big=1", "--yes")
        assert done.code == 0, done.err
        lines = done.err.splitlines()
        assert {"shrink: ✓ delete instances", "enlarge: ✓ create instances"} <= set(lines)
        assert world.states("c1", "c2", "c3", "d1", "d2") == ["ready", "off", "off", "ready", "off"]


@pytest.mark.accepts("A23")
def test_a_protected_cluster_shrinks_only_by_its_name() -> None:
    with served(UP + "protected: true\n") as world:
        before = written(world)
        done = world.run("resize", "general=1", "--yes")
        assert done.code == Exit.WRONG
        assert "sim is protected; nobody can be asked here: say --yes-really sim" in done.err
        assert world.run("resize", "general=1", "--yes-really", "other").code == Exit.WRONG
        code, said = world.answered(b"yes\n", "resize", "general=1")
        assert (code, "sim is protected; type sim to apply this" in said) == (Exit.FAILED, True)
        assert (written(world), world.states("c2", "c3")) == (before, ["ready", "ready"])
        assert world.run("resize", "general=1", "--yes-really", "sim").code == 0
        assert world.states("c1", "c2", "c3") == ["ready", "off", "off"]


def test_what_the_daemon_refuses_after_all_is_put_back() -> None:
    """Somebody protects the cluster between the question and the answer."""
    with served(UP) as world:
        before = world.file.read_text()
        protected = world.spec.but(protected=True)
        status = json.loads(world.run("status", "--json").out)

        async def protect() -> None:
            world.daemon.parts.spec = protected

        world.call(protect)
        daemon = Client(world.layout.state)
        kept, after = rewrite(daemon, status, ["general=1"])
        change = foresee(daemon, {**status, "cluster": "other"}, after)
        with pytest.raises(Refused, match="sim is protected"), rewritten(kept, after.text):
            change.apply()
        assert world.file.read_text() == before
        assert world.states("c2") == ["ready"]
