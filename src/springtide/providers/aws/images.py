"""Images of instances, and the snapshots below them."""

import time
from collections.abc import Sequence
from contextlib import suppress

from springtide.ports import CloudImage, Instance, Rejected
from springtide.providers.aws import requests, shapes
from springtide.providers.aws.account import Account
from springtide.providers.aws.errors import Duplicate, Missing
from springtide.providers.cloud import tags


def snapshot(account: Account, instance: Instance, name: str) -> CloudImage:
    """EC2 reboots the instance for it: what programs had not yet written would be lacking."""
    if there := _named(found(account, instance.cluster), name):
        return there
    labels = {tags.CLUSTER: instance.cluster, shapes.NAME: name}
    kinds = ("image", "snapshot")
    full_name = f"{requests.group_name(instance.cluster)}-{name}"
    try:
        made = account.ask(
            "create_image",
            InstanceId=instance.id,
            Name=full_name,
            Description=f"of {instance.node}",
            TagSpecifications=[requests.tagged(kind, labels) for kind in kinds],
        )
    except Duplicate as error:
        raise Rejected(
            f"{error}: it is not ours; rename or deregister it, or choose another name"
        ) from error
    return CloudImage(made["ImageId"], name, instance.cluster, time.time(), ready=False)


def found(account: Account, cluster: str) -> Sequence[CloudImage]:
    raws = account.pages(
        "describe_images", "Images", Owners=["self"], Filters=[_tag(tags.CLUSTER, cluster)]
    )
    return [shapes.image(one) for one in raws]


def forget(account: Account, image: CloudImage) -> None:
    """Its snapshots are found by their tags, even if an earlier try ended before them."""
    with suppress(Missing):
        account.ask("deregister_image", ImageId=image.id)
    below = account.pages(
        "describe_snapshots",
        "Snapshots",
        OwnerIds=["self"],
        Filters=[_tag(tags.CLUSTER, image.cluster), _tag(shapes.NAME, image.name)],
    )
    for one in list(below):
        # Those of another image of that name are in use, and stay.
        with suppress(Rejected):
            account.ask("delete_snapshot", SnapshotId=one["SnapshotId"])


def _tag(key: str, value: str) -> dict[str, object]:
    return {"Name": f"tag:{key}", "Values": [value]}


def _named(images: Sequence[CloudImage], name: str) -> CloudImage | None:
    return next((one for one in images if one.name == name), None)
