"""Where a cluster keeps its files: every path under its state directory, in one place."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The state directory of one cluster."""

    state: Path

    @property
    def record(self) -> Path:
        return self.state / "record.db"

    @property
    def lock(self) -> Path:
        return self.state / "daemon.lock"

    @property
    def socket(self) -> Path:
        return self.state / "tide.sock"

    @property
    def spool(self) -> Path:
        return self.state / "spool"

    @property
    def programs(self) -> Path:
        return self.state / "bin"

    @property
    def conf(self) -> Path:
        return self.state / "conf"

    @property
    def munge_key(self) -> Path:
        return self.state / "key" / "munge.key"

    @property
    def munge_socket(self) -> Path:
        return self.state / "munge" / "munge.socket"

    @property
    def instances(self) -> Path:
        return self.state / "containers"

    @property
    def log(self) -> Path:
        return self.state / "log"
