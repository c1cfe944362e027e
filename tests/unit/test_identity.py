"""The cluster's certificate and keys: made once, and signing no more than host keys."""

import ssl
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from springtide.configure import identity


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("join") / "join"
    identity.ensure(directory, "blue")
    return directory


@pytest.fixture(scope="module")
def host_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("node") / "ssh_host_ed25519_key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "root@x", "-f", str(path)]
    subprocess.run(command, check=True)
    return path.with_suffix(".pub")


def test_it_is_made_once(made: Path) -> None:
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    identity.ensure(made, "blue")
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    names = ["id_ed25519", "id_ed25519.pub", "ssh_ca", "ssh_ca.pub", "tls.crt", "tls.key"]
    assert sorted(before) == names


@pytest.mark.parametrize("name", ["tls.key", "ssh_ca", "id_ed25519"])
def test_only_its_owner_can_read_a_secret(made: Path, name: str) -> None:
    assert (made / name).stat().st_mode & 0o777 == 0o600
    assert made.stat().st_mode & 0o777 == 0o700


def test_what_a_crash_left_incomplete_is_made_again(tmp_path: Path) -> None:
    identity.ensure(tmp_path, "blue")
    former = identity.pin(tmp_path)
    (tmp_path / "tls.crt").unlink()
    identity.ensure(tmp_path, "blue")
    assert identity.pin(tmp_path) != former
    identity.tls(tmp_path)  # key and certificate fit, or it raises


def test_the_pin_is_the_digest_of_the_certificate(made: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert((made / "tls.crt").read_text())
    assert identity.pin(made) == sha256(der).hexdigest()


def test_a_host_key_is_signed_for_the_node_and_its_address_alone(
    made: Path, host_key: Path, tmp_path: Path
) -> None:
    line = identity.sign(made, "blue-1", ["10.0.0.7", "blue-1"], host_key.read_text().strip())
    path = tmp_path / "cert.pub"
    path.write_text(line + "\n")
    shown = subprocess.run(
        ["ssh-keygen", "-L", "-f", str(path)], check=True, text=True, capture_output=True
    ).stdout
    words = shown.split()
    assert "host certificate" in shown
    after = words[words.index("Principals:") + 1 :]
    assert after[: after.index("Critical")] == ["blue-1", "10.0.0.7"]
    assert not list(made.glob(".sign-*"))


def test_several_keys_are_signed_at_once(made: Path, host_key: Path) -> None:
    line = host_key.read_text().strip()
    both = identity.sign_all(made, "blue-1", [], [line, line])
    assert [one.split()[0] for one in both] == ["ssh-ed25519-cert-v01@openssh.com"] * 2
    assert identity.sign_all(made, "blue-1", [], []) == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-dss AAAAB3NzaC1kc3M=",
        "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIA==",
        "-oProxyCommand=x AAAA",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== a\nssh-ed25519 AAAA",
        "ssh-ed25519-cert-v01@openssh.com AAAA",
        "x" * 5000,
    ],
)
def test_what_is_no_host_key_is_not_signed(made: Path, line: str) -> None:
    with pytest.raises(identity.BadKey, match="is no public host key"):
        identity.sign(made, "blue-1", [], line)


@pytest.mark.parametrize("name", ["a,root", "-x", "", "a b", "*"])
def test_no_certificate_is_good_for_strange_names(made: Path, host_key: Path, name: str) -> None:
    with pytest.raises(identity.BadKey, match="no names of a host"):
        identity.sign(made, "blue-1", [name], host_key.read_text().strip())


def test_a_missing_program_is_told_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="no openssl on this machine; install the package openssl"):
        identity.ensure(tmp_path / "join", "blue")
    assert list((tmp_path / "join").iterdir()) == []


def test_a_node_is_known_by_the_authority(made: Path) -> None:
    line = identity.known_hosts(made, ["blue-*"])
    assert line.startswith("@cert-authority blue-* ssh-ed25519 AAAA")
