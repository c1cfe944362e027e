"""A real Torque or OpenPBS does what all batch systems do, where PBS_EXEC points to one."""

import os
from collections.abc import AsyncIterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from springtide.ports import Health
from tests.batch.conformance import Conformance
from tests.batch.real_pbs import PREMISES, VARIABLE, UnknownPbs, detect, real_pbs
from tests.batch.world import World, until

SUBNET = IPv4Network(f"10.75.{os.getpid() % 250}.0/24")
"""Where no cluster is that chooses one by itself."""
POINTED = os.environ.get(VARIABLE, "")
WHY = f"{VARIABLE} points to no Torque or OpenPBS: neither is in a registry of packages"


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.skipif(not POINTED, reason=WHY)
class TestRealPbs(Conformance):
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        async with real_pbs(Path(POINTED), SUBNET) as pbs:
            world = pbs.world()
            await until(world, lambda seen: seen.nodes[PREMISES].health is Health.UP)
            yield world
            await pbs.reset(world)


# --- which of them it is -------------------------------------------------------------------------


def installed(place: Path, *programs: str) -> Path:
    for program in programs:
        (place / program).parent.mkdir(parents=True, exist_ok=True)
        (place / program).touch(0o755)
    return place


@pytest.mark.parametrize(
    ("kind", "programs"),
    [
        ("torque", ("bin/qstat", "bin/pbsnodes", "sbin/pbs_server", "sbin/trqauthd")),
        ("openpbs", ("bin/qstat", "bin/pbsnodes", "sbin/pbs_server", "sbin/pbs_comm")),
    ],
)
def test_it_is_known_by_the_programs_that_only_it_has(
    tmp_path: Path, kind: str, programs: tuple[str, ...]
) -> None:
    assert detect(installed(tmp_path, *programs)) == kind


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ((), "there is no bin/qstat"),
        (("sbin/pbs_comm",), "there is no bin/qstat"),
        (("bin/qstat", "sbin/slurmctld"), "neither Torque's trqauthd nor OpenPBS's pbs_comm"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, programs: tuple[str, ...], said: str) -> None:
    with pytest.raises(UnknownPbs, match=said):
        detect(installed(tmp_path, *programs))
