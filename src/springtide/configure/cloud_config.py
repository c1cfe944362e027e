"""A cloud-config of the site's own, for cloud-init of its nodes: read and checked.

Launches carry it beside our script. cloud-init of the nodes decides what it means; the one that is
installed here, if any, checks it against its schema for `tide check`.
"""

import shutil
import subprocess
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

HEAD = "#cloud-config"
CHECKER = "cloud-init"
LIMIT_S = 60.0


def read(path: Path) -> str:
    """Its text; raises OSError that names the file."""
    return path.read_text(errors="replace").strip() + "\n"


def complaint(path: Path) -> str:
    """What is wrong with such a file, in words; empty if nothing is known to be."""
    try:
        text = read(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if not text.startswith(f"{HEAD}\n"):
        return f"{path} must begin with the line `{HEAD}`"
    try:
        found = YAML(typ="safe").load(StringIO(text))
    except YAMLError as error:
        return f"{path} is no YAML: {' '.join(str(error).split())[:300]}"
    if not isinstance(found, dict):
        return f"{path} must be a mapping of keys to values"
    return _by_schema(path)


def _by_schema(path: Path) -> str:
    """What cloud-init says of it, where it is installed."""
    if shutil.which(CHECKER) is None:
        return ""
    command = [CHECKER, "schema", "--config-file", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} was not checked: {error}"
    said = " ".join((done.stderr or done.stdout).split())
    return f"{path}: {said[:400]}" if done.returncode else ""
