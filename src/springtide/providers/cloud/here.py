"""Where nodes of a cloud reach this machine, if nobody says so."""

import socket

from springtide.ports import Rejected

ELSEWHERE = ("192.0.2.1", 9)
"""An address that is nobody's (RFC 5737). No packet is sent to it: only the route is asked for."""


def own_address() -> str:
    """This machine's address on its default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ELSEWHERE)
        except OSError as error:
            raise Rejected(
                f"this machine's address cannot be found out ({error.strerror}): "
                "set `control_address` in the provider block"
            ) from error
        return str(probe.getsockname()[0])
