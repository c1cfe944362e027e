"""A server of the cluster's own with one file of configuration: had, told, stopped."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from springtide.batch import slurm_service
from springtide.batch.slurm_place import directory, write
from springtide.batch.slurm_service import Service, read
from springtide.layout import Layout
from springtide.ports import Unavailable

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Server:
    """A program in the foreground; what it was started with is kept on disk."""

    service: Service
    conf: Path
    """What it reads."""
    started_with: Path
    """As much of that as it reads at its start alone."""
    told: Path
    """What it has read, as far as we know: the daemon may end before it tells."""

    @property
    def running(self) -> bool:
        return slurm_service.find(self.service) is not None

    def have(
        self, text: str, fixed: str, check: Callable[[], None], up: Callable[[], bool]
    ) -> bool:
        """See that it runs with this configuration; answers whether it was started.

        If `fixed` has changed it is started anew. `check` raises Unavailable if it could not.
        """
        if self.running and read(self.started_with) == fixed:
            self._tell(text)
            return False
        self.stop()
        check()
        for path in (self.service.named.parent, self.service.log.parent):
            directory(path, ROOT, 0o755)
        self._start(text, fixed, up)
        return True

    def _start(self, text: str, fixed: str, up: Callable[[], bool]) -> None:
        """What it starts with is known before: the daemon may end while it waits."""
        for path, what in ((self.conf, text), (self.told, text), (self.started_with, fixed)):
            write(path, what)
        try:
            slurm_service.start(self.service, socket.gethostname(), Path("/etc/hosts"), up)
        except Unavailable:
            self.started_with.unlink()  # so it is started anew, even if it hangs
            raise

    def _tell(self, text: str) -> None:
        """It reads its configuration anew without a pause for anybody."""
        if read(self.told) == text:
            return
        write(self.conf, text)
        process = slurm_service.find(self.service)
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGHUP)
        write(self.told, text)

    def stop(self) -> None:
        """Gone already is fine."""
        slurm_service.stop(self.service)
        self.started_with.unlink(missing_ok=True)
        self.told.unlink(missing_ok=True)


def server(layout: Layout, name: str, conf: Path, command: tuple[str, ...], output: Path) -> Server:
    log = layout.log / f"{name}.log"
    service = Service(name, ROOT, command, layout.run / f"{name}.pid", log, output)
    run = layout.run
    return Server(service, conf, run / f"{name}.conf", run / f"{name}.told")
