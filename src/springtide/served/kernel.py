"""Directories of this machine for nodes elsewhere, by the NFS server of its kernel.

That server is the site's: we add a file to those that it exports, and take it away again. When
nodes change, exportfs is told of these alone.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from springtide.batch.slurm_place import directory, write
from springtide.batch.slurm_service import PATH, read
from springtide.batch.slurm_text import error_text
from springtide.configure.exports import (
    export_lines,
    exports_of,
    parse_exports,
    parse_line,
    render_exports,
)
from springtide.layout import Layout
from springtide.ports import Site, Unavailable
from springtide.served.nfs import check_directories, kept_clients
from springtide.served.server import ROOT
from springtide.spec import Cluster

EXPORTS = Path("/etc/exports.d")
MOST = 500
"""So many directories of nodes for one exportfs."""
LIMIT_S = 60.0
GONE = re.compile(r"Could not find '.*' to unexport")
"""What it says of what is not exported any more, which is fine."""
MISSING = (
    "exportfs not found; install and start nfs-kernel-server, set `nfs: {server: ganesha}`, "
    "or `none` if nodes get these directories otherwise"
)


class KernelExports:
    """The exports of one cluster."""

    def __init__(self, spec: Cluster, place: Path = EXPORTS) -> None:
        self._spec = spec
        self._layout = Layout(spec.state)
        self._exports = exports_of(spec) if spec.nfs.server == "kernel" else ()
        self._file = place / f"springtide-{spec.cluster}.exports"
        self._told = False

    def serve(self, site: Site, addresses: Mapping[str, str] | None) -> None:
        """Export to nodes at these addresses and no others; None is for those of before."""
        if not self._exports:
            self.stop()
            return
        check_directories(self._exports)
        directory(self._layout.nfs, ROOT, 0o700)
        clients = kept_clients(self._layout, self._spec, addresses)
        self._change(export_lines(self._exports, clients))

    def _change(self, lines: Sequence[str]) -> None:
        """The file first: it is what counts after a reboot."""
        known = parse_exports(read(self._file))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write(self._file, render_exports(self._spec.cluster, lines))
        told, self._told = self._told, False  # until all went well
        if told:
            before, now = set(known), set(lines)
            _export(line for line in lines if line not in before)
            _unexport(line for line in known if line not in now)
        else:  # the machine may have booted since
            exportfs("-r")
        self._told = True

    def stop(self, for_good: bool = True) -> None:
        """The file goes last: what could not be unexported is tried again."""
        if not self._file.exists():
            return
        if shutil.which("exportfs", path=PATH):  # else the site has no such server any more
            _unexport(parse_exports(read(self._file)))
        self._file.unlink()


def _export(lines: Iterable[str]) -> None:
    parsed = sorted((parse_line(line) for line in lines), key=lambda each: each[1])
    for options, some in groupby(parsed, key=lambda each: each[1]):
        for part in _parts([who for who, _ in some]):
            exportfs("-o", options, *part)


def _unexport(lines: Iterable[str]) -> None:
    for part in _parts([parse_line(line)[0] for line in lines]):
        exportfs("-u", *part)


def _parts(all_of_them: Sequence[str]) -> list[Sequence[str]]:
    return [all_of_them[start : start + MOST] for start in range(0, len(all_of_them), MOST)]


def exportfs(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ["exportfs", *arguments],
            env={"PATH": PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(MISSING) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"exportfs cannot be run: {error}") from error
    wrong = [line for line in done.stderr.splitlines() if not GONE.search(line)]
    if done.returncode and wrong:
        raise Unavailable(f"exportfs says: {error_text(done.stderr)}")
