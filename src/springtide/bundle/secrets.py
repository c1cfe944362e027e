"""Which secrets this machine has for a cluster, read so that they can be left out. For root."""

import configparser
import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from springtide.bundle.files import opened
from springtide.bundle.masks import SHORTEST, Secret
from springtide.bundle.names import is_secret
from springtide.bundle.parts import SEARCH, Parts
from springtide.bundle.trees import secret_values
from springtide.layout import Layout
from springtide.spec import Cluster, variables
from springtide.spec.environment import PLACE
from springtide.spec.variables import Variable

LARGEST = 1 << 20
PLAIN = 8
"""A shorter value is taken for a secret only if it is called one."""
LINE = 32
"""Letters of a line of a key's file that is long enough to be of the key itself."""
MUNGE_KEY = Path("/etc/munge/munge.key")
CREDENTIALS = (
    ".aws/credentials",
    ".config/openstack/clouds.yaml",
    ".config/openstack/secure.yaml",
    ".oci/config",
    ".config/gcloud/application_default_credentials.json",
)
"""Where clouds' own clients look, in the home directory."""
SHARED_CREDENTIALS = (Path("/etc/openstack/clouds.yaml"), Path("/etc/openstack/secure.yaml"))
POINTERS = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "OS_CLIENT_CONFIG_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
"""Variables that say where else they look."""
NOTHING = frozenset({"null", "none", "true", "false", "password", "passwd", "secret", "token"})
"""Values that are none: without such words, other secrets would not be known by their names."""
_PATH = r"\s*[:=]\s*[\"']?(/[^\s\"',}\]]{1,500})"
_NAMED_KEY = re.compile(rf"\bmunge_key{_PATH}")
_NAMED_CREDENTIALS = re.compile(rf"\b(?:credentials|sssd){_PATH}")
_NAMED_PRIVATE = re.compile(rf"\bkey_file{_PATH}")
_LINE = re.compile(r"([\w.-]{1,128}+)[\"']?[^\S\n]{0,8}[:=][^\S\n]{0,8}([^\n]{1,4096})")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look."""

    layout: Layout
    spec: Cluster | None
    text: str
    """Of the cluster file: what it names counts also if the file is wrong."""
    environments: Sequence[Mapping[str, str]]


def known_secrets(sources: Sources, parts: Parts) -> list[Secret]:
    """All that can be read; what is there and cannot be read is told among the parts."""
    known = _Known(parts)
    environments = [*sources.environments, *_of_services(known)]
    for path in _keys(sources):
        known.read(path, lambda what, raw: [Secret(what, raw, binary=True)])
    for path in _private_keys(sources.layout):
        known.read(path, _lines)
    for path in _credentials(sources, environments):
        known.read(path, lambda what, raw: _credential(what, raw, known))
    return [*known.found, *_in_environments(environments)]


class _Known:
    def __init__(self, parts: Parts) -> None:
        self.found: list[Secret] = []
        self._parts = parts

    def read(self, path: Path, made: Callable[[str, bytes], Iterable[Secret]]) -> None:
        """Whatever is in the way costs this file alone."""
        with self._parts.trying(f"{SEARCH} {path} holds"):
            try:
                with opened(path) as file:
                    content = file.read(LARGEST)
            except (FileNotFoundError, NotADirectoryError):
                return
            self.found += list(made(str(path), content))


def _of_services(known: _Known) -> list[Mapping[str, str]]:
    """Environments of all clusters: which one is ours cannot be told from a file that is wrong."""
    found: list[Mapping[str, str]] = []

    def take(what: str, raw: bytes) -> Iterator[Secret]:
        every = what.endswith(".secret")
        read = variables.read(raw.decode(errors="surrogateescape"))
        given = {one.name: one.value for one in read if isinstance(one, Variable)}
        found.append(given)
        for name, value in given.items():
            if _counts(name, value) or (every and len(value) >= PLAIN):
                yield Secret(f"{name} of {what}", os.fsencode(value))

    for suffix in ("secret", "env"):
        for path in sorted(PLACE.glob(f"*.{suffix}")):
            known.read(path, take)
    return found


def _keys(sources: Sources) -> list[Path]:
    named = getattr(sources.spec.batch, "munge_key", None) if sources.spec else None
    written = map(Path, _NAMED_KEY.findall(sources.text))
    layout = sources.layout
    paths = [layout.munge_key, MUNGE_KEY, layout.join / "secret", *written]
    return list(dict.fromkeys([*paths, *([named] if named else [])]))


def _private_keys(layout: Layout) -> list[Path]:
    ours = [layout.join / name for name in ("tls.key", "ssh_ca", "id_ed25519")]
    place = layout.munge_key.parent
    try:
        hosts = sorted(path for path in place.iterdir() if path.is_file())
    except OSError:
        hosts = []
    return [*ours, *(path for path in hosts if path != layout.munge_key and path.suffix != ".pub")]


def _credentials(sources: Sources, environments: Sequence[Mapping[str, str]]) -> list[Path]:
    homes = [Path.home(), Path(pwd.getpwuid(0).pw_dir)]
    homes += [Path(one["HOME"]) for one in environments if one.get("HOME")]
    paths = [home / name for home in homes for name in CREDENTIALS]
    paths += [*SHARED_CREDENTIALS, sources.layout.stored_spec]
    paths += [Path(one[name]) for one in environments for name in POINTERS if one.get(name)]
    paths += map(Path, _NAMED_CREDENTIALS.findall(sources.text))
    if spec := sources.spec:
        blocks = [spec.provider, *(group.provider for group in spec.groups.values())]
        paths += [path for block in blocks if (path := getattr(block, "credentials", None))]
        paths += [spec.users.sssd] if spec.users.sssd else []
    return list(dict.fromkeys(paths))


def _lines(what: str, raw: bytes) -> Iterator[Secret]:
    for line in raw.split():
        if len(line) >= LINE and not line.startswith(b"-----"):
            yield Secret(what, line)


def _credential(what: str, raw: bytes, known: _Known) -> Iterator[Secret]:
    """As it is parsed, and as it stands there: with quotes and without, to the end of the line."""
    text = raw.decode(errors="surrogateescape")
    for name, value in [*secret_values(_parsed(text)), *_written(text)]:
        for one in dict.fromkeys((value, value.strip(), *value.splitlines())):
            if _counts(name, one):
                yield Secret(f"{name} of {what}", os.fsencode(one))
    for path in _NAMED_PRIVATE.findall(text):
        known.read(Path(path), _lines)


def _parsed(text: str) -> Any:
    """YAML, of which JSON is a kind, or INI; None if it is neither."""
    with suppress(Exception):  # the parser knows many; then it is INI, or broken
        found = YAML(typ="base", pure=True).load(text)
        if isinstance(found, dict | list):
            return found
    ini = configparser.RawConfigParser(strict=False)
    try:
        ini.read_string(text)
    except configparser.Error:
        return None
    return {section: dict(ini[section]) for section in ini}


def _written(text: str) -> Iterator[tuple[str, str]]:
    for name, rest in _LINE.findall(text):
        if is_secret(name):
            word = rest.split()[0] if rest.split() else ""
            for value in (rest.strip(), word, word.rstrip(",;}])")):
                yield name, value
                yield name, value.strip("\"'")


def _counts(name: str, value: str) -> bool:
    """Whether it is a secret by its name: the path of something that is there is none."""
    says = len(value) >= SHORTEST and value.lower() not in NOTHING
    return says and is_secret(name) and not (value.startswith("/") and os.path.lexists(value))


def _in_environments(environments: Iterable[Mapping[str, str]]) -> Iterator[Secret]:
    for name, value in (pair for one in environments for pair in one.items()):
        if _counts(name, value):
            yield Secret(f"{name} of the environment", os.fsencode(value))
