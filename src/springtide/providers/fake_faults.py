"""What goes wrong in a FakeCloud, and how long things take. Tests and the simulator set it.

Chance is seeded: the same seed and the same calls go wrong in the same way.
"""

import random
from dataclasses import dataclass, field
from math import inf

from springtide.ports import CloudError, InstanceState


@dataclass(slots=True)
class Faults:
    """How slow and how broken a cloud is. Chances go from 0 to 1; change them while it runs."""

    before_s: float = 0.0  # from a call to its effect
    after_s: float = 0.0  # from the effect to the reply
    boot_s: float = 30.0  # from pending to running; inf is never
    delete_s: float = 10.0  # from deleting to gone; inf is never
    image_s: float = 0.0  # from a snapshot to an image that is ready
    failed_images: bool = False  # snapshots come to nothing
    address_s: float = 0.0  # until a new instance shows its address
    stale_s: float = 0.0  # lists show the cloud as it was this long ago
    denied: bool = False  # the credentials were revoked
    throttle_every: int = 0  # each n-th call is refused; 0 is none
    throttled_until: float = -inf  # and so is each call before this time
    lost_replies: float = 0.0  # chance that a call has its effect but no reply
    refusals: dict[type[CloudError], float] = field(default_factory=dict)  # chance per launch
    refused_nodes: dict[str, CloudError] = field(default_factory=dict)  # these, also at a reboot
    refused_reboots: float = 0.0  # chance per instance that its reboot is refused
    refused_deletes: float = 0.0  # chance per instance that its delete is refused
    ignored_deletes: float = 0.0  # chance per instance that its delete is taken and forgotten
    stuck_boots: float = 0.0  # chance that an instance stays pending for ever
    deaths: float = 0.0  # chance that a running instance dies by itself
    death_after_s: float = 60.0  # how long such an instance runs
    dies_as: InstanceState | None = None  # what is listed after its death; None is nothing
    seed: int = 0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - chance, not secrets

    def chance(self, of: float) -> bool:
        return self._random.random() < of
