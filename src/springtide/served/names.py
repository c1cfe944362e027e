"""The cluster's own name server: a dnsmasq that watches a directory with a file for each node.

So a change costs the changed nodes. Only addresses by which nodes reach this machine are listened
on; a site's own name server is not in the way unless it has these.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from springtide.batch.slurm_place import check_installed, check_reachable, directory, is_free
from springtide.batch.slurm_service import PATH
from springtide.configure.names import (
    NAME_PORT,
    USER,
    asking,
    decide_changes,
    has_server,
    parse_entry,
    render_dnsmasq,
    render_entry,
)
from springtide.file_errors import naming
from springtide.layout import Layout
from springtide.ports import Site, Unavailable
from springtide.served.server import ROOT, server
from springtide.served.where import addresses_for, is_here
from springtide.spec import Cluster

OTHERWISE = "or set `naming: {kind: hosts}`"
LEAST = (2, 88)
"""It forgets names whose file goes."""
VERSION_S = 10.0


class Names:
    """The names of one cluster, and who answers for them."""

    def __init__(self, spec: Cluster, control: str) -> None:
        """`control` is the control host's name."""
        self._spec = spec
        self._control = control
        self._layout = Layout(spec.state)
        self._hosts = self._layout.naming / "hosts"
        self._known: dict[str, str] | None = None
        conf = self._layout.naming / "dnsmasq.conf"
        options = ("--keep-in-foreground", "--log-facility=-", "--pid-file=")
        command = ("dnsmasq", *options, f"--conf-file={conf}")
        log = self._layout.log / "dnsmasq.log"
        self._server = server(self._layout, "dnsmasq", conf, command, log)

    def serve(self, site: Site, addresses: Mapping[str, str] | None) -> None:
        """Answer for these names and no others; None is for those of before."""
        if not has_server(self._spec):
            self.stop()
            return
        listen = addresses_for(self._spec, asking(self._spec), site)
        self.make_places()
        known = self.known()
        wanted = dict(known) if addresses is None else dict(addresses)
        self.write({**wanted, self._control: site.control_address})
        self._have(listen)

    def make_places(self) -> None:
        for path in (self._layout.naming, self._hosts, self._drafts):
            directory(path, ROOT, 0o755)

    def _have(self, listen: list[str]) -> None:
        forward = self._spec.naming.forward
        text = render_dnsmasq(self._spec.cluster, self._hosts, listen, forward)
        self._server.have(
            text,
            text,
            lambda: self._check(listen),
            lambda: not any(is_free(address, NAME_PORT) for address in listen),
        )

    def _check(self, listen: list[str]) -> None:
        self._require(listen)
        check_reachable(self._hosts, USER)

    def require(self, site: Site) -> None:
        """See that it runs or could be started; changes nothing. Raises Unavailable."""
        if not self._server.running:
            self._require(addresses_for(self._spec, asking(self._spec), site))

    def _require(self, listen: list[str]) -> None:
        check_installed("dnsmasq")
        check_version(_version())
        for address in listen:
            if not is_here(address):
                raise Unavailable(
                    f"{address} is no address of this machine, so no name server can listen there; "
                    f"set join.listen to the one that nodes' packets arrive at, {OTHERWISE}"
                )
            if not is_free(address, NAME_PORT):
                raise Unavailable(
                    f"port {NAME_PORT} of {address} is taken by another program, so dnsmasq cannot "
                    f"start; stop that program, {OTHERWISE}"
                )

    def stop(self, for_good: bool = True) -> None:
        self._server.stop()

    # Files

    @property
    def _drafts(self) -> Path:
        """Not where they are watched: half a file must not be read."""
        return self._layout.naming / "drafts"

    def known(self) -> dict[str, str]:
        """The names that are written; from disk at first, for they outlive the daemon."""
        if self._known is None:
            files = self._hosts.iterdir() if self._hosts.is_dir() else ()
            self._known = {
                file.name: parse_entry(file.read_text(errors="replace")) for file in files
            }
        return self._known

    def write(self, wanted: Mapping[str, str]) -> int:
        """Have these names written and no others; answers how many files that took."""
        written, gone = decide_changes(self.known(), wanted)
        self._known = None  # if it breaks off, the disk tells
        for name, address in written.items():
            draft = self._drafts / name
            with naming(draft):
                draft.write_text(render_entry(name, address, self._spec.cluster))
            draft.chmod(0o644)
            draft.replace(self._hosts / name)
        for name in gone:
            (self._hosts / name).unlink(missing_ok=True)
        self._known = dict(wanted)
        return len(written) + len(gone)


def _version() -> str:
    try:
        done = subprocess.run(
            ["dnsmasq", "--version"],
            env={"PATH": PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"dnsmasq cannot be run: {error}") from error
    return done.stdout


def check_version(said: str) -> None:
    """Of what `dnsmasq --version` prints; an odd one is taken to be new."""
    found = re.search(r"version (\d+)\.(\d+)", said)
    if found and (int(found[1]), int(found[2])) < LEAST:
        raise Unavailable(
            f"dnsmasq {found[1]}.{found[2]} does not forget nodes that are gone; "
            f"install {LEAST[0]}.{LEAST[1]} or newer, {OTHERWISE}"
        )
