"""What the versions of Slurm do differently: the one place that tells them apart. Pure.

Everything here was seen on a real Slurm, or is in its own list of changes. Whoever must do one
thing on this version and another on that asks a `Change` about it; so do tests of what only some
versions do.
"""

from enum import Enum
from typing import NamedTuple

Release = tuple[int, int]

OLDEST: Release = (22, 5)
NEWEST: Release = (26, 5)
"""The newest that the tests of real clusters were run on."""
EARLIER: tuple[Release, ...] = (
    (19, 5), (20, 2), (20, 11), (21, 8), (22, 5), (23, 2), (23, 11),
)  # fmt: skip
"""Those before one came each May and November."""


class TooOldError(ValueError):
    """This version of Slurm lacks what we need."""


class Since(NamedTuple):
    """The first release that does it, and what it does."""

    release: Release
    what: str


class Change(Enum):
    """What Slurm does since some release, and did not do before."""

    SHOWS_POWERED_DOWN = Since(
        (23, 2),
        "powered-down nodes are always shown; before, only with `PrivateData=cloud`",
    )
    LEARNS_ADDRESSES = Since(
        (23, 11),
        "takes a node's address from its registration, and complains of `cloud_reg_addrs`",
    )
    KNOWS_INSTANCES = Since(
        (23, 11),
        "nodes have an InstanceId and an InstanceType, which accounting keeps "
        "(`sacctmgr show instance`)",
    )
    RELOADS_ALL = Since(
        (23, 11),
        "`scontrol reconfigure` is as good as a restart; before, it takes less, and slurmctld "
        "dies of it when the number of nodes has changed",
    )
    TAKES_THREE_OLDER = Since(
        (24, 11), "slurmctld takes slurmds of three older releases; before, of two"
    )
    POWER_ACTIONS = Since(
        (26, 5),
        "`scontrol reboot action=NAME` runs a program by name; older ones do not start with a "
        "slurm.conf that has such",
    )
    PAIRS_INSTANCES = Since(
        (26, 5), "one update takes a list of InstanceIds for a list of nodes; before, one for all"
    )
    HEARS_THE_POWERED_DOWN = Since(
        (26, 5),
        "a powered-down node that was undrained is not waited for after a restart; before, it "
        "gets no job until it powers down once more",
    )
    KEEPS_REBOOTING = Since(
        (26, 5),
        "a node that is being rebooted cannot be set idle; before, it counts as back then",
    )
    EXCLUSIVE_NODE = Since(
        (26, 5), "partitions say `Exclusive=NODE`; `OverSubscribe=EXCLUSIVE` is deprecated"
    )

    def applies(self, release: Release) -> bool:
        return release >= self.value.release


ALIKE = (
    Since(
        (23, 2), "`sbatch --reboot` reboots no cloud node; rebuild jobs ask the daemon in its place"
    ),
    Since(
        (24, 11),
        "a node keeps the reason of a drain that has ended; one that is left over counts as none",
    ),
    Since(
        (24, 11),
        "a cluster without accounting numbers itself; the number is forgotten when accounting is "
        "turned on",
    ),
    Since(
        (24, 11),
        "slurmctld may die after it has bound its port, as when a configured prolog is missing; "
        "so only an answer tells that it runs",
    ),
    Since(
        (26, 5),
        "slurmctld does not start again that died before it first saved the usage of accounts, "
        "unless it may take the start for its cluster's first",
    ),
    Since(
        (26, 5), "HealthCheckInterval must exceed HealthCheckTimeout, which is 60 s if nobody says"
    ),
)
"""Where versions differ, too, but what we do suits all of them: nobody has to ask."""


def ordinal(release: Release) -> int | None:
    """How many releases came before it, so that two can be told apart; None if it is none."""
    if release in EARLIER:
        return EARLIER.index(release)
    year, month = release
    return len(EARLIER) + 2 * (year - 24) + (month > 5) if release > EARLIER[-1] else None


def oldest_node(release: Release) -> int:
    """How many releases a slurmd may be behind such a slurmctld."""
    return 3 if Change.TAKES_THREE_OLDER.applies(release) else 2


def shown(release: Release) -> str:
    """As Slurm writes it: 22.05."""
    return f"{release[0]}.{release[1]:02d}"


def one_job_at_a_time(release: Release) -> dict[str, str]:
    """The setting of a partition whose nodes are not shared by jobs."""
    if Change.EXCLUSIVE_NODE.applies(release):
        return {"Exclusive": "NODE"}
    return {"OverSubscribe": "EXCLUSIVE"}


def check_version(release: Release) -> None:
    if release < OLDEST:
        raise TooOldError(
            f"Slurm {shown(release)} is too old; install Slurm {shown(OLDEST)} or newer"
        )


def untried(release: Release) -> str:
    """A warning about a version newer than any that was tried; empty for the others."""
    if release <= NEWEST:
        return ""
    return (
        f"newer than Slurm {shown(NEWEST)}, the newest that Springtide was tried with; "
        "it is used as if it were that"
    )
