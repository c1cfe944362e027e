"""`tide apply`: another cluster file while the cluster runs."""

import json
import os
from collections.abc import Iterator

import pytest

from springtide.cli.endings import Exit
from springtide.ports import Site, Unavailable
from springtide.spec import environment, parse
from tests.unit.cli_world import LONG_S, SPEC, World, run, served

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def world() -> Iterator[World]:
    with served() as world:
        yield world


def edit(world: World, before: str, after: str) -> None:
    text = world.file.read_text()
    assert before in text
    world.file.write_text(text.replace(before, after))


def least(world: World, number: int) -> None:
    edit(world, '"c[1-4]"', f'"c[1-4]", min: {number}')


def test_a_changed_file_is_followed(world: World) -> None:
    least(world, 2)
    done = world.run("apply", "--yes")
    assert done.code == 0, done.err
    assert done.out == f"cluster sim is as {world.file} says\n"
    assert "change  groups.general.min: 0 → 2" in done.err
    assert "✓ create instances" in done.err
    assert world.states("c1", "c2", "c3") == ["ready", "ready", "off"]
    assert world.layout.stored_spec.read_text() == world.file.read_text()


def test_nothing_to_do_is_said_and_nothing_is_done(world: World) -> None:
    before = world.operations()
    done = world.run("apply", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"cluster sim is as {world.file} says: nothing was changed\n"
    edit(world, "the cheap ones", "the dear ones")
    assert world.run("apply", "--yes").out == done.out
    assert world.operations() == before


def test_a_dry_run_shows_and_changes_nothing(world: World) -> None:
    least(world, 2)
    before = world.operations()
    done = world.run("apply", "--dry-run")
    assert (done.code, done.err) == (0, "nothing was changed\n")
    assert done.out.startswith("change  groups.general.min: 0 → 2\n\nplan     enlarge\n")
    assert world.operations() == before
    assert world.layout.stored_spec.read_text() != world.file.read_text()


@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
@pytest.mark.parametrize(
    "change",
    [('"c[1-4]"', '"c[1-4]", image: hard'), ("groups:", "image: hard\ngroups:")],
    ids=["its own", "of all groups"],
)
def test_who_gives_a_group_a_family_without_an_image_is_told_what_to_build(
    world: World, how: str, change: tuple[str, str]
) -> None:
    edit(world, *change)
    done = world.run("apply", how)
    assert done.code == 0, done.err
    assert (
        "warning  image hard: none was built yet for x86_64, so nodes of general could not start; "
        "run `tide image build hard`\n"
    ) in done.out + done.err


def test_it_asks(world: World) -> None:
    least(world, 1)
    assert "nobody can be asked here: say --yes" in world.run("apply").err
    code, said = world.answered(b"no\n", "apply")
    assert (code, "type yes to apply this to cluster sim" in said) == (Exit.FAILED, True)
    assert world.states("c1") == ["off"]
    assert world.answered(b"yes\n", "apply")[0] == Exit.DONE
    assert world.states("c1") == ["ready"]


def test_one_need_not_wait(world: World) -> None:
    least(world, 1)
    done = world.run("apply", "--yes", "--no-wait")
    id = world.operations()[0]["id"]
    assert done.out == f"operation {id}: enlarge c1; see `tide operations {id}`\n"


def test_an_attached_cluster_that_waits_for_its_slurm_is_told_to_attach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner has to let our nodes in first."""

    async def not_included(site: Site) -> str:
        raise Unavailable("slurm.conf does not include our file yet")

    attached = SPEC.replace("{kind: fake}", "{attach: /etc/slurm/slurm.conf}", 1)
    with served(attached) as world:
        world.batch._nodes.pop("c1")
        monkeypatch.setattr(world.batch, "reload", not_included)
        cut_off(world)
        assert "not applied to its end: run `tide attach`" in world.run("status").out
        done = world.run("apply", "--yes")
        assert done.code == Exit.FAILED
        assert "`tide attach` tries again whatever else is missing" in done.err
        done = world.run("resume", "c1")
        assert done.code == Exit.FAILED
        assert "Slurm does not know c1 yet; run `tide attach` to see what to do" in done.err
        assert world.states("c1") == ["off"]


def cut_off(world: World) -> None:
    """The daemon took the file and was killed before anything followed from it."""
    least(world, 2)
    wanted = parse(world.file.read_text(), str(world.file))
    world.call(lambda: world.daemon.parts.adopt(wanted, lambda: None))


@pytest.mark.parametrize("words", [["apply"], ["resize", "general=2"]])
def test_an_apply_that_was_cut_off_is_gone_on_with(world: World, words: list[str]) -> None:
    cut_off(world)
    assert "not applied to its end: run `tide apply`" in world.run("status").out
    done = world.run(*words, "--yes")
    assert done.code == 0, done.err
    assert "a former apply was cut off before its end; this one goes on with it" in done.err
    assert world.states("c1", "c2") == ["ready", "ready"]
    assert "run `tide apply`" not in world.run("status").out


@pytest.mark.parametrize("words", [["apply"], ["resize", "general=2"]])
def test_who_applies_what_is_being_applied_watches_it(world: World, words: list[str]) -> None:
    least(world, 2)
    world.faults.boot_s = LONG_S
    assert world.run("apply", "--yes", "--no-wait").code == 0
    assert f"{world.file}; being applied" in world.run("status").out
    done = world.run_until(f"{world.file} is being applied already", world.boot, *words)
    assert done.code == 0, done.err
    assert done.out == f"cluster sim is as {world.file} says\n"
    assert [one["kind"] for one in world.operations()] == ["enlarge", "deploy"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("cluster: sim", "cluster: green", "cluster cannot change from sim to green"),
        ("min:", "mini:", "mini"),
        ("groups:", "groups: [", "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_applied_is_told(
    world: World, before: str, after: str, said: str
) -> None:
    least(world, 1)
    edit(world, before, after)
    done = world.run("apply", "--yes")
    assert done.code == Exit.WRONG
    assert said in done.err
    assert str(world.file) in done.err
    assert len(world.operations()) == 1


def test_a_variable_that_asks_for_what_cannot_change_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = world.file.parent
    monkeypatch.setattr(environment, "PLACE", place)
    (place / "sim.env").write_text("CLEANUP_NODE_WAIT_TIME=300\nBATCH_SYSTEM=slurm\n")
    done = world.run("apply", "--yes")
    assert done.code == Exit.WRONG
    first, change, *_, variable = done.err.splitlines()
    assert first == f"tide: {world.file} cannot be applied:"
    assert change.startswith("batch.kind cannot change from fake to slurm while the cluster lives")
    assert variable == (
        f"{place}/sim.env:2:1: BATCH_SYSTEM: it sets batch.kind to slurm, which goes before the "
        "cluster file; put it back here"
    )


def test_another_file_is_the_cluster_s_file_from_then_on(world: World) -> None:
    elsewhere = world.file.with_name("elsewhere.yaml")
    world.file.rename(elsewhere)
    gone = world.run("apply")
    assert gone.code == Exit.WRONG
    assert f"{world.file}: the cluster file is there no more; name it" in gone.err
    done = world.run("apply", str(elsewhere))
    assert (done.code, done.err) == (0, f"its file is {elsewhere} from now on\n")
    assert json.loads(world.run("status", "--json").out)["file"] == str(elsewhere)
    assert world.run("apply").code == 0


def test_a_batch_system_that_failed_meanwhile_is_told(world: World) -> None:
    least(world, 1)
    world.faults.boot_s = 0.0
    world.batch.unavailable = True
    foreseen = world.run("plan", "apply")
    assert foreseen.code == 0
    assert "the batch system cannot be asked about jobs" in foreseen.out


def test_no_daemon_is_exit_code_4() -> None:
    assert run("--state", "/nowhere", "apply").code == Exit.AWAY


@needs_root
def test_who_may_not_change_the_cluster_may_not_apply(world: World) -> None:
    least(world, 1)
    done = world.as_user("nobody", "apply", "--yes")
    assert done.returncode == Exit.FAILED
    assert "nobody may not change this cluster" in done.stderr


@needs_root
def test_an_admin_may_change_sizes_but_not_the_rest() -> None:
    with served(SPEC + "admin_group: nogroup\n") as world:
        least(world, 1)
        assert world.as_user("nobody", "apply", "--yes").returncode == 0
        edit(world, "start: 10m", "start: 11m")
        done = world.as_user("nobody", "apply", "--yes")
        assert done.returncode == Exit.FAILED
        assert "nobody may only resize groups; root may change the rest" in done.stderr


@needs_root
@pytest.mark.accepts("N22")
def test_an_admins_file_must_not_go_against_the_calendar_either() -> None:
    """Sizes are all that they may change, so it is a resize; root may prepare what comes later."""
    calendar = 'calendar: {entries: [{daily: "00:00-24:00", max: 2}]}\n'
    with served(f"{SPEC}{calendar}admin_group: nogroup\n") as world:
        least(world, 1)
        done = world.as_user("nobody", "apply", "--yes")
        assert done.returncode == 0, done.stderr
        edit(world, "min: 1", "min: 3")
        done = world.as_user("nobody", "apply", "--yes")
        assert done.returncode == Exit.FAILED
        assert "general=3 would not count: the calendar wants" in done.stderr
        assert world.run("apply", "--yes").code == 0


@pytest.mark.accepts("A23")
def test_nodes_leave_a_protected_cluster_only_by_its_name() -> None:
    with served(SPEC.replace('"c[1-4]"', '"c[1-4]", min: 1') + "protected: true\n") as world:
        edit(world, "min: 1", "min: 0")
        assert "say --yes-really sim" in world.run("apply", "--yes").err
        edit(world, "min: 0", "min: 2")
        assert world.run("apply", "--yes").code == 0
        assert world.states("c1", "c2") == ["ready", "ready"]
