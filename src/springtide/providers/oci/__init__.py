"""Oracle Cloud Infrastructure: instances by its SDK, which is imported when a file names it.

`account` logs in, `driver` calls, `launches` and `shapes` translate both ways, `errors` says what
went wrong, `checks` what would.
"""

from pathlib import Path

from springtide.ports import Denied, Provider
from springtide.providers.cloud import Catalog, Cloud
from springtide.spec.clouds import Oci

__all__ = ["provider"]


def provider(wanted: Oci, catalog: Catalog, state: Path) -> Provider:
    """Calls nobody yet; raises CloudError if it could not.

    The SDK may be missing where only `shapes` is needed, as to import another system's file.
    """
    from springtide.providers.oci.account import THREADS, Account
    from springtide.providers.oci.driver import OciDriver

    return Cloud(OciDriver(wanted, catalog, Account(wanted), _key(wanted)), THREADS)


def _key(wanted: Oci) -> str | None:
    if wanted.ssh_key is None:
        return None
    try:
        return wanted.ssh_key.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Denied(f"{wanted.ssh_key} cannot be read: `ssh_key` names a public key") from error
