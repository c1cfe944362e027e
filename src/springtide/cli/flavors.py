"""`tide flavors`: the sizes that a provider has, and the lines of the cluster file for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli import output
from springtide.cli.check import read_spec
from springtide.cli.endings import Complaint, Exit
from springtide.cli.output import JsonOption
from springtide.cli.place import Choice, ClusterOption, StateOption, spec_file

if TYPE_CHECKING:
    from springtide.cli.asking import Place
    from springtide.ports import CloudFlavor
    from springtide.spec import Cluster

ANY = "*?["
"""A name with one of these stands for several."""


def flavors(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP|KIND|NAME",
            help="Whose provider, if there are several; then which sizes, such as 'c7i.*'.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="The cluster's file; or ./cluster.yaml."),
    ] = None,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="As the block `flavors:` of a cluster file.")
    ] = False,
    json: JsonOption = False,
    cluster: ClusterOption = None,
    state: StateOption = None,
) -> None:
    """What sizes of nodes a provider has.

    With --yaml memory is less than the size has by name: what a Linux kernel shows of it.
    """
    if yaml and json:
        raise Complaint("choose one of --yaml and --json", Exit.WRONG)
    spec = read_spec(spec_file(config, Choice(cluster, state)))
    place, names = _choose(spec, words or [])
    found = _ask(spec, place, names)
    _put(place.wanted.kind, found, yaml=yaml, json=json)


def _choose(spec: "Cluster", words: Sequence[str]) -> "tuple[Place, Sequence[str]]":
    """The provider that is meant, and the words that are names of sizes."""
    from springtide.cli.asking import places

    found = places(spec)
    if words and (meant := [one for one in found if words[0] in (one.wanted.kind, *one.groups)]):
        found, words = meant, words[1:]
    elif words and words[0] in spec.groups:
        kind = spec.provider_of(words[0]).kind
        raise Complaint(f"group {words[0]} has provider {kind}, {_own_sizes()}", Exit.WRONG)
    if len(found) == 1:
        return found[0], words
    if not found:
        raise Complaint(f"provider {spec.provider.kind}, {_own_sizes()}", Exit.WRONG)
    groups = ", ".join(group for one in found for group in one.groups)
    raise Complaint(f"the file has several providers; name a group: {groups}", Exit.WRONG)


def _own_sizes() -> str:
    return "which has no sizes of its own: write cpus and memory into `flavors` as you like"


def _ask(spec: "Cluster", place: "Place", names: Sequence[str]) -> "list[CloudFlavor]":
    from springtide.cli.asking import Unanswered, ask_flavors
    from springtide.cli.sizes import select, unknown

    try:
        found = ask_flavors(with_sizes(spec, names), place)
    except Unanswered as error:
        raise Complaint(f"{place.wanted.kind}: {error}") from None
    if found and (missing := unknown(found, names)):
        raise Complaint(f"{place.wanted.kind} has no size {', '.join(missing)}", Exit.WRONG)
    return select(found, names)


def with_sizes(spec: "Cluster", names: Sequence[str]) -> "Cluster":
    """The file with these sizes in it: some providers tell more of sizes that are."""
    from springtide.spec import Flavor

    plain = [name for name in names if not any(sign in name for sign in ANY)]
    try:
        asked = {f"asked-{n}": Flavor(type=name, cpus=1, memory=1) for n, name in enumerate(plain)}
    except ValueError as error:
        raise Complaint(f"{', '.join(plain)}: no names of sizes", Exit.WRONG) from error
    return spec.but(flavors={**spec.flavors, **asked})


def _put(kind: str, found: "Sequence[CloudFlavor]", *, yaml: bool, json: bool) -> None:
    from springtide.cli import sizes

    if json:
        output.put_json(sizes.render_json(kind, found))
    elif not found:
        output.note(f"{kind} tells no sizes: write cpus and memory into `flavors` yourself")
    elif yaml:
        output.put("\n".join(sizes.render_yaml(found)))
    else:
        output.put_table(sizes.COLUMNS, sizes.render_rows(found))
