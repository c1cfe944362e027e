"""A spot instance that AWS takes back, with the whole daemon: its node is made anew."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from springtide.batch.fake import FakeBatch, Timing
from springtide.configure.fake import FakeConfigurator
from springtide.daemon import Daemon
from springtide.guard import Guard
from springtide.layout import Layout
from springtide.model import NodeState
from springtide.ports import Site
from springtide.providers.aws.shapes import member
from springtide.record import Record
from springtide.spec import parse
from springtide.steps import Parts
from springtide.store import SqliteStore
from springtide.store.sqlite import connect
from tests.providers.servers.aws import serving
from tests.providers.servers.aws_world import Account, account_of
from tests.providers.test_aws_life import AtOnce
from tests.providers.world import BLUE

SPEC = f"""
cluster: {BLUE}
batch: {{kind: fake}}
provider: {{kind: aws, region: eu-west-1, subnets: {{eu-west-1a: subnet-1}}}}
images: {{base: {{id: ami-1}}}}
flavors: {{small: {{cpus: 2, memory: 3G}}}}
groups:
  general: {{nodes: "c1", min: 1, flavors: [small], markets: [spot], image: base}}
timing: {{start: 300s, stop: 300s, gather: 20ms, reconcile: 200ms, grace: 1s}}
"""
LIMIT_S = 200.0
TICK_S = 0.05


class Machines:
    """What runs in the account, as the batch system hears of it."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.seen: dict[str, str] = {}

    def running(self) -> dict[str, str]:
        found = self.account.server.ec2.living()
        return {one.id: one.private_ip or "" for one in found if one.state == "running"}

    def node_at(self, address: str) -> str | None:
        for one in self.account.server.ec2.living():
            listed = [{"Key": tag["key"], "Value": tag["value"]} for tag in one.get_tags()]
            who = member({"Tags": listed, "AmiLaunchIndex": one.ami_launch_index})
            if one.private_ip == address and who:
                return who[0]
        return None

    async def report(self, batch: FakeBatch) -> None:
        """Slurm hears of those that boot, and no more of those that are gone."""
        while True:
            now = self.running()
            for id in self.seen.keys() - now.keys():
                batch.stop_seen(self.seen.pop(id), deleted=False)
            for id in now.keys() - self.seen.keys():
                self.seen[id] = self.node_at(now[id]) or ""
                batch.boot_seen(self.seen[id])
            await asyncio.sleep(TICK_S)


@asynccontextmanager
async def cluster(account: Account, state: Path) -> AsyncIterator[Daemon]:
    spec = parse(SPEC, "aws.yaml")
    machines = Machines(account)
    batch = FakeBatch(
        spec.managed, machines.node_at, Timing(latency_s=0.0, join_s=0.1, slurmd_timeout_s=2)
    )
    guard = Guard(account.open(), AtOnce())
    parts = Parts(
        spec=spec,
        record=Record(SqliteStore(connect(state / "record.db")), time.time),
        providers={"general": guard},
        home=guard,
        batch=batch,
        configurator=FakeConfigurator("say hello\n"),
        site=Site("10.1.2.3"),
    )
    await parts.record.store.put("site", '{"control_address": "10.1.2.3", "facts": {}}')
    daemon = Daemon(parts, Layout(state))
    reports = asyncio.create_task(machines.report(batch))
    try:
        async with daemon.running():
            yield daemon
    finally:
        reports.cancel()


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(TICK_S)


@pytest.mark.accepts("X11")
async def test_the_node_of_a_spot_instance_that_is_taken_back_gets_another(tmp_path: Path) -> None:
    with serving() as server, account_of(server, tmp_path) as account:
        async with cluster(account, tmp_path) as daemon:
            node = daemon.parts.record.nodes
            await until(lambda: node["c1"].state is NodeState.READY)
            (first,) = server.ec2.living()
            assert first.lifecycle == "spot"
            server.ec2.take(first.id)
            await until(lambda: [one.id for one in server.ec2.living()] not in ([], [first.id]))
            await until(lambda: node["c1"].state is NodeState.READY and node["c1"].generation > 1)
            (second,) = server.ec2.living()
            assert (second.lifecycle, second.id != first.id) == ("spot", True)
        for one in account.providers:
            await one.close()
