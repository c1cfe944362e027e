"""A look at a large cluster costs little, and repairs cost calls by the batch, not by the node."""

from pathlib import Path

from bench.paper import BUSY, DOWN
from bench.reconcile import world_in

MOST_S = 0.3
MOST_CALLS = 20


async def test_a_pass_over_ten_thousand_nodes_costs_one_call_and_a_blink(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        cpu_s, calls = min([await world.cost() for _ in range(3)])
        assert calls == 1
        assert cpu_s <= MOST_S


async def test_a_thousand_repairs_call_slurm_a_few_times(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        _, calls = await world.repaired(1000, DOWN)
        assert calls <= MOST_CALLS
        _, calls = await world.repaired(800, BUSY)
        assert calls <= MOST_CALLS, "their jobs are told, too"
