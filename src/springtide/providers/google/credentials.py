"""Who we are to Google: a service account's key file, the machine's own account, or, on loopback,
nobody. Nothing here says what is in a key file."""

import stat
from pathlib import Path

from google.auth import exceptions as auth
from google.auth.compute_engine import Credentials as OfMachine
from google.auth.credentials import AnonymousCredentials, Credentials
from google.oauth2.service_account import Credentials as OfKey

from springtide.ports import Check, Denied

ENDPOINT = "https://compute.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/compute",)
LOOPBACK = ("http://127.", "http://localhost:", "http://localhost/")
NAME = "credentials"


def credentials(path: Path | None, endpoint: str) -> Credentials:
    """Makes no call; raises Denied if the file cannot be used."""
    if endpoint.startswith(LOOPBACK):
        return AnonymousCredentials()  # type: ignore[no-untyped-call]
    if path is None:
        return OfMachine(scopes=SCOPES)  # type: ignore[no-untyped-call]
    if problem := _too_open(path):
        raise Denied(f"{problem}; {_close(path)}")
    try:
        made: Credentials = OfKey.from_service_account_file(  # type: ignore[no-untyped-call]
            str(path), scopes=SCOPES
        )
    except OSError as error:
        raise Denied(
            f"the key file {path} cannot be read ({error.strerror}): make one with "
            "`gcloud iam service-accounts keys create`, owned by the user that runs tide"
        ) from None
    except (ValueError, auth.GoogleAuthError):
        raise Denied(
            f"{path} is not the key file of a service account (a JSON file with "
            "client_email and private_key): make it anew"
        ) from None
    return made


def check_file(path: Path | None) -> Check:
    """Only we may read the key."""
    if path is None:
        return Check(NAME, True, "the account of this machine is used")
    try:
        problem = _too_open(path)
    except Denied as error:
        return Check(NAME, False, str(error))
    if problem:
        return Check(NAME, False, problem, _close(path))
    return Check(NAME, True, f"{path} is readable by its owner alone")


def _too_open(path: Path) -> str:
    """What is wrong with who may read the file; empty if nothing is."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise Denied(f"the key file {path} cannot be read ({error.strerror})") from None
    if stat.S_IMODE(mode) & 0o077:
        return f"others than its owner may read or write {path} (mode {stat.S_IMODE(mode):o})"
    return ""


def _close(path: Path) -> str:
    return f"run `chmod 600 {path}`, and make a new key if others may have read it"
