"""`tide kill`: instances away at once, but only those that are meant."""

import pytest

from springtide.cli.endings import Exit
from tests.unit.cli_world import LONG_S, SPEC, World, served, wait_until

TWO = SPEC.replace("  bare:", '  big: {nodes: "d[1-2]"}\n  bare:')


def busy(world: World) -> None:
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: world.rows()["c1"]["batch"]["state"] == "ALLOCATED")
    wait_until(lambda: world.states("c1") == ["ready"])


@pytest.mark.accepts("C25")
def test_all_nodes_are_killed_those_that_are_powered_down_too() -> None:
    with served() as world:
        busy(world)
        assert world.run("resume", "c2").code == 0
        done = world.run("kill", "--all", "--force")
        assert (done.code, done.out) == (0, "c[1-4]: off\n")
        assert "1 put back into the queue: 1 on c1" in done.err
        assert world.states("c1", "c2", "c3", "c4") == ["off"] * 4
        assert all(row["instances"] == [] for row in world.rows().values())
        assert list(world.batch.killed_jobs) == ["1"]
        assert [one["nodes"] for one in world.operations() if one["asked_by"] == "root"] == [
            "c[1-4]"
        ]


@pytest.mark.accepts("C25")
def test_it_asks_first_and_says_who_suffers() -> None:
    with served() as world:
        busy(world)
        code, said = world.answered(b"no\n", "kill", "c1")
        assert code == Exit.FAILED
        assert "jobs run on c1 and would start again from the queue; type yes to kill c1" in said
        assert world.states("c1") == ["ready"]
        code, said = world.answered(b"yes\n", "kill", "c1")
        assert (code, world.states("c1")) == (0, ["off"])


@pytest.mark.accepts("A22")
def test_only_nodes_whose_names_begin_so_are_killed() -> None:
    with served(TWO) as world:
        assert world.run("resume", "c1,d[1-2]").code == 0
        done = world.run("kill", "--prefix", "d", "--yes")
        assert (done.code, done.out) == (0, "d[1-2]: off\n")
        assert world.states("c1", "d1", "d2") == ["ready", "off", "off"]


@pytest.mark.accepts("A22")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prefix", ""], "an empty prefix would mean every node; say --all for that"),
        (["--prefix", "  "], "an empty prefix would mean every node"),
        (["--prefix", "x"], "there is no node whose name begins with 'x'"),
        (["--prefix", "metal"], "there is no node whose name begins with 'metal'"),
        ([], "kill needs a HOSTLIST, or --all, or --prefix"),
        (["c1", "--all"], "kill needs a HOSTLIST, or --all, or --prefix"),
        ([""], "empty host list"),
        (["x9"], "unknown node x9"),
        (["metal1"], "never created, deleted or suspended"),
    ],
)
def test_whom_nobody_meant_is_spared(words: list[str], said: str) -> None:
    with served() as world:
        assert world.run("resume", "c1").code == 0
        done = world.run("kill", *words, "--force")
        assert (done.code, said in done.err) == (Exit.WRONG, True)
        assert world.states("c1") == ["ready"]


def test_a_dry_run_kills_nobody() -> None:
    with served() as world:
        assert world.run("resume", "c1").code == 0
        done = world.run("kill", "--all", "--dry-run")
        assert (done.code, done.err) == (0, "nothing was changed\n")
        assert "nodes      4: c[1-4]" in done.out
        assert world.states("c1") == ["ready"]


@pytest.mark.accepts("A23")
def test_a_protected_cluster_wants_its_name() -> None:
    with served(SPEC + "protected: true\n") as world:
        assert world.run("resume", "c1").code == 0
        for words in (["--yes"], ["--force"], ["--yes-really", "other"]):
            assert world.run("kill", "c1", *words).code == Exit.WRONG
        code, said = world.answered(b"yes\n", "kill", "c1")
        assert (code, "sim is protected; type sim to kill c1" in said) == (Exit.FAILED, True)
        assert world.states("c1") == ["ready"]
        assert world.run("kill", "c1", "--yes-really", "sim").code == 0
        assert world.states("c1") == ["off"]


def test_one_need_not_wait() -> None:
    with served() as world:
        assert world.run("resume", "c1").code == 0
        done = world.run("kill", "c1", "--yes", "--no-wait")
        assert done.code == 0
        [id] = [one["id"] for one in world.operations() if one["asked_by"] == "root"]
        assert done.out == f"operation {id}: suspend c1; see `tide operations {id}`\n"
        wait_until(lambda: world.states("c1") == ["off"])


def test_who_must_be_up_is_told_to_come_back() -> None:
    with served(SPEC.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 1')) as world:
        done = world.run("kill", "--all", "--yes")
        assert "c1: one of the `min` that are always up, so it comes back by itself" in done.err


@pytest.mark.accepts("B20")
def test_a_slurmd_that_is_not_ours_is_put_out_of_service_and_told_of() -> None:
    with served() as world:

        async def register() -> None:
            world.batch.boot_seen("c2")

        world.call(register)
        wait_until(lambda: world.rows()["c2"]["batch"]["registered"])
        done = world.run("kill", "c[1-2]", "--yes")
        assert (done.code, done.out) == (0, "c[1-2]: off\n")
        [line] = [line for line in done.err.splitlines() if line.startswith("tide: ")]
        assert line.startswith("tide: c2: a slurmd at ")
        assert line.endswith("stop it there, or it comes back when it is restarted")
        wait_until(lambda: world.rows()["c2"]["batch"]["power"] == "powered down")
        said = world.run("events").out
        assert "c2 strange slurmd put out of service: it answered at " in said
        assert "c1 strange slurmd" not in said


def test_a_node_of_ours_is_no_stranger() -> None:
    with served() as world:
        assert world.run("resume", "c1").code == 0
        assert "slurmd" not in world.run("kill", "c1", "--yes").err
        assert "strange slurmd" not in world.run("events").out
