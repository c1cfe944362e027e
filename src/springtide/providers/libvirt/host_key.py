"""An ssh host key for a node, if the file wants it: known before the node boots.

The private half is in the node's seed, which root of libvirt's host alone can read, and nowhere
else of ours; the public half is in the node's mark.
"""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from springtide.ports import CloudError, Rejected

LIMIT_S = 30.0
TYPE = "ed25519"
PLANT = """\
umask 077
mkdir -p /etc/ssh
cat >/etc/ssh/ssh_host_{type}_key <<'END'
{private}
END
echo '{public}' >/etc/ssh/ssh_host_{type}_key.pub
umask 022
"""


@dataclass(frozen=True, slots=True)
class HostKey:
    public: str
    private: str

    def __repr__(self) -> str:
        return f"HostKey({self.public!r})"

    def script(self) -> str:
        """What puts it in its place on the node."""
        return PLANT.format(type=TYPE, private=self.private.strip(), public=self.public)


def fresh(comment: str) -> HostKey:
    with tempfile.TemporaryDirectory(prefix="tide-key-") as name:
        path = Path(name, "key")
        _generate(path, comment)
        return HostKey(path.with_suffix(".pub").read_text().strip(), path.read_text())


def _generate(path: Path, comment: str) -> None:
    command = ["ssh-keygen", "-q", "-t", TYPE, "-N", "", "-C", comment, "-f", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
    except FileNotFoundError:
        raise Rejected(
            "ssh-keygen is not installed here, and `host_keys` needs it: install the package "
            "openssh-client"
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise CloudError(f"no host key was made: {error}") from error
