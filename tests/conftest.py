"""What all tests share."""

import asyncio
import os
import shutil

import pytest

from tests.leftovers import remove_leftovers

LONGEST = (
    "test_random.py",
    "test_openstack.py",
    "test_accounting.py",
    "test_terraform.py",
    "test_vm.py",
    "test_week.py",
    "test_kill.py",
    "test_libvirt.py",
    "test_containers_reboot_cut.py",
    "test_aws.py",
)
"""Files of tests that take minutes."""
NEEDED = ("slurmctld", "slurmd", "munged", "unshare", "ip")


def pytest_configure(config: pytest.Config) -> None:
    """Have no event loop made that nobody closes: asking for the current one would make it."""
    asyncio.set_event_loop(None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Not in each of several processes of one run."""
    if "PYTEST_XDIST_WORKER" not in os.environ and os.geteuid() == 0:
        remove_leftovers()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: two processes then end together."""
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
