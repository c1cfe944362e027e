"""How nodes become members, as the cluster file says it: filesystems, users, names, software.

Most of it is what a node gets for its token when it joins; a group may do without parts of it.
"""

import re
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from springtide.node import given
from springtide.spec.strict import Strict
from springtide.spec.values import (
    AbsolutePath,
    Account,
    Address,
    Distinct,
    Domain,
    Mount,
    Name,
    Port,
    PositiveSeconds,
    Subnet,
    Switch,
    matching,
    parse_path,
    whole,
    wrong,
)
from springtide.users import UserError, parse_shell

Feature = Literal[
    "join",
    "certificates",
    "time",
    "names",
    "munge",
    "mounts",
    "users",
    "ssh",
    "ansible",
    "health",
    "slurmd",
    "entry",
]
"""What a node gets when it joins, in this order; `join` is all of it."""
FEATURES: tuple[str, ...] = get_args(Feature)[1:]
OF_SLURM = ("munge", "slurmd")
OF_OTHERS = ("entry",)
"""Features that only nodes of Slurm get, and those that only nodes of other batch systems do."""

Source = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9_/:\[][^\s\x00-\x1f\x7f\"'#\\]{0,255}",
            "a directory of this machine, or what mount takes, such as nas:/export",
        )
    ),
]
"""Shorter than `given.SOURCE`: nodes may get it behind the address of the control host."""


def without_password(value: object) -> object:
    """Never shown: it may have one."""
    if isinstance(value, str) and re.match(r"https?://[^/]*@|[a-z]+://[^/@]*:[^/]*@", value):
        raise ValueError(
            "must be an address (URL) without user and password, for every node is told it; "
            "use an ssh key or a token file of the image"
        )
    return value


Url = Annotated[
    str,
    BeforeValidator(matching(given.URL, "an address (URL)")),
    BeforeValidator(without_password),
]
MountOption = Annotated[
    str,
    BeforeValidator(matching(given.OPTION, "a mount option")),
]
Revision = Annotated[
    str,
    BeforeValidator(
        matching(given.REVISION, "a branch, tag or commit of git, such as main or release/24.11")
    ),
]


def parse_login(value: object) -> Path:
    """A shell that nodes take."""
    path = parse_path(value)
    try:
        return Path(parse_shell(str(path)))
    except UserError:
        raise wrong("the path of a program, such as /bin/bash", str(path)) from None


Shell = Annotated[Path, BeforeValidator(parse_login)]
Id = Annotated[int, Field(ge=1000, le=2**31), BeforeValidator(whole(1000, 2**31))]


class Join(Strict):
    """Where nodes join, and how long they may."""

    port: Port = 6821
    """The daemon's, for nodes, over TLS."""
    listen: Address | None = None
    """The address it listens on; left out, the one that nodes know, or all if that is not here."""
    expiry: PositiveSeconds | None = None
    """A token is good for so long after it was issued; left out, twice `timing.start`."""
    skew: PositiveSeconds = 60.0
    """A node whose clock is further from the control host's takes no jobs."""


def is_here(source: str | None, kind: str) -> bool:
    """Whether a filesystem of this kind is a directory of this machine: it is served over NFS."""
    if not kind.startswith("nfs"):
        return False
    return source is None or (source.startswith("/") and not source.startswith("//"))


class Shared(Strict):
    """A filesystem that every node has before it takes jobs."""

    path: Mount
    """Where nodes have it."""
    source: Source | None = None
    """A directory of this machine, which nodes elsewhere get from its NFS server; or what mount
    takes, such as `nas:/export`. Left out, the directory of this machine that `path` names."""
    type: Name = "nfs4"
    """Of the filesystem, where nodes mount it; of a directory of this machine `nfs4` or `nfs`."""
    options: Annotated[tuple[MountOption, ...], Distinct] = ()
    """Of the mount."""

    @property
    def here(self) -> bool:
        """Whether it is a directory of this machine; `/dev/vdb` with ext4 is a node's own."""
        return is_here(self.source, self.type)

    @property
    def directory(self) -> str:
        """That directory."""
        return str(Path(self.source)) if self.source else str(self.path)


class Nfs(Strict):
    """How this machine serves its directories of `shared` to nodes elsewhere."""

    server: Literal["kernel", "ganesha", "none"] = "kernel"
    """`kernel` is nfs-kernel-server, which the site installs and starts; `ganesha` a server of the
    cluster's own; `none` if nothing is to be done."""
    port: Port = 2049
    """Where it listens; nodes are told if it is not NFS's own."""
    clients: Annotated[tuple[Subnet, ...], Distinct] = ()
    """Networks that it serves; left out, nodes alone, each by its address."""


class Users(Strict):
    """People of the cluster: those of `tide user`, or those of a directory."""

    homes: Mount = Path("/home")
    """Where home directories are made; on a filesystem of `shared`."""
    first: Id = 20000
    """User and group ids begin here."""
    shell: Shell = Path("/bin/bash")
    """Of users who ask for none."""
    sssd: AbsolutePath | None = None
    """An sssd.conf of this machine that nodes get instead of users; the image has sssd."""


class Naming(Strict):
    """How nodes know each other's names."""

    kind: Literal["dns", "hosts"] = "dns"
    """`dns`: a dnsmasq on the control host, which nodes ask; `hosts`: the names that are known
    when a node joins, in its hosts file."""
    forward: Annotated[tuple[Address, ...], Distinct] = ()
    """Whom that dnsmasq asks for other names; left out, those of this machine's resolv.conf."""
    search: Annotated[tuple[Domain, ...], Distinct] | None = None
    """Domains in which nodes look for short names, after those of the nodes; left out, those of
    this machine's resolv.conf."""


class Pull(Strict):
    """A playbook that each node fetches and runs on itself when it boots."""

    url: Url
    """Of a git repository."""
    playbook: Name = "local.yml"
    """In it."""
    version: Revision | None = None
    """Branch, tag or commit; left out, what the repository says."""


class Ansible(Strict):
    """Software of nodes that are always up, by Ansible: at deploy, enlarge and update."""

    before: Annotated[tuple[AbsolutePath, ...], Distinct] = ()
    """Playbooks of the site that run before our roles."""
    roles: Annotated[
        tuple[Literal["base", "hosts", "nfs", "munge", "users", "slurm_node", "mpi"], ...],
        Distinct,
    ] = ("base", "hosts", "nfs", "munge", "users", "slurm_node")
    """Of ours, run on nodes in this order."""
    control: Switch = False
    """Whether the role `control` runs on this machine first."""
    after: Annotated[tuple[AbsolutePath, ...], Distinct] = ()
    """Playbooks of the site that run after them."""
    variables: AbsolutePath | None = None
    """A YAML file of variables for all of them."""
    user: Account = "root"
    """Whom it logs in as."""
    key: AbsolutePath | None = None
    """The private key it logs in with; left out, one of the cluster's own, which nodes trust."""
    forks: Annotated[int, Field(ge=1, le=500), BeforeValidator(whole(1, 500))] = 10
    """So many nodes at a time."""
    limit: PositiveSeconds = 3600.0
    """A run that takes longer is ended."""
    pull: Pull | None = None
    """What nodes run on themselves when they boot."""


ImageRole = Literal["base", "mpi", "munge", "nfs", "slurm_node"]
"""Roles that install software; the others only say of a cluster what an image cannot know."""


class Build(Strict):
    """How `tide image build` makes an image."""

    base: Name
    """The image that it starts from."""
    scripts: Annotated[tuple[AbsolutePath, ...], Distinct] = ()
    """Programs of the site, run as root in the new image, in this order."""
    roles: Annotated[tuple[ImageRole, ...], Distinct] = ()
    """Ansible roles of ours that are applied to it first."""
    group: Name | None = None
    """Whose provider, flavor and zone the building machine has; left out, the first group that
    uses the family."""
    keep: Annotated[int, Field(ge=1), BeforeValidator(whole(1))] = 3
    """`tide image clean` keeps so many of the newest."""
