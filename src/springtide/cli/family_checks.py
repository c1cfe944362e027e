"""Whether there is an image for each group that uses a family, which somebody has to build.

For `tide check`. None yet is a warning, no failure: it takes a daemon to build one.
"""

from collections.abc import Iterator, Sequence

from springtide import images
from springtide.cli.client import Away, Json, Refused
from springtide.cli.subject import Check, Subject
from springtide.model import MadeImage, Making


def look_at_families(subject: Subject) -> Iterator[Check]:
    spec = subject.spec
    names = {key: spec.image_of(key) for key in spec.groups}
    used = {key: name for key, name in names.items() if spec.images[name].build}
    if not used:
        return
    made = made_images(subject)
    if made is None:
        yield Check("images", None, "no daemon to ask what was built", subject.deploy)
        return
    unbuilt = images.unbuilt(spec, made)
    for group, family in used.items():
        if why := unbuilt.get(group):
            todo = f"when it is deployed, run `tide image build {family}`"
            yield Check(f"image {family}", None, why, todo)
        else:
            newest = images.wanted(spec, made, group)
            yield Check(f"image {family}", True, f"nodes of {group} get {newest}")


def made_images(subject: Subject) -> Sequence[MadeImage] | None:
    """Whatever groups the daemon's file has; none where there is no cluster yet, None if it cannot
    be known."""
    if subject.status is None:
        return None if subject.daemon.layout.record.exists() else ()
    try:
        return [_made(one) for one in subject.daemon.get("/images")["images"]]
    except (Away, Refused):
        return None


def _made(one: Json) -> MadeImage:
    said = ("family", "number", "arch", "group", "provider", "made_from", "id")
    return MadeImage(**{key: one[key] for key in said}, state=Making(one["state"]))
