"""Public keys for `tide user add`, from a file or over https; read as whoever runs the command.

The daemon, which is root, opens no file and fetches nothing that people name.
"""

import time
from pathlib import Path
from typing import IO, Any

from springtide import __version__, users
from springtide.cli.endings import Complaint, Exit
from springtide.users import UserError

MOST = 1 << 16
"""So many bytes are read."""
LIMIT_S = 20.0
SILENCE_S = 10.0


def read_keys(where: str, insecure: bool = False) -> tuple[str, ...]:
    """The keys of a file, or of an address."""
    raw = _fetch(where, insecure) if "://" in where else _read(Path(where))
    if len(raw) > MOST:
        raise Complaint(f"{where} is no file of keys: it has more than {MOST} bytes", Exit.WRONG)
    try:
        return users.parse_keys(raw.decode(errors="replace"), where)
    except UserError as error:
        raise Complaint(str(error), Exit.WRONG) from None


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise Complaint(f"{path} is no file; name a public key, such as id.pub", Exit.WRONG)
        with path.open("rb") as file:
            return file.read(MOST + 1)
    except OSError as error:
        raise Complaint(f"cannot read {path}: {error.strerror}", Exit.WRONG) from None


def _fetch(url: str, insecure: bool) -> bytes:
    """Imported only here: every other command would wait for it."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    _require_scheme(url, insecure)

    class Redirects(HTTPRedirectHandler):
        """Only to where a key might have been asked for at once."""

        max_redirections = 5

        def redirect_request(self, *about: Any) -> Request | None:
            _require_scheme(about[-1], insecure)
            return super().redirect_request(*about)

    request = Request(url, headers={"User-Agent": f"springtide/{__version__}"})  # noqa: S310
    try:
        with build_opener(Redirects()).open(request, timeout=SILENCE_S) as answer:
            return _read_in_time(answer, url)
    except HTTPError as error:
        error.close()
        raise Complaint(
            f"{url} answers {error.code} {error.reason}: look whether it is right"
        ) from None
    except URLError as error:
        raise _unreached(url, error.reason) from None
    except (HTTPException, OSError, ValueError) as error:
        raise _unreached(url, error) from None


def _unreached(url: str, why: object) -> Complaint:
    """Without the number that the system has for it."""
    said = (why.strerror if isinstance(why, OSError) else None) or str(why)
    return Complaint(
        f"cannot fetch {url}: {said}; see whether the address is right and can be reached from "
        "here, or save the keys to a file and name that"
    )


def _require_scheme(url: str, insecure: bool) -> None:
    scheme = url.partition(":")[0].lower()
    if scheme == "https" or (scheme == "http" and insecure):
        return
    hint = ", or say --insecure" if scheme == "http" else ""
    raise Complaint(
        f"{url} is not fetched: anybody on the way could put in a key of theirs; use https{hint}",
        Exit.WRONG,
    )


def _read_in_time(answer: IO[bytes], url: str) -> bytes:
    """A server that sends a byte now and then must not keep us."""
    end, raw = time.monotonic() + LIMIT_S, b""
    while len(raw) <= MOST and (part := answer.read1(4096)):  # type: ignore[attr-defined]
        raw += part
        if time.monotonic() > end:
            raise Complaint(f"{url} takes more than {LIMIT_S:.0f} s to answer")
    return raw
