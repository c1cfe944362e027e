"""Who the cluster is to its nodes: its TLS certificate, its authority over host keys, its ssh key.

All of it is made once, by the programs that every machine has for it, and lies in one directory
that only root can read. `compose` and the join service call it; nodes get public parts only.
"""

import errno
import os
import re
import ssl
import subprocess
import tempfile
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

YEARS = 10
LIMIT_S = 30.0
"""What takes longer than this does not work."""
KINDS = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384")
"""Of host keys that are signed."""
LONGEST_KEY = 2000
VALID = "-1h:+520w"
"""A node's clock may be behind ours. Its certificate outlives it; the name is the node's alone."""
_KEY = re.compile(r"([a-z0-9-]+) ([A-Za-z0-9+/]+={0,2})(?: [ -~]{0,200})?")
_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,254}")


class BadKey(ValueError):
    """What a node calls its public key is none."""


def ensure(directory: Path, cluster: str) -> None:
    """Make what is missing; what is there stays, as nodes know it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=directory) as place:
        fresh = Path(place)
        if not _has(directory, "tls.crt", "tls.key"):
            _make_certificate(fresh, cluster)
            _keep(fresh, directory, "tls.key", "tls.crt")
        for name in ("ssh_ca", "id_ed25519"):
            if not _has(directory, name, f"{name}.pub"):
                _make_key(fresh / name, f"{cluster} {name}")
                _keep(fresh, directory, name, f"{name}.pub")


def _has(directory: Path, *names: str) -> bool:
    return all((directory / name).exists() for name in names)


def _keep(fresh: Path, directory: Path, *names: str) -> None:
    """What proves that it is whole comes last."""
    for name in names:
        with (fresh / name).open("rb") as file:
            os.fsync(file.fileno())
        (fresh / name).replace(directory / name)


def _make_certificate(place: Path, cluster: str) -> None:
    """Nodes know it by its digest, so nobody has signed it."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256"]
    name = ["-subj", f"/CN={cluster}", "-addext", f"subjectAltName=DNS:{cluster}"]
    files = ["-keyout", str(place / "tls.key"), "-out", str(place / "tls.crt")]
    _run("openssl", "req", "-x509", *curve, "-days", str(365 * YEARS), *name, *files)
    (place / "tls.key").chmod(0o600)


def _make_key(path: Path, comment: str) -> None:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))


def pin(directory: Path) -> str:
    """What nodes know the daemon by: the SHA-256 of its certificate, in hex."""
    return sha256(ssl.PEM_cert_to_DER_cert((directory / "tls.crt").read_text())).hexdigest()


def tls(directory: Path) -> ssl.SSLContext:
    """How the daemon shows it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context


# --- ssh ---------------------------------------------------------------------------------------


def client_key(directory: Path) -> str:
    """The public key that the cluster logs in to its nodes with."""
    return (directory / "id_ed25519.pub").read_text().strip()


def known_hosts(directory: Path, patterns: Iterable[str]) -> str:
    """A line for known_hosts: whose host key our authority signed is who it says it is."""
    key = parse_key((directory / "ssh_ca.pub").read_text().strip())
    return f"@cert-authority {','.join(patterns)} {key}"


def parse_key(line: str) -> str:
    """A public key without its comment; anything else is refused."""
    found = _KEY.fullmatch(line) if len(line) <= LONGEST_KEY else None
    if found is None or found[1] not in KINDS or not _is_of(found[1], found[2]):
        raise BadKey(f"{line[:60]!r} is no public host key")
    return f"{found[1]} {found[2]}"


def _is_of(kind: str, encoded: str) -> bool:
    """The kind stands in the key as well, after its length."""
    try:
        raw = b64decode(encoded, validate=True)
    except Base64Error:
        return False
    return raw.startswith(len(kind).to_bytes(4) + kind.encode())


def sign(directory: Path, node: str, names: Sequence[str], public_key: str) -> str:
    """A certificate for a node's host key, good for these names and addresses."""
    return sign_all(directory, node, names, [public_key])[0]


def sign_all(
    directory: Path, node: str, names: Sequence[str], public_keys: Sequence[str]
) -> list[str]:
    """The same for all its keys, of which a machine has one of each kind, at once."""
    keys = [parse_key(line) for line in public_keys]
    principals = list(dict.fromkeys([node, *names]))
    if not all(_PRINCIPAL.fullmatch(one) for one in principals):
        raise BadKey(f"{', '.join(principals)[:200]!r} are no names of a host")
    if not keys:
        return []
    with tempfile.TemporaryDirectory(prefix=".sign-", dir=directory) as place:
        paths = [Path(place, f"{number}.pub") for number in range(len(keys))]
        for path, key in zip(paths, keys, strict=True):
            path.write_text(f"{key}\n")
        about = ["-h", "-I", node, "-n", ",".join(principals), "-V", VALID]
        _run("ssh-keygen", "-q", "-s", str(directory / "ssh_ca"), *about, *map(str, paths))
        return [path.with_name(f"{path.stem}-cert.pub").read_text().strip() for path in paths]


# --- programs ----------------------------------------------------------------------------------


def _run(*command: str) -> None:
    """Run a program that makes keys; what it says is told if it fails."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        package = {"ssh-keygen": "openssh-client"}.get(command[0], command[0])
        what = f"there is no {command[0]} on this machine; install the package {package}"
        raise OSError(errno.ENOENT, what, command[0]) from None
    except subprocess.TimeoutExpired:
        what = f"it did not end within {LIMIT_S:g} s"
        raise OSError(errno.ETIMEDOUT, what, command[0]) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing was said"]
        raise OSError(errno.EIO, f"{command[0]} failed: {said[-1][:200]}", command[0])
