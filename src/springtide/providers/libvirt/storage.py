"""Disks, seeds and consoles of machines, as volumes of the libvirt pool that `disks` is.

All goes through libvirt, nothing through the files of this machine: so it works for a libvirt on
another one too. If no pool is defined for the directory, one of ours is made that lasts as long
as libvirtd does.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import libvirt

from springtide.ports import Rejected
from springtide.providers.libvirt.connection import told
from springtide.providers.libvirt.errors import is_gone

MIB = 1024 * 1024
CHUNK = 256 * 1024
"""More than that no packet of libvirt holds."""


class Disks:
    """The volumes of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def clone(self, connection: Any, name: str, image: str, size_mib: int | None) -> None:
        """A disk that holds what differs from the image."""
        pool = self.pool(connection)
        known = source(connection, image)
        capacity = max(known.capacity, (size_mib or 0) * MIB)
        self._fresh(pool, name, render_clone(name, capacity, image, known.format))

    def write(self, connection: Any, name: str, content: bytes) -> None:
        """Whole, in place of what has the name."""
        pool = self.pool(connection)
        volume = self._fresh(pool, name, render_volume(name, len(content), "raw"))
        if content:
            _upload(connection, volume, content)

    def copy(self, connection: Any, name: str, original: str) -> None:
        """All that is on a disk which nobody uses, whatever it is based on."""
        pool = self.pool(connection)
        with told(f"disk {original}"):
            volume = pool.storageVolLookupByName(original)
            wanted = render_volume(name, volume.info()[1], "qcow2")
            self.delete(connection, name)
            pool.createXMLFrom(wanted, volume, 0)

    def blank(self, connection: Any, name: str, original: str) -> None:
        """A disk as large as another one, for its content to come."""
        pool = self.pool(connection)
        with told(f"disk {original}"):
            capacity = pool.storageVolLookupByName(original).info()[1]
        self._fresh(pool, name, render_volume(name, capacity, "qcow2"))

    def end_of(self, connection: Any, name: str, most: int) -> bytes:
        """The end of a file; nothing if there is none."""
        try:
            volume = self.pool(connection).storageVolLookupByName(name)
            size = volume.info()[1]
            return _download(connection, volume, max(0, size - most), most)
        except libvirt.libvirtError:
            return b""

    def delete(self, connection: Any, name: str) -> None:
        with told(f"disk {name}"):
            try:
                self.pool(connection).storageVolLookupByName(name).delete(0)
            except libvirt.libvirtError as error:
                if not is_gone(error):
                    raise

    def names(self, connection: Any) -> list[str]:
        """As they are now: what others made there is seen too. No directory has no files."""
        try:
            pool = self.pool(connection)
        except Rejected:
            return []
        with told(f"pool {pool.name()}"):
            with suppress(libvirt.libvirtError):  # not while something is being written
                pool.refresh(0)
            return list(pool.listVolumes())

    def pool(self, connection: Any, build: bool = False) -> Any:
        """Its directory is made if that is wanted; without one there is no pool."""
        with told(f"directory {self.directory}"):
            found = self._known(connection)
            if found is None:
                return self._made(connection, build)
            if not found.isActive():
                found.create(0)
            return found

    def forget_pool(self, connection: Any) -> None:
        """If it is ours; files stay, and whoever needs it makes it again."""
        found = self._known(connection)
        if found is not None and found.name() == self._own:
            with suppress(libvirt.libvirtError):
                found.destroy()

    @property
    def _own(self) -> str:
        return f"springtide-{hashlib.sha256(str(self.directory).encode()).hexdigest()[:8]}"

    def _known(self, connection: Any) -> Any:
        try:
            return connection.storagePoolLookupByTargetPath(str(self.directory))
        except libvirt.libvirtError as error:
            if is_gone(error):
                return None
            raise

    def _made(self, connection: Any, build: bool) -> Any:
        """Two may do so at once: the second finds the first's."""
        try:
            flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if build else 0
            return connection.storagePoolCreateXML(render_pool(self._own, self.directory), flags)
        except libvirt.libvirtError:
            if (found := self._known(connection)) is None:
                raise
            return found

    def _fresh(self, pool: Any, name: str, wanted: str) -> Any:
        """In place of one that was left there; it may still be unknown to libvirt."""
        with told(f"disk {name}"):
            with suppress(libvirt.libvirtError):
                pool.storageVolLookupByName(name).delete(0)
            return pool.createXML(wanted, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """An image that disks are made from."""

    capacity: int
    format: str


def source(connection: Any, path: str) -> Source:
    """The image of this path on libvirt's host; its directory need not be a pool yet."""
    place = Path(path)
    pool = Disks(place.parent).pool(connection)
    with told(f"image {path}"):
        try:
            volume = _looked_up(pool, place.name)
        except libvirt.libvirtError as error:
            if is_gone(error):
                raise Rejected(
                    f"there is no image {path} on the host of libvirt: copy it there, or correct "
                    "its path in `images`"
                ) from error
            raise
        return parse_volume(volume.XMLDesc(0))


def _looked_up(pool: Any, name: str) -> Any:
    """A file that came since libvirt looked is found at the second look."""
    try:
        return pool.storageVolLookupByName(name)
    except libvirt.libvirtError:
        pool.refresh(0)
        return pool.storageVolLookupByName(name)


def parse_volume(text: str) -> Source:
    tree = ElementTree.fromstring(text)  # noqa: S314 - libvirt has made it
    format = tree.find("target/format")
    capacity = int(tree.findtext("capacity", "0"))
    return Source(capacity, "raw" if format is None else format.get("type", "raw"))


def render_pool(name: str, directory: Path) -> str:
    target = f"<target><path>{escape(str(directory))}</path></target>"
    return f"<pool type='dir'><name>{escape(name)}</name>{target}</pool>"


def render_volume(name: str, capacity: int, format: str, more: str = "") -> str:
    """Takes no more room than what is written to it."""
    compat = "<compat>1.1</compat>" if format == "qcow2" else ""
    return (
        f"<volume><name>{escape(name)}</name><capacity>{capacity}</capacity>"
        f"<allocation>0</allocation>"
        f"<target><format type={quoteattr(format)}/>{compat}</target>{more}</volume>"
    )


def render_clone(name: str, capacity: int, image: str, format: str) -> str:
    path = f"<path>{escape(image)}</path><format type={quoteattr(format)}/>"
    return render_volume(name, capacity, "qcow2", f"<backingStore>{path}</backingStore>")


def _upload(connection: Any, volume: Any, content: bytes) -> None:
    stream = connection.newStream(0)
    volume.upload(stream, 0, len(content), 0)
    for part in _parts(content):
        while part:
            part = part[stream.send(part) :]
    stream.finish()


def _parts(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), CHUNK):
        yield content[at : at + CHUNK]


def _download(connection: Any, volume: Any, offset: int, length: int) -> bytes:
    stream = connection.newStream(0)
    volume.download(stream, offset, length, 0)
    content = b""
    while part := stream.recv(CHUNK):
        content += part
    stream.finish()
    return content
