"""A mechanism of Neutron that binds every port on every host; there are no switches to set up.

Neutron finds it by the entry point that `tests.openstack.conf` writes.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc"

from typing import Any

from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class AnyPort(api.MechanismDriver):
    def initialize(self) -> None:
        """Nothing to set up: the interface wants the method."""

    def bind_port(self, context: Any) -> None:
        segment = context.segments_to_bind[0][api.ID]
        details = {portbindings.CAP_PORT_FILTER: True}
        context.set_binding(segment, portbindings.VIF_TYPE_OVS, details, status="ACTIVE")
