"""What the daemon sends, looked at before it is used: a node believes it, but not blindly."""

import ipaddress
import re
from typing import Any, Dict

from springtide.node.console import Failed

Json = Dict[str, Any]

NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}"
ACCOUNT = r"[a-z_][a-z0-9_.-]{0,31}\$?"
SERVER = r"[A-Za-z0-9.:\[\]_-]{1,255}:[0-9]{1,5}"
SOURCE = r"[A-Za-z0-9_/:\[][^\s\x00-\x1f\x7f\"'#\\]{0,511}"
OPTION = r"[A-Za-z0-9_][^\s,\x00-\x1f\x7f\"'#\\]{0,127}"
URL = r"(?:https?|ssh|git|file)://[^\s\x00-\x1f\x7f\"'\\]{1,500}"
REVISION = r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,127}"
"""A branch, tag or commit of git; the cluster file has the same."""
VERSION = r"[0-9]{1,3}\.[0-9]{1,2}[A-Za-z0-9._~-]{0,40}"


def word(value: Any, pattern: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise Failed(f"the daemon sent {_shown(value)}, which is not like {pattern}")
    return value


def _shown(value: Any) -> str:
    return repr(value)[:80]


def secret(value: Any) -> str:
    """It is not shown, whatever it is."""
    if not isinstance(value, str) or not re.fullmatch("[!-~]{8,200}", value):
        raise Failed("the daemon sent no key")
    return value


def path(value: Any) -> str:
    found = word(value, r"/[^\x00-\x20\x7f\"'\\]{1,500}")
    if ".." in found.split("/"):
        raise Failed(f"the daemon sent the path {found}")
    return found


def line(value: Any) -> str:
    return word(value, r"[^\x00-\x1f\x7f]{1,1000000}")


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise Failed(f"the daemon sent {_shown(value)}, which is no text")
    return value


def field(value: Any) -> str:
    """Of passwd and group."""
    return word(value, r"[^\x00-\x1f\x7f:]{0,200}")


def number(value: Any, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
        raise Failed(f"the daemon sent {_shown(value)}, which is no number from {least:g} on")
    return value


def id(value: Any) -> int:
    """Of a user or group; never root's."""
    return int(number(value, 1))


def address(value: Any) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise Failed(f"the daemon sent the address {_shown(value)}") from None
