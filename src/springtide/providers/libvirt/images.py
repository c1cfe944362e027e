"""Images made of machines: volumes beside their disks, whole without the image below them.

An image `golden-1` of cluster blue is `springtide-blue-golden-1.qcow2`. What says that it is
complete, and whose, is a file `.json` beside it that is written last.
"""

import json
import re
import time
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

import libvirt

from springtide.ports import CloudError, CloudImage, Instance, Rejected, Transient
from springtide.providers.libvirt.connection import told
from springtide.providers.libvirt.errors import is_gone
from springtide.providers.libvirt.storage import Disks

NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
LIMIT_S = 3600.0
PAUSE_S = 0.2
COPY = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
MOST = 64 << 10
DISK = "vda"


def made(connection: Any, disks: Disks, instance: Instance, name: str) -> CloudImage:
    """Of a running machine as its disk is at one moment; what it has not written is not there."""
    if not NAME.fullmatch(name):
        raise Rejected(f"an image cannot be called {name!r}: use letters, digits, '_', '.' and '-'")
    stem = f"springtide-{instance.cluster}-{name}"
    if (known := _told(connection, disks, f"{stem}.json")) is not None:
        return known
    _copy(connection, disks, instance, f"{stem}.qcow2")
    path = disks.path(f"{stem}.qcow2")
    image = CloudImage(path, name, instance.cluster, time.time())
    disks.write(connection, f"{stem}.json", render(image).encode())
    return image


def listed(connection: Any, disks: Disks, cluster: str) -> Sequence[CloudImage]:
    names = [
        name
        for name in disks.names(connection)
        if name.startswith("springtide-") and name.endswith(".json")
    ]
    told_of = (_told(connection, disks, name) for name in sorted(names))
    return [image for image in told_of if image is not None and image.cluster == cluster]


def forgotten(connection: Any, disks: Disks, image: CloudImage) -> None:
    stem = f"springtide-{image.cluster}-{image.name}"
    for ending in ("json", "qcow2"):
        disks.delete(connection, f"{stem}.{ending}")


def render(image: CloudImage) -> str:
    told_of = {"path": image.id, "name": image.name, "cluster": image.cluster}
    return json.dumps(told_of | {"created_at": image.created_at, "arch": image.arch})


def parse(text: str) -> CloudImage | None:
    """None if we did not write it, or not to its end."""
    try:
        said = json.loads(text)
        return CloudImage(
            id=said["path"],
            name=said["name"],
            cluster=said["cluster"],
            created_at=float(said["created_at"]),
            arch=said["arch"],
        )
    except (ValueError, KeyError, TypeError):
        return None


def _told(connection: Any, disks: Disks, name: str) -> CloudImage | None:
    return parse(disks.end_of(connection, name, MOST).decode(errors="replace"))


def _copy(connection: Any, disks: Disks, instance: Instance, to: str) -> None:
    disk = f"{instance.id}.qcow2"
    with told(f"an image of {instance.node}"):
        try:
            domain = connection.lookupByName(instance.id)
        except libvirt.libvirtError as error:
            if is_gone(error):
                raise Rejected(f"{instance.node} has no machine {instance.id} any more") from error
            raise
        if not domain.isActive():
            disks.copy(connection, to, disk)
            return
        disks.blank(connection, to, disk)
        _mirror(domain, disks.path(to))


def _mirror(domain: Any, path: str) -> None:
    """Its disk is copied while it runs; the machine stands still while the copy is completed."""
    to = f"<disk type='file'><source file={quoteattr(path)}/><driver type='qcow2'/></disk>"
    domain.blockCopy(DISK, to, flags=COPY)
    try:
        _wait(domain)
        ran = domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
        if ran:
            domain.suspend()
        try:
            _wait(domain)
        finally:
            domain.blockJobAbort(DISK, 0)
            if ran:
                domain.resume()
    except CloudError:
        domain.blockJobAbort(DISK, 0)
        raise


def _wait(domain: Any) -> None:
    """Until the copy has all that the disk has."""
    end = time.monotonic() + LIMIT_S
    while True:
        job = domain.blockJobInfo(DISK, 0)
        if not job:
            raise Transient("the copy of the disk ended before its time: is there room for it?")
        if job["cur"] == job["end"] and job["end"] > 0:
            return
        if time.monotonic() > end:
            raise Transient(f"the copy of the disk took longer than {LIMIT_S:.0f} s")
        time.sleep(PAUSE_S)
