"""Directories of this machine for nodes elsewhere, by an NFS server of the cluster's own.

Whom it serves follows the addresses of nodes. Ganesha needs no kernel module, rpcbind or D-Bus; of
a filesystem it needs that files can be opened by handle, as on ext4, xfs, btrfs and tmpfs.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from springtide.batch.slurm_place import check_installed, check_port, directory, is_free, write
from springtide.batch.slurm_service import read
from springtide.configure.exports import (
    Export,
    Listening,
    clients_of,
    exports_of,
    mounting,
    render_ganesha,
)
from springtide.layout import Layout
from springtide.ports import Site, Unavailable
from springtide.served.server import ROOT, server
from springtide.served.where import addresses_for, is_here
from springtide.spec import Cluster

EVERYWHERE = "0.0.0.0"  # noqa: S104 - only nodes are served, wherever they come in


class Ganesha:
    """The NFS server of one cluster."""

    def __init__(self, spec: Cluster) -> None:
        self._spec = spec
        self._layout = Layout(spec.state)
        self._exports = exports_of(spec) if spec.nfs.server == "ganesha" else ()
        conf, log = self._layout.nfs / "ganesha.conf", self._layout.log / "ganesha.log"
        pid = self._layout.nfs / "ganesha.pid"
        command = ("ganesha.nfsd", "-F", "-f", str(conf), "-L", str(log), "-p", str(pid))
        self._server = server(self._layout, "ganesha", conf, command, Path(os.devnull))

    def serve(self, site: Site, addresses: Mapping[str, str] | None) -> None:
        """Serve nodes at these addresses and no others; None is for those of before."""
        if not self._exports:
            self.stop()
            return
        where = self._listening(site)
        directory(self._layout.nfs, ROOT, 0o700)
        directory(where.memory, ROOT, 0o700)
        clients = kept_clients(self._layout, self._spec, addresses)
        self._server.have(
            render_ganesha(where, self._exports, clients),
            render_ganesha(where, self._exports, ()),
            lambda: self._check(where),
            lambda: not is_free(where.address, where.port),
        )

    def _listening(self, site: Site) -> Listening:
        """It can have one address, or all."""
        addresses = addresses_for(self._spec, mounting(self._spec), site)
        one = len(addresses) == 1 and is_here(addresses[0])
        address = addresses[0] if one else EVERYWHERE
        return Listening(address, self._spec.nfs.port, self._layout.nfs / "recovery")

    def _check(self, where: Listening) -> None:
        check_installed("ganesha.nfsd")
        check_directories(self._exports)
        check_port(where.address, where.port, "ganesha", "nfs.port")

    def require(self, site: Site) -> None:
        """See that it runs or could be started; changes nothing. Raises Unavailable."""
        if not self._server.running:
            self._check(self._listening(site))

    def stop(self, for_good: bool = True) -> None:
        self._server.stop()


def check_directories(exports: Sequence[Export]) -> None:
    for one in exports:
        if not Path(one.directory).is_dir():
            raise Unavailable(
                f"{one.directory} is no directory, so it cannot be shared with nodes; "
                f"run `mkdir -p {one.directory}`, or correct `shared`"
            )


def kept_clients(layout: Layout, spec: Cluster, addresses: Mapping[str, str] | None) -> list[str]:
    """Who is to be served; kept for a time when nobody tells."""
    kept = layout.nfs / "clients"
    if addresses is not None:
        write(kept, "".join(f"{client}\n" for client in clients_of(spec, addresses)))
    return read(kept).split() or clients_of(spec, {})
