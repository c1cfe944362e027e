"""libvirt's errors as ours: the one translator. Pure, but for the names of libvirt's codes."""

import libvirt

from springtide.ports import (
    CloudError,
    Denied,
    NoCapacity,
    QuotaExceeded,
    Rejected,
    Transient,
)

GONE = frozenset(
    {
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_STORAGE_VOL,
        libvirt.VIR_ERR_NO_STORAGE_POOL,
        libvirt.VIR_ERR_NO_NETWORK,
        libvirt.VIR_ERR_NO_DOMAIN_METADATA,
    }
)
"""What was asked for is not there."""

_BY_CODE: dict[int, type[CloudError]] = {
    libvirt.VIR_ERR_AUTH_FAILED: Denied,
    libvirt.VIR_ERR_AUTH_CANCELLED: Denied,
    libvirt.VIR_ERR_AUTH_UNAVAILABLE: Denied,
    libvirt.VIR_ERR_ACCESS_DENIED: Denied,
    libvirt.VIR_ERR_OPERATION_DENIED: Denied,
    libvirt.VIR_ERR_NO_SUPPORT: Rejected,
    libvirt.VIR_ERR_INVALID_ARG: Rejected,
    libvirt.VIR_ERR_XML_ERROR: Rejected,
    libvirt.VIR_ERR_XML_DETAIL: Rejected,
    libvirt.VIR_ERR_XML_INVALID_SCHEMA: Rejected,
    libvirt.VIR_ERR_CONFIG_UNSUPPORTED: Rejected,
    libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED: Rejected,
    libvirt.VIR_ERR_NO_NETWORK: Rejected,
    libvirt.VIR_ERR_NO_STORAGE_VOL: Rejected,
    libvirt.VIR_ERR_NO_DOMAIN: Rejected,
    libvirt.VIR_ERR_NO_MEMORY: NoCapacity,
    libvirt.VIR_ERR_NO_OS: Rejected,
    libvirt.VIR_ERR_NO_DEVICE: Rejected,
    libvirt.VIR_ERR_NO_SOURCE: Rejected,
    libvirt.VIR_ERR_NO_TARGET: Rejected,
    libvirt.VIR_ERR_OS_TYPE: Rejected,
    libvirt.VIR_ERR_INVALID_MAC: Rejected,
}
_BY_WORDS: tuple[tuple[str, type[CloudError]], ...] = (
    ("disk quota exceeded", QuotaExceeded),
    ("no space left", NoCapacity),
    ("cannot set up guest memory", NoCapacity),
    ("cannot allocate memory", NoCapacity),
    ("unable to allocate hugepage", NoCapacity),
    ("permission denied", Denied),
    ("authentication", Denied),
    ("is not active", Transient),  # a network or pool that somebody is about to start
    ("no such file", Rejected),
    ("failed to find an available port", NoCapacity),
)
"""Most of what a hypervisor refuses comes with a code that says nothing."""
_DRIVERS = (
    ("virNetworkLookupByName", "network"),
    ("virStoragePoolLookupByTargetPath", "storage"),
    ("no connection driver available for qemu", "qemu"),
)
"""By what is refused where this driver is missing; Debian has them in packages of their own."""
_FAR = frozenset({libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE})
"""It came from the way to libvirt, not from libvirt."""


def decide_class(code: int, domain: int, message: str) -> type[CloudError]:
    """What does not pass by itself is told from what does; the unknown may pass."""
    said = message.lower()
    for words, kind in _BY_WORDS:
        if words in said and not (kind is Rejected and domain in _FAR):
            return kind
    return _BY_CODE.get(code, Transient)


def translated(error: libvirt.libvirtError, about: str = "") -> CloudError:
    message = str(error.get_error_message() or error)
    code = error.get_error_code() or 0
    kind = decide_class(code, error.get_error_domain() or 0, message)
    told = f"libvirt says: {message}{advice(code, message)}"
    return kind(f"{about}: {told}" if about else told)


def advice(code: int, message: str) -> str:
    """What to install, if a part of libvirt is missing."""
    if code not in (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_NO_CONNECT):
        return ""
    driver = next((name for words, name in _DRIVERS if words in message), "")
    todo = f"; install libvirt-daemon-driver-{driver} on its host, and restart libvirtd"
    return todo if driver else ""


def is_gone(error: libvirt.libvirtError) -> bool:
    return error.get_error_code() in GONE
