"""Worlds for tests of libvirt: a real libvirtd, and machines that need not boot anything.

A machine has 65 MiB, a disk with nothing on it, and waits for ever in its firmware: starting one
costs half a second. What it was told is read from the seed that it has as a disk.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    Launch,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
)
from springtide.providers.cloud import Catalog
from springtide.providers.libvirt import provider
from springtide.spec import Flavor, Image
from springtide.spec.clouds import Libvirt
from tests.libvirt.daemon import NETWORK, binding, connected
from tests.libvirt.daemon import Libvirt as Running
from tests.providers.servers.libvirt import Between
from tests.providers.world import BLUE, World

FLAVORS = {"tiny": Flavor(cpus=1, memory=1), "other": Flavor(cpus=1, memory=2)}
WORD = "the word is "
LIGHT = {"features": "<tcg><tb-cache unit='MiB'>8</tb-cache></tcg>"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the machines of a test live."""

    running: Running
    disks: Path
    images: dict[str, Image]

    def wanted(self, **more: Any) -> Libvirt:
        settings = {
            "uri": self.running.uri,
            "network": NETWORK,
            "disks": self.disks,
            "emulate": "qemu",
            "control_address": str(self.running.control),
            "options": LIGHT,
        }
        return Libvirt(**{**settings, **more})

    def open(self, _: str = "", **more: Any) -> Provider:
        return provider(self.wanted(**more), Catalog(self.images, FLAVORS), self.running.root)

    def kill(self, instance: Instance, name: str = "") -> None:
        with connected(self.running) as connection:
            connection.lookupByName(name or instance.id).destroy()

    def undefined(self, launch: Launch) -> Launch:
        """There is no such machine."""
        with connected(self.running) as connection:
            connection.lookupByName(launch.node).undefine()
        return launch

    def said(self, node: str) -> str | None:
        """From the user data on the seed of the machine that runs."""
        with connected(self.running) as connection:
            for domain in connection.listAllDomains():
                if domain.name().startswith(f"{BLUE}.{node}."):
                    return self._word(domain.XMLDesc())
        return None

    def _word(self, definition: str) -> str | None:
        (seed,) = re.findall("file='([^']*[.]iso)'", definition)
        lines = unpacked(Path(seed)).get("user-data", "").splitlines()
        return next((line.partition(WORD)[2] for line in lines if WORD in line), None)


def unpacked(seed: Path) -> dict[str, str]:
    """The files of a seed, as its Rock Ridge names have them."""
    names = ("meta-data", "user-data", "network-config")
    return {name: _read(seed, name) for name in names}


def _read(seed: Path, name: str) -> str:
    command = ["isoinfo", "-R", "-i", str(seed), "-x", f"/{name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def place(running: Running) -> Place:
    """A new directory with two images."""
    root = Path(tempfile.mkdtemp(prefix="place-", dir=running.root))
    disks = root / "disks"
    disks.mkdir()
    return Place(running, disks, {name: _image(root, name) for name in ("base", "next")})


def _image(root: Path, name: str) -> Image:
    path = root / f"{name}.qcow2"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", str(path), "1M"]
    subprocess.run(command, check=True)
    mark = f"write -P {ord(name[0])} 0 64k"
    subprocess.run(["qemu-io", "-c", mark, str(path)], check=True, capture_output=True)
    return Image(path=path)


REFUSALS: dict[type[CloudError], tuple[int, int, str]] = {
    NoCapacity: (
        1,
        10,
        "process exited: cannot set up guest memory 'pc.ram': Cannot allocate memory",
    ),
    QuotaExceeded: (38, 18, "cannot write data to file 'x': Disk quota exceeded"),
    Denied: (88, 10, "access denied: 'domain' denied access"),
    Rejected: (67, 10, "unsupported configuration: CPU mode 'x' is not supported"),
}
"""As libvirt tells them: code, where from, and what."""


def created(here: Place, wire: Between) -> World:
    uri = f"qemu+unix:///system?socket={wire.path}"
    return World(
        open=lambda cluster: here.open(cluster, uri=uri),
        spoil=lambda one: replace(one, image="nowhere"),
        says=lambda node, word: f"echo {WORD}{word}\n",
        said=here.said,
        kill=here.kill,
        image="base",
        flavor="tiny",
        other_image="next",
        snapshots=True,
        several=2,
        refuse=lambda kind: wire.refuse(*REFUSALS[kind]),
        refusals=tuple(REFUSALS),
        lose_reply=wire.lose_reply,
    )


def powered(here: Place) -> World:
    """Machines that exist are told nothing: they always say what is on their disks."""
    return World(
        open=lambda cluster: here.open(cluster, nodes="power", grace=0),
        spoil=here.undefined,
        says=lambda node, word: word,
        said=lambda node: "first",
        kill=lambda one: here.kill(one, one.node),
        image="base",
        flavor="tiny",
        other_image="next",
        changes_user_data=False,
        several=2,
    )


def clean(here: Place) -> None:
    """Take away what the test left, by libvirt alone."""
    with connected(here.running) as connection:
        for domain in connection.listAllDomains():
            try:
                _remove(domain)
            except binding.libvirtError as error:
                if error.get_error_code() != binding.VIR_ERR_NO_DOMAIN:
                    raise


def _remove(domain: Any) -> None:
    """One that is not kept is unknown as soon as it ends, which it may do by itself."""
    kept = domain.isPersistent()
    if domain.isActive():
        domain.destroy()
    if kept:
        domain.undefine()
