"""What a command says that waits behind another operation."""

from springtide.cli.client import Client
from tests.unit.cli_world import LONG_S, served, wait_until


def test_who_waits_for_another_operation_is_told_which_and_how_to_end_it() -> None:
    with served() as world:
        world.faults.boot_s = LONG_S
        assert world.run("resume", "c1", "--no-wait").code == 0

        def begun() -> list[int]:
            return [one["id"] for one in world.operations() if one["state"] == "running"]

        wait_until(lambda: bool(begun()))
        [start] = begun()
        waits = (
            f"waits for operation {start} (resume c1); `tide operations {start} --cancel` ends it"
        )

        def let_go() -> None:
            assert waits in world.run("operations").out
            assert waits in world.run("status").out
            assert waits in world.run("operations", str(start + 1)).out
            Client(world.layout.state).post(f"/operations/{start}/cancel", {})

        done = world.run_until(f"… {waits}", let_go, "stop", "--yes")
        assert done.code == 0, done.err
