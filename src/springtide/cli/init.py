"""`tide init`: a commented cluster file to begin with, for each kind of provider.

`templates/` has a frame, and what depends on the kind: provider, images and flavors.
"""

import os
import re
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from springtide.cli import output
from springtide.cli.endings import Complaint, Exit
from springtide.cli.place import BEFORE_COMMAND, DEFAULT_FILE

KINDS = (
    *("containers", "openstack", "aws", "oci", "azure", "google"),
    *("libvirt", "terraform", "command", "none"),
)
TEMPLATES = Path(__file__).with_name("templates")
WITHOUT_PAGE = ("containers", "none")
NAME = "blue"
SLURM_CONF = "/etc/slurm/slurm.conf"
_CLUSTER = re.compile("[a-z][a-z0-9-]{0,31}")
_CONF = re.compile(r"/[^\s\"'#%\\:,]+")
_CHANGE = re.compile(r" *(?P<key>[\w.-]+): *(?P<value>.*?)  # CHANGE(?:: (?P<what>.+))?")


def init(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Where to write it; or ./cluster.yaml.")
    ] = None,
    provider: Annotated[
        str, typer.Option("--provider", metavar="KIND", help=f"One of {', '.join(KINDS)}.")
    ] = "containers",
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help=f"What it is called; or {NAME}."),
    ] = None,
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach", metavar="CONF", help="The slurm.conf of a Slurm that is there, to join it."
        ),
    ] = None,
) -> None:
    """Write a cluster file to begin with.

    It is commented, and overwrites nothing.
    """
    name = cluster or _said_before() or NAME
    _refuse(provider, name, attach)
    path = Path(file) if file is not None else DEFAULT_FILE
    text = render(provider, name, attach)
    _write(path, text)
    output.put("\n".join(render_next(path, provider, text, "attach" if attach else "deploy")))


def _said_before() -> str | None:
    """As in `tide --cluster red init`."""
    before = BEFORE_COMMAND.get()
    return before.cluster if before else None


_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off"})
"""What YAML takes for something else than a name."""


def _refuse(provider: str, cluster: str, attach: str | None) -> None:
    if provider not in KINDS:
        known = ", ".join(KINDS)
        raise Complaint(f"there is no provider {provider!r}; choose one of {known}", Exit.WRONG)
    if not _CLUSTER.fullmatch(cluster) or cluster in _WORDS:
        raise Complaint(
            f"{cluster!r} is no name of a cluster: use a-z, 0-9 and '-', a letter first, "
            "at most 32 characters",
            Exit.WRONG,
        )
    if attach is not None and not _CONF.fullmatch(attach):
        raise Complaint(
            f"{attach!r} is no path of a slurm.conf; write it as {SLURM_CONF}", Exit.WRONG
        )


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Complaint(
            f"{path} is there already and was left as it is; name another FILE, or move it away",
            Exit.WRONG,
        ) from None
    except OSError as error:
        raise Complaint(
            f"cannot write {path}: {os.strerror(error.errno or 0)}; name another FILE", Exit.WRONG
        ) from None


def render(kind: str, cluster: str = NAME, attach: str | None = None) -> str:
    """The text of a cluster file."""
    return Template(_template("frame")).substitute(
        cluster=cluster,
        attach=_attach_line(attach),
        blocks=Template(_template(kind)).substitute(cluster=cluster),
    )


def _attach_line(conf: str | None) -> str:
    if conf is not None:
        return f"  attach: {conf}  # a Slurm that is there, which gets these nodes"
    return f"  # attach: {SLURM_CONF}  # a Slurm that is there; left out, the cluster has its own"


def _template(name: str) -> str:
    return (TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8")


def render_next(path: Path, kind: str, text: str, verb: str) -> list[str]:
    """What a person has to do now."""
    file = "" if path == DEFAULT_FILE else f" {path}"
    changes = [
        f"  line {number}: {found['key']}{_told(found['what'])}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _CHANGE.fullmatch(line))
    ]
    page = "README" if kind in WITHOUT_PAGE else kind
    edit = [f"edit it; these keys hold examples (see docs/providers/{page}.md):", *changes]
    return [
        f"{path} is written, for provider {kind}. Now:",
        *(edit if changes else ["edit it, if you like"]),
        f"  tide check{file}",
        f"  tide {verb}{file}",
    ]


def _told(what: str | None) -> str:
    return f", {what}" if what else ""
