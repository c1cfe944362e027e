"""One short function a step. The engine runs them by the table STEPS; nobody else does.

A step looks at the world, does what is missing, and answers the nodes that fell out and why.
Run again after a crash, it finishes what it had begun.
"""

from collections.abc import Awaitable, Callable, Mapping

from springtide.model import Step
from springtide.steps.batch import stop_batch, write_batch_config
from springtide.steps.drain import drain, undrain
from springtide.steps.instances import create_instances, delete_instances, wait_reachable
from springtide.steps.inventory import refresh_inventory
from springtide.steps.registration import wait_registered
from springtide.steps.repair import give_back
from springtide.steps.rescue import rescue
from springtide.steps.site import configure_software, prepare_site, remove_site
from springtide.steps.work import Fallen, Parts, Work

__all__ = ["STEPS", "Fallen", "Parts", "StepFunction", "Work", "rescue"]

StepFunction = Callable[[Work], Awaitable[Fallen]]

STEPS: Mapping[Step, StepFunction] = {
    Step.PREPARE_SITE: prepare_site,
    Step.DRAIN: drain,
    Step.GIVE_BACK: give_back,
    Step.DELETE_INSTANCES: delete_instances,
    Step.CREATE_INSTANCES: create_instances,
    Step.WAIT_REACHABLE: wait_reachable,
    Step.REFRESH_INVENTORY: refresh_inventory,
    Step.CONFIGURE_SOFTWARE: configure_software,
    Step.WRITE_BATCH_CONFIG: write_batch_config,
    Step.WAIT_REGISTERED: wait_registered,
    Step.UNDRAIN: undrain,
    Step.STOP_BATCH: stop_batch,
    Step.REMOVE_SITE: remove_site,
}
