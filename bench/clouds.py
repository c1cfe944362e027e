"""What nodes cost in calls to each cloud, beside the fewest that its API allows.

The providers are the real ones with their SDKs, the servers behind them those of the tests: each
counts all calls that it had. With n instances to a call, the fewest for N nodes are N / n; what
is beyond (looking before a launch, pages, asking how a launch went) should not grow with N.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from bench.queue import GaveUp
from bench.table import Table, ratio
from springtide.ports import CloudError, Instance, Launch, Provider
from tests.providers import google_world, site_programs, test_command, test_terraform
from tests.providers.servers import aws, aws_world, azure, azure_world, oci
from tests.providers.world import BLUE, World, delete_until_gone, instances, running

HEADER = (
    "nodes",
    "in a call",
    "create calls",
    "floor",
    "beyond",
    "ratio",
    "list calls",
    "delete calls",
)
FEW, MANY = 100, 1000
TERRAFORM = 200
SERVERS = 40
NOTES = (
    "floor: nodes / in a call; beyond: what a create costs more, looking at what is there included",
    "list: once, all pages; delete: of all at once, until the cloud has taken it",
    "aws, fleets: 100 to a fleet, but each instance is named with a call of its own",
    "terraform, command: calls are runs of the program",
)
OF_NOVA = (
    *NOTES[:2],
    "Nova answers before it has found room: each batch looks until all of it have a place",
    "pages are those of the tests, of 8 servers: a look at a batch of 10 takes two",
)


@dataclass(frozen=True, slots=True)
class Place:
    """A cloud to make nodes in, which counts the calls that it has had."""

    open: Callable[[str], Provider]
    calls: Callable[[], int]
    image: str = "host"
    flavor: str = "default"


@dataclass(frozen=True, slots=True)
class Case:
    """A cloud, how many nodes to make there, and how many its API makes with one call."""

    name: str
    open: Callable[[Path], AbstractAsyncContextManager[Place]]
    counts: Sequence[int]
    batch: int


@dataclass(frozen=True, slots=True)
class Calls:
    """How many calls each of these took."""

    create: int
    list: int
    delete: int


def run(quick: bool) -> Iterator[Table]:
    """A handful of nodes if quick; else few and many, which shows what grows with them."""
    rows = [row for case in CASES for row in _rows(case, quick)]
    yield Table("calls to clouds, with the servers of the tests", ("", *HEADER), rows, NOTES)


def openstack(quick: bool) -> Iterator[Table]:
    """A real Nova, which takes about a second for a server: so few of them, in small batches."""
    case = Case("openstack", _openstack, (SERVERS // 4, SERVERS), SERVERS // 4)
    yield Table("calls to a real Nova", ("", *HEADER), list(_rows(case, quick)), OF_NOVA)


def _rows(case: Case, quick: bool) -> Iterator[Sequence[str]]:
    for count in [ceil(case.counts[0] / 10)] if quick else case.counts:
        with tempfile.TemporaryDirectory(prefix="tide-bench-") as directory:
            calls = asyncio.run(_measure(case, Path(directory), count))
        yield render_row(case, count, calls)


def render_row(case: Case, count: int, calls: Calls) -> Sequence[str]:
    floor = ceil(count / case.batch)
    numbers = count, case.batch, calls.create, floor, calls.create - floor
    return [
        case.name,
        *(f"{number:,}" for number in numbers),
        ratio(calls.create, floor),
        f"{calls.list:,}",
        f"{calls.delete:,}",
    ]


async def _measure(case: Case, directory: Path, count: int) -> Calls:
    async with case.open(directory) as place:
        provider = place.open(BLUE)
        await provider.prepare(BLUE)
        try:
            return await _life(place, provider, count)
        finally:
            await delete_until_gone(provider, BLUE)


async def _life(place: Place, provider: Provider, count: int) -> Calls:
    """Create them, wait until they run, list them, delete them."""
    nodes = [f"n{number:04}" for number in range(count)]
    start = place.calls()
    answers = await provider.create(
        [Launch(BLUE, node, 1, "general", place.image, place.flavor) for node in nodes]
    )
    created = place.calls() - start
    if len(instances(answers)) != count:
        raise GaveUp(f"{count} nodes were asked for: {_refusal(list(answers.values()))}")
    await running(provider, BLUE, count)
    start = place.calls()
    listed = await provider.list(BLUE)
    paged = place.calls() - start
    if refused := await provider.delete(listed):
        raise GaveUp(f"{len(refused)} were not deleted: {_refusal(list(refused.values()))}")
    return Calls(created, paged, place.calls() - start - paged)


def _refusal(answers: Sequence[Instance | CloudError]) -> str:
    return next((str(one) for one in answers if isinstance(one, CloudError)), "no answer for some")


# --- the places -----------------------------------------------------------------------------


def _place(world: World, flavor: str | None = None) -> Place:
    assert world.calls is not None, "it counts no calls"
    return Place(world.open, world.calls, world.image, flavor or world.flavor)


@asynccontextmanager
async def _aws(directory: Path) -> AsyncIterator[Place]:
    async with aws_world.opened(directory) as world:
        yield _place(world)


@asynccontextmanager
async def _fleets(directory: Path) -> AsyncIterator[Place]:
    with aws.serving() as server, aws_world.account_of(server, directory) as account:
        yield _place(aws_world.world_of(account, subnets=account.subnets), "any")
        for one in account.providers:
            await one.close()


@asynccontextmanager
async def _google(directory: Path) -> AsyncIterator[Place]:
    async with google_world.google_world() as world:
        yield _place(world)


@asynccontextmanager
async def _azure(directory: Path) -> AsyncIterator[Place]:
    with azure.serving() as server:
        async with azure_world.azure_world(server, directory) as world:
            yield _place(world)


@asynccontextmanager
async def _oci(directory: Path) -> AsyncIterator[Place]:
    async with oci.open_world(directory) as world:
        yield _place(world)


@asynccontextmanager
async def _terraform(directory: Path) -> AsyncIterator[Place]:
    """Its calls are runs of the program."""
    terraform = shutil.which("terraform") or shutil.which("tofu")
    if terraform is None:
        raise GaveUp("neither terraform nor tofu is installed: nothing stands in for it")
    shutil.copytree(test_terraform.MODULE, directory / "module")
    (directory / "calls").touch()
    program = directory / "terraform"
    program.write_text(test_terraform.PROGRAM.format(root=directory, terraform=terraform))
    program.chmod(0o755)
    os.environ["TF_VAR_root"] = str(directory / "machines")  # noqa: SIM112 - Terraform's spelling
    place = test_terraform.Place(directory)
    yield Place(place.open, lambda: len(place.calls()))


@asynccontextmanager
async def _command(directory: Path) -> AsyncIterator[Place]:
    """Its calls are runs of the site's programs."""
    site_programs.write(directory)
    machines = test_command.Machines(directory)
    yield Place(machines.open, machines.calls)


@asynccontextmanager
async def _openstack(directory: Path) -> AsyncIterator[Place]:
    # Imported here: its SDK is large, and warns of itself.
    from tests.providers import openstack_world

    async with openstack_world.opened_world() as world:

        def opened(cluster: str) -> Provider:
            made = world.open(cluster)
            assert isinstance(made, openstack_world.Restored)
            made.driver.batch = SERVERS // 4
            return made

        yield Place(opened, _place(world).calls, world.image, world.flavor)


CASES = (
    Case("aws", _aws, (FEW, MANY), 100),
    Case("aws, fleets", _fleets, (FEW, MANY), 1),
    Case("google", _google, (FEW, MANY), 1000),
    Case("azure", _azure, (FEW, MANY), 1),
    Case("oci", _oci, (FEW, MANY), 1),
    Case("terraform", _terraform, (TERRAFORM // 10, TERRAFORM), 1000),
    Case("command", _command, (FEW, MANY), 1000),
)
