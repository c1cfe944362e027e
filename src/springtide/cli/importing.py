"""`tide import`: files of other systems as parts of the cluster file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli import cluster_file, output
from springtide.cli.check import parse_spec
from springtide.cli.consent import NO_CHANGE
from springtide.cli.endings import Complaint, Exit
from springtide.cli.init import KINDS as PROVIDERS
from springtide.cli.parameters import DryRun

if TYPE_CHECKING:
    from springtide.imports.limits import Limits
    from springtide.imports.parts import Parts, Wish
    from springtide.imports.shapes import Shape
    from springtide.spec import Cluster

OWN_NODES = ("containers", "none")
"""Providers that a group can name without more keys."""
PARTITION, POOL = "compute", "pool"
UNCOUNTED = (
    "the control node is not counted: if it is an instance under these limits, say which with "
    "--control-shape"
)

Shapes = Annotated[
    str | None,
    typer.Option("--shapes", metavar="FILE", help="Sizes of shapes, which count before ours."),
]
ControlShape = Annotated[
    str | None,
    typer.Option("--control-shape", metavar="SHAPE", help="Of this machine; it counts too."),
]
ControlAd = Annotated[
    str | None,
    typer.Option("--control-ad", metavar="N", help="The availability domain it is in."),
]


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A limits.yaml, or a hosts.json.")],
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="FILE", help="The cluster file that gets the parts."),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="KIND", help="Where the nodes come from.")
    ] = None,
    shapes: Shapes = None,
    control_shape: ControlShape = None,
    control_ad: ControlAd = None,
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="What the group of a pool is called.")
    ] = POOL,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="NAME", help="The partition of the groups.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="NAME", help="Of the groups, if there are more."),
    ] = None,
    flavor: Annotated[
        str | None, typer.Option("--flavor", metavar="NAME", help="Of the nodes of a pool.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no provider for sizes.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Make groups from limits.yaml or hosts.json.

    Without --into they are printed. An import again changes what the last one made: nodes that are
    too many leave with the next `tide apply`.
    """
    asked = Asked(Path(file), provider, image, flavor, offline)
    target = _target(into)
    parts = _parts(asked, target, shapes, (control_shape, control_ad), (group, partition))
    if target is None:
        _print(parts)
    else:
        _merge(target, parts, dry_run)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person said."""

    path: Path
    provider: str | None
    image: str | None
    flavor: str | None
    offline: bool


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster file that gets the parts."""

    file: cluster_file.ClusterFile
    spec: "Cluster"


def _target(into: str | None) -> Target | None:
    if into is None:
        return None
    path = Path(into).absolute()
    missing = f"there is no such file; `tide init {into}` makes one"
    text = cluster_file.read(path, missing)
    return Target(cluster_file.ClusterFile(path, text), parse_spec(text, path))


def _parts(
    asked: Asked,
    target: Target | None,
    shapes: str | None,
    control: tuple[str | None, str | None],
    names: tuple[str, str | None],
) -> "Parts":
    from springtide.imports import hosts, kinds, limits, parts
    from springtide.spec import SpecError

    text = cluster_file.read(asked.path)
    kind = kinds.decide_kind(asked.path.name, text)
    group, partition = names
    try:
        if kind == parts.HOSTS:
            pool = hosts.parse_hosts(text, str(asked.path))
            wish = _wish(asked, target, partition or group)
            return parts.of_pool(pool, group, _flavor(asked, target), wish)
        if kind == parts.LIMITS:
            found = limits.parse_limits(text, str(asked.path))
            wish = _wish(asked, target, partition or PARTITION)
            sizes = _shapes(asked, target, shapes, found, wish.kind)
            left = found if found.problems else _left(found, *control)
            return parts.of_limits(left, sizes, wish)
    except SpecError as error:
        raise Complaint(str(error), Exit.WRONG) from None
    known = kinds.render_known()
    raise Complaint(f"{asked.path} is nothing that can be imported; known are {known}", Exit.WRONG)


def _left(found: "Limits", shape: str | None, zone: str | None) -> "Limits":
    """Without the machine that is the control node."""
    from springtide.imports.limits import Control, NoSuchLimit, without

    if shape is None:
        if zone is not None:
            raise Complaint("--control-ad goes with --control-shape", Exit.WRONG)
        output.note(UNCOUNTED)
        return found
    try:
        return without(found, Control(shape, zone))
    except NoSuchLimit as error:
        raise Complaint(f"{found.document.name}: {error}", Exit.WRONG) from None


def _flavor(asked: Asked, target: Target | None) -> str | None:
    """As asked, or the first that the file has."""
    if target is None:
        return asked.flavor
    known = list(target.spec.flavors)
    if asked.flavor is not None and asked.flavor not in known:
        raise Complaint(
            f"{target.file.path} has no flavor {asked.flavor!r}; it has {', '.join(known)}",
            Exit.WRONG,
        )
    return asked.flavor or known[0]


# --- where nodes come from -------------------------------------------------------------------


def _wish(asked: Asked, target: Target | None, partition: str) -> "Wish":
    from springtide.imports.parts import Wish

    kind = asked.provider
    if kind is not None and kind not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise Complaint(f"there is no provider {kind!r}; choose one of {known}", Exit.WRONG)
    if target is None:
        return Wish(kind or "", partition, asked.image, kind == "none")
    whole = target.spec.provider.kind
    if kind is not None and kind != whole and kind not in OWN_NODES:
        todo = f"write its block there first; `tide init --provider {kind} OTHER` shows one"
        raise Complaint(f"{target.file.path} has provider {whole}, not {kind}; {todo}", Exit.WRONG)
    own = kind is not None and kind != whole
    return Wish(kind or whole, partition, asked.image or _image(target, kind or whole), own)


def _image(target: Target, kind: str) -> str | None:
    """The one that the file has, where nodes need one and the file names none for all groups."""
    if kind in OWN_NODES or target.spec.image != "host":
        return None
    images = [name for name in target.spec.images if name != "host"]
    if len(images) > 1:
        raise Complaint(f"choose an image with --image: {', '.join(images)}", Exit.WRONG)
    return images[0] if images else None


# --- how big they are ------------------------------------------------------------------------


def _shapes(
    asked: Asked, target: Target | None, file: str | None, found: "Limits", kind: str
) -> "dict[str, Shape]":
    """A person's table before the provider's answer, and that before a table of ours."""
    from springtide.imports import shapes

    named = {name: one for name in found.shapes if (one := shapes.flexible(name))}
    ours = shapes.table(kind) or {
        n: s for one in shapes.KINDS for n, s in shapes.table(one).items()
    }
    theirs = shapes.parse_shapes(cluster_file.read(Path(file)), file) if file else {}
    missing = [name for name in found.shapes if name not in theirs]
    told = {} if asked.offline or target is None else _told(target.spec, kind, missing)
    return {**ours, **named, **told, **theirs}


def _told(spec: "Cluster", kind: str, names: Sequence[str]) -> "dict[str, Shape]":
    """What the provider itself says of these."""
    from springtide.cli.asking import Unanswered, ask_flavors, places
    from springtide.cli.flavors import with_sizes
    from springtide.imports.shapes import of_flavor

    place = next((one for one in places(spec) if one.wanted.kind == kind), None)
    if place is None or not names:
        return {}
    try:
        found = ask_flavors(with_sizes(spec, names), place)
    except Unanswered as error:
        output.note(f"{kind} was asked for sizes in vain, so a table is taken: {error}")
        return {}
    return {name: of_flavor(found[name]) for name in names if name in found}


# --- what comes of it ------------------------------------------------------------------------


def _print(parts: "Parts") -> None:
    from springtide.imports.parts import render

    for note in parts.notes:
        output.note(note)
    output.put(render(parts))


def _merge(target: Target, parts: "Parts", dry_run: bool) -> None:
    from springtide.imports.into import merge
    from springtide.spec import SpecError

    path, before = target.file.path, target.file.text
    try:
        merged = merge(before, str(path), parts)
    except SpecError as error:
        raise Complaint(str(error), Exit.WRONG) from None
    for note in merged.notes:
        output.note(note)
    if merged.text == before:
        output.put(f"{path} is so already: {NO_CHANGE}")
        return
    output.put(cluster_file.render_edits(path, before, merged.text))
    if dry_run:
        output.note(NO_CHANGE)
        return
    cluster_file.replace(target.file, merged.text)
    output.note(f"{path} is changed; `tide deploy` or `tide apply` has the cluster follow it")
