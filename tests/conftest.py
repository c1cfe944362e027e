"""What all tests share."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.leftovers import remove_leftovers

pytest_plugins = ("tests.quarantine",)

LONGEST = (
    "test_openstack.py",
    "test_polled_slurm.py",
    "test_gridengine.py",
    "test_week.py",
    "test_vm_join.py",
    "test_slurm_polled.py",
    "test_torque.py",
    "test_demo.py",
    "test_random.py",
    "test_service.py",
    "test_vm.py",
    "test_terraform.py",
    "test_repair.py",
    "test_whole.py",
    "test_control.py",
    "test_ansible.py",
    "test_kill.py",
    "test_slurm_adapter.py",
    "test_accounting.py",
    "test_rebuild.py",
    "test_attach.py",
    "test_polled.py",
    "test_cli.py",
    "test_faults.py",
    "test_libvirt_power.py",
    "test_special.py",
    "test_libvirt.py",
    "test_containers.py",
    "test_calendar.py",
    "test_autoscale.py",
    "test_rack.py",
    "test_resize.py",
    "test_cycles.py",
    "test_containers_reboot_cut.py",
    "test_plans.py",
    "test_aws.py",
)
"""Files of tests that take minutes."""
STATES = Path("/var/lib/springtide")
OURS = [STATES / name for name in ("sim", f"blue-{os.getpid()}", f"green-{os.getpid()}")]
"""What simulations and tests of providers would write there, whose clusters are called so."""
WATCHED = [path for path in OURS if not path.exists()]
NEEDED = ("slurmctld", "slurmd", "munged", "unshare", "ip")
IGNORED = (signal.SIGINT, signal.SIGHUP)
"""By what runs in the background of a shell, or by nohup."""

# How long an example takes tells of the machine's load, not of what is under test. Each run tries
# the same ones: `--hypothesis-profile default` looks for others.
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Have no event loop made that nobody closes: asking for the current one would make it.

    Programs under test are interrupted. They inherit what is ignored, but no handler.
    """
    asyncio.set_event_loop(None)
    for number in IGNORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Not in each of several processes of one run."""
    if "PYTEST_XDIST_WORKER" not in os.environ and os.geteuid() == 0:
        remove_leftovers()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: all processes then end together."""
    longest = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: longest.get(item.path.name, len(longest)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`make test` installs all that real tests need; elsewhere they say what is missing."""
    if item.get_closest_marker("real") is None:
        return
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [program for program in NEEDED if shutil.which(program, path=path) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}: run `make test`")


@pytest.fixture(scope="session", autouse=True)
def _clock_of_utc() -> Iterator[None]:
    """Times of a calendar are told with their zone if this machine has another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("springtide.calendar.machine_zone", lambda: UTC)
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Where clusters of the machine are, tests leave nothing; others' runs have other names."""
    for path in filter(Path.exists, tuple(WATCHED)):
        WATCHED.remove(path)
        pytest.fail(f"{item.name} left {path}: give its cluster a state directory of its own")
