"""The ground a cluster stands on: networks and directories, keys and programs."""

from collections.abc import Iterator
from contextlib import contextmanager

from springtide.ports import CloudError
from springtide.steps.afresh import restart_with_configuration
from springtide.steps.software import prepare_software, set_up
from springtide.steps.work import Fallen, Work


class SiteError(Exception):
    """The site cannot be made or removed; the operation stops and can be run again."""


async def prepare_site(work: Work) -> Fallen:
    """Each provider's site, and the keys that nodes need when they boot."""
    parts = work.parts
    try:
        sites = [await provider.prepare(work.cluster) for provider in parts.distinct_providers()]
    except CloudError as error:
        raise SiteError(str(error)) from error
    await parts.keep_site(sites[0])
    with written():
        if wrong := await prepare_software(work):
            raise SiteError(f"Ansible could not prepare this machine: {wrong}")
        await parts.configurator.prepare(sites[0])
    return {}


async def configure_software(work: Work) -> Fallen:
    """The programs that the batch system calls; of an update, what running nodes have.

    What Ansible sets up comes last: a start afresh may undo it.
    """
    with written():
        await work.parts.configurator.install()
        fallen = await restart_with_configuration(work)
        await work.fell(fallen)
        return fallen | await set_up(work.on(n for n in work.names if n not in fallen))


@contextmanager
def written() -> Iterator[None]:
    """Files that cannot be written are the site's trouble, not a defect."""
    try:
        yield
    except OSError as error:
        raise SiteError(f"cannot write {error.filename}: {error.strerror}") from error


async def remove_site(work: Work) -> Fallen:
    """Remove all that carries the cluster's tag."""
    try:
        for provider in work.parts.distinct_providers():
            await provider.remove(work.cluster)
    except CloudError as error:
        raise SiteError(f"{error}; run `tide destroy` again to go on") from error
    return {}
