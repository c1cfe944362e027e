"""What instance each node is, and of what type, as updates that `scontrol` reads. Pure.

Slurm shows both with its nodes, and its accounting keeps them (`sacctmgr show instance`), so that
a bill can be laid beside the jobs.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from springtide.batch.slurm_nodes import fitting
from springtide.batch.slurm_versions import Change, Release
from springtide.nodeset import expand, fold

Instances = Mapping[str, tuple[str, str]]

_TELLABLE = re.compile(r"[\w./:@+-]{1,500}")
"""What needs no quotes; no cloud has other ids."""


def render_updates(instances: Instances, release: Release) -> list[str]:
    """One a line; none for a Slurm that has no place for them."""
    if not Change.KNOWS_INSTANCES.applies(release):
        return []
    ids = {name: id for name, (id, _) in instances.items() if _TELLABLE.fullmatch(id)}
    return [*_types(instances), *_ids(ids, Change.PAIRS_INSTANCES.applies(release))]


def _types(instances: Instances) -> Iterator[str]:
    alike = defaultdict(list)
    for name, (_, type_) in instances.items():
        if _TELLABLE.fullmatch(type_):
            alike[type_].append(name)
    for type_, names in alike.items():
        for some in fitting(names):
            yield f"update nodename={fold(some)} instancetype={type_}"


def _ids(ids: Mapping[str, str], paired: bool) -> Iterator[str]:
    if not paired:
        yield from (f"update nodename={name} instanceid={id}" for name, id in ids.items())
        return
    for some in fitting(ids):
        names = fold(some)
        listed = ",".join(ids[name] for name in expand(names))
        yield f"update nodename={names} instanceid={listed}"
