"""Whether what the file names is there and can be used: what deploy would fail at, told before.

Only what is wrong is a line. `checks` makes these beside its own.
"""

import os
import socket
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from springtide.batch import slurm_text
from springtide.batch.slurm_conf import render
from springtide.batch.slurm_versions import TooOldError
from springtide.batch.unread import UnreadableError
from springtide.cli.health_checks import look_at_health
from springtide.cli.subject import Check, Look, Subject, run
from springtide.configure import cloud_config
from springtide.configure.programs import out_of_reach, problems
from springtide.ports import CloudError, Rejected, Site
from springtide.providers.containers import links, site
from springtide.providers.containers.mounts import Tree, refuse_tree
from springtide.spec import Cluster, Containers, NoProvider, Provider, Slurm

MOST_NAMES = 20
"""So many names are looked up: each may take its time."""
NOWHERE = Site("127.0.0.1")
"""For a slurm.conf that is only read."""


def containers(spec: Cluster) -> list[Containers]:
    """The providers of containers that the groups use."""
    return [each for each in _providers(spec) if isinstance(each, Containers)]


def _providers(spec: Cluster) -> list[Provider]:
    found: list[Provider] = []
    for group in spec.groups:
        if (each := spec.provider_of(group)) not in found:
            found.append(each)
    return found


def look_at_kinds(subject: Subject) -> Iterable[Check]:
    """The fakes are no secret, but the daemon refuses them."""
    spec = subject.spec
    kinds = {f"batch.kind {spec.batch.kind}": "set it to slurm"}
    for provider in (spec.provider, *_providers(spec)):
        kinds[f"provider.kind {provider.kind}"] = "set it to containers or none"
    for kind, todo in kinds.items():
        if kind.endswith(" fake"):
            yield Check("kind", False, f"{kind} is for tests and simulation only", todo)


def look_at_prolog(subject: Subject) -> Iterable[Check]:
    """Without it every job would fail to start."""
    batch = subject.spec.batch
    if not isinstance(batch, Slurm) or batch.prolog is None:
        return
    if not batch.prolog.is_file():
        text = f"{batch.prolog} is no file"
        yield Check("prolog", False, text, "make it, or correct batch.prolog")
        return
    wrongs = (*problems(batch.prolog, batch.user), *out_of_reach(batch.prolog, batch.user))
    for wrong in wrongs:
        what, _, todo = wrong.partition("; ")
        yield Check("prolog", False, what, todo)


def _roots(spec: Cluster) -> dict[str, Path]:
    """Images that container nodes use, or could."""
    elsewhere = [k for k in spec.groups if not isinstance(spec.provider_of(k), Containers)]
    others = {spec.image_of(key) for key in elsewhere}
    return {name: i.path for name, i in spec.images.items() if i.path and name not in others}


def look_at_images(subject: Subject) -> Iterable[Check]:
    for name, path in _roots(subject.spec).items():
        try:
            refuse_tree(Tree(path))
        except Rejected as error:
            todo = f"make a root there, or correct images.{name}.path"
            yield Check(f"image {name}", False, str(error), todo)
    for name, image in subject.spec.images.items():
        for path in image.build.scripts if image.build else ():
            if not path.is_file():
                todo = f"make it, or correct images.{name}.build.scripts"
                yield Check(f"image {name}", False, f"{path} is no file", todo)


def look_at_mounts(subject: Subject) -> Iterable[Check]:
    paths = [path for each in containers(subject.spec) for path in each.mounts]
    for path in dict.fromkeys(paths):
        if not path.is_dir():
            text = f"{path} is no directory, so it cannot be mounted into nodes"
            yield Check("mounts", False, text, f"run `mkdir -p {path}`, or correct `mounts`")


def look_at_shared(subject: Subject) -> Iterable[Check]:
    """What others serve must be mounted on this machine, if containers are to see it."""
    for one in subject.spec.shared:
        if one.here and not Path(one.directory).is_dir():
            text = f"{one.directory} is no directory, so nodes cannot have it at {one.path}"
            todo = f"run `mkdir -p {one.directory}`, or correct `shared`"
            yield Check("shared", False, text, todo)
        elif not one.here and containers(subject.spec) and not os.path.ismount(one.path):
            text = f"containers see {one.source} through this machine, which has not mounted it"
            yield Check("shared", False, text, f"mount {one.source} on {one.path} of this machine")


def look_at_cloud_configs(subject: Subject) -> Iterable[Check]:
    """Whatever is wrong with them shows only on nodes, and late."""
    spec = subject.spec
    for key, group in spec.groups.items():
        if group.cloud_config is None:
            continue
        if key not in spec.remote:
            text = f"nodes of group {key} are not started by cloud-init"
            yield Check("cloud_config", False, text, f"take groups.{key}.cloud_config out")
        elif said := cloud_config.complaint(group.cloud_config):
            yield Check("cloud_config", False, said, "correct it: nodes would boot without it")


def look_at_subnet(subject: Subject) -> Iterable[Check]:
    for provider in containers(subject.spec):
        try:
            _refuse_subnet(subject, provider)
        except CloudError as error:
            text, _, todo = str(error).partition(": ")
            yield Check("subnet", False, text, todo)
        except PermissionError:
            yield Check("subnet", None, "only root can look at the site", "run it as root")


def _refuse_subnet(subject: Subject, provider: Containers) -> None:
    """As the provider would; the cluster's own bridge is in nobody's way."""
    cluster = subject.spec.cluster
    if ground := site.read_ground(subject.daemon.layout.instances):
        site.refuse_other(ground, cluster, provider.subnet)
    elif provider.subnet is not None:
        own = links.bridge_name(cluster)
        site.refuse_subnet(provider.subnet, (one for one in links.used() if one.link != own))


def look_at_parameters(subject: Subject) -> Iterable[Check]:
    """By letting Slurm read the file that it would get, if there is a Slurm to read it."""
    if not isinstance(subject.spec.batch, Slurm) or subject.spec.batch.attach:
        return
    with suppress(TooOldError, UnreadableError):
        release = slurm_text.release(slurm_text.parse_version(run(["slurmctld", "-V"]).stdout))
        text = render(subject.spec, NOWHERE, state=subject.spec.state, version=release)
        if said := _misread(text):
            todo = "correct batch.parameters, or the parameters of the partitions"
            yield Check("slurm.conf", False, f"Slurm would not read it: {said}", todo)


def _misread(text: str) -> str:
    """What Slurm complains of in a slurm.conf."""
    with tempfile.TemporaryDirectory() as place:
        draft = Path(place) / "slurm.conf"
        draft.write_text(text)
        done = run(["scontrol", "--version"], SLURM_CONF=str(draft))
    said = slurm_text.error_text(done.stderr).replace(f"{draft}", "slurm.conf")
    return (said or f"exit code {done.returncode}") if done.returncode else ""


def look_at_names(subject: Subject) -> Iterable[Check]:
    """Machines that exist without us: slurmctld asks for their addresses, and waits."""
    spec = subject.spec
    theirs = [group for group in spec.groups if isinstance(spec.provider_of(group), NoProvider)]
    named = (name for group in theirs for name in spec.names(group))
    names = (name for name in named if name not in spec.addresses)
    for name in islice(names, MOST_NAMES):
        if not _resolves(name):
            text = f"{name} does not resolve, so slurmctld would hang on it"
            yield Check("names", False, text, "add it to /etc/hosts or DNS")


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


REQUIRED: Sequence[Look] = (
    look_at_kinds,
    look_at_prolog,
    look_at_health,
    look_at_images,
    look_at_mounts,
    look_at_shared,
    look_at_cloud_configs,
    look_at_subnet,
    look_at_parameters,
)
