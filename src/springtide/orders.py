"""What is asked of builds, looked at before anything is made: refused, or given its number.

`builds` calls it, for those who only want to know what would happen too.
"""

from collections.abc import Iterable, Sequence

from springtide import images
from springtide.configure import building_roles
from springtide.configure.building import Script
from springtide.engine import Refused
from springtide.model import MadeImage, Making, NodeState
from springtide.ports import CloudError
from springtide.spec import Cluster
from springtide.spec.images import UNMADE
from springtide.spool import BadRequest
from springtide.steps import Parts

LASTING = "on-demand"
"""The market whose machines stay when they are switched off."""


def refuse_unfit(parts: Parts, family: str) -> None:
    """A family that cannot be built."""
    spec = parts.spec
    image = spec.images.get(family)
    if image is None or image.build is None:
        families = [key for key, one in spec.images.items() if one.build]
        known = ", ".join(families) or "none; give an image `build: {base: …}`"
        raise BadRequest(f"there is no family of images {family!r}; the cluster file has {known}")
    refuse_second(parts.gallery.made, family)
    if not images.sites(spec, family):
        raise BadRequest(
            f"no group uses {family}: set images.{family}.build.group, which says where it is built"
        )
    if parts.site is None:
        raise Refused(f"{spec.cluster} has no site to build on: deploy it first")


def refuse_second(made: Iterable[MadeImage], family: str) -> None:
    under_way = [one for one in made if one.family == family and one.state is Making.BUILDING]
    if under_way:
        name = under_way[0].name
        raise Refused(f"{name} is being made; wait for its end: see `tide image list`")


def refuse_node(parts: Parts, name: str) -> None:
    """A node that no image can be made of, or not now."""
    spec, node = parts.spec, parts.record.nodes[name]
    if node.state is not NodeState.READY:
        raise Refused(f"{name} is {node.state}: images are made of nodes in service")
    for one in parts.gallery.made:
        if one.state is Making.BUILDING and not one.builder and one.made_from == name:
            raise Refused(f"{one.name} is being made of {name}; wait for its end")
    kind = spec.provider_of(node.group).kind
    if kind in UNMADE:
        raise Refused(f"no image can be made of {name}: {kind} makes none")
    renewed = parts.providers.get(node.group, parts.home).renews(spec.groups[node.group].markets)
    if not renewed and (why := unreached(spec, node.group, kind)):
        raise Refused(f"no image can be made of {name}: {why}; use `tide image build`")


def unreached(spec: Cluster, group: str, kind: str) -> str:
    """Why a machine could not forget who it is before its disk is copied; empty if it can."""
    fleeting = [market for market in spec.groups[group].markets if market != LASTING]
    if fleeting:
        return (
            f"{kind} gives a {fleeting[0]} machine that it reboots no new script, and one that "
            "switches itself off may be deleted, so it cannot forget who it is"
        )
    if "ssh" not in spec.gets(group):
        return (
            f"{kind} gives a machine that it reboots no new script, and {group} is without ssh, "
            "so it cannot forget who it is"
        )
    return ""


def family_of(spec: Cluster, group: str) -> str:
    name = spec.image_of(group)
    if spec.images[name].build is None:
        raise BadRequest(f"the image {name} of {group} is no family: say --family or --name")
    return name


def scripts_of(spec: Cluster, family: str) -> list[Script]:
    build = spec.images[family].build
    assert build is not None
    roles = building_roles.roles_script(spec.cluster, build.roles)
    try:
        scripts = [Script(str(path), path.read_text()) for path in build.scripts]
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"a script of images.{family}.build cannot be read: {error}") from error
    return [roles, *scripts] if build.roles else scripts


# --- numbers -------------------------------------------------------------------------------


async def next_number(parts: Parts, family: str, groups: Sequence[str]) -> int:
    """Past all that we made, and all that a cloud still has of a cluster of this name."""
    providers = {id(one): one for one in (parts.providers.get(g, parts.home) for g in groups)}
    try:
        listed = [
            one.name
            for provider in providers.values()
            for one in await provider.images(parts.spec.cluster)
        ]
    except CloudError as error:
        raise Refused(f"the images that exist could not be listed, try again: {error}") from error
    before = int(await parts.record.store.get(_key(family)) or 0)
    return max(before + 1, images.next_number(parts.gallery.made, family, listed))


async def remember_number(parts: Parts, image: MadeImage) -> None:
    """It goes; nodes and logs may still name it, so none after it is called so."""
    store = parts.record.store
    before = int(await store.get(_key(image.family)) or 0)
    await store.put(_key(image.family), str(max(before, image.number)))


def _key(family: str) -> str:
    return f"last image of {family}"
