"""The images and flavors of the cluster file in the words of a cloud, and back."""

from collections.abc import Mapping
from dataclasses import dataclass

from springtide.ports import Launch, Rejected
from springtide.spec import Flavor, Image


def unbuilt(launch: Launch) -> str:
    return (
        f"{launch.node}: no image of the family {launch.image} fits it yet; make one with "
        f"`tide image build {launch.image}`"
    )


@dataclass(frozen=True, slots=True)
class Catalog:
    """What the cluster file calls images and flavors."""

    images: Mapping[str, Image]
    flavors: Mapping[str, Flavor]

    def image_id(self, launch: Launch) -> str:
        """The cloud's own id (or name) of the image, of the flavor's architecture."""
        image = self.images.get(launch.image)
        if image is None:
            known = ", ".join(sorted(self.images))
            raise Rejected(
                f"{launch.node}: image {launch.image} is not in the cluster file; known: {known}"
            )
        if image.build is not None:
            raise Rejected(unbuilt(launch))
        arch = self.flavor(launch).arch
        if (id := image.id_for(arch)) is None:
            raise Rejected(
                f"{launch.node}: image {launch.image} has no id for {arch}, which flavor "
                f"{launch.flavor} is; add it to images.{launch.image}.id"
            )
        return id

    def image_ids(self) -> dict[str, str]:
        """The ids of all images, each with the name that leads to it."""
        return {id: name for name, image in self.images.items() for id in image.all_ids}

    def image_name(self, id: str | None, hint: str | None = None) -> str | None:
        """What the cluster file calls an image now; if nothing, its own id."""
        if hint is not None and hint in self.images and id in self.images[hint].all_ids:
            return hint
        return self.image_ids().get(id, id) if id is not None else None

    def flavor(self, launch: Launch) -> Flavor:
        if launch.flavor not in self.flavors:
            known = ", ".join(sorted(self.flavors))
            raise Rejected(
                f"{launch.node}: flavor {launch.flavor} is not in the cluster file; known: {known}"
            )
        return self.flavors[launch.flavor]

    def type_of(self, name: str) -> str:
        """The cloud's own name of a flavor."""
        return self.flavors[name].type or name

    def flavor_type(self, launch: Launch) -> str:
        return self.flavor(launch).type or launch.flavor

    def flavor_name(self, type: str | None, hint: str | None = None) -> str | None:
        """What the cluster file calls a flavor now; if nothing, its own name."""
        if hint is not None and hint in self.flavors and self.type_of(hint) == type:
            return hint
        names = (name for name in self.flavors if self.type_of(name) == type)
        return next(names, type)
