"""Calls of Google's Compute Engine API: one HTTP request each, answers as dicts, CloudErrors.

Neither sessions of `requests` nor credentials of google-auth are safe in several threads: each
thread has a session of its own, and all share one token that is fetched by one of them at a time.
Nothing is tried again here, that is the guard's: not by adapters, and not after a 401.
google-auth's own AuthorizedSession would do that, and ask other hosts of Google in threads of its
own, without a limit of time: so the token is put on requests here.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import quote

import requests
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.transport.requests import Request

from springtide.ports import Transient
from springtide.providers.google.errors import cloud_error, parse_refusal, unreached

PAGE = 500
"""The most that Google puts on a page."""
OPERATION_S = 120.0
"""An operation that takes longer goes on without us; what it makes is found later."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
COMPLETE = frozenset({"", "NO_RESULTS_ON_PAGE"})
"""Warnings of lists that lack nothing."""

Method = Literal["GET", "POST", "DELETE"]
Answer = dict[str, Any]


class Api:
    """One project at one endpoint."""

    def __init__(
        self, endpoint: str, project: str, credentials: Credentials, timeout_s: float
    ) -> None:
        self.project = project
        self._root = f"{endpoint.rstrip('/')}/compute/v1/"
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._sessions: list[requests.Session] = []
        self._spent = False

    def get(self, path: str, what: str, **query: str | int) -> Answer:
        return self.call("GET", path, what, query)

    def post(self, path: str, what: str, body: object = None, **query: str | int) -> Answer:
        return self.call("POST", path, what, query, body)

    def call(
        self,
        method: Method,
        path: str,
        what: str,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
    ) -> Answer:
        """`path` begins with projects/, or is one of our project's own."""
        try:
            reply = self._session().request(
                method,
                self._url(path),
                params=query,
                json=body,
                headers=self._headers(),
                timeout=self._timeout_s,
            )
        except (requests.RequestException, auth.GoogleAuthError) as error:
            raise unreached(error, what) from error
        return self._read(reply, what)

    def pages(self, path: str, what: str, **query: str | int) -> Iterator[Answer]:
        """All of them; raises rather than leave one out."""
        token = ""
        while True:
            page = self.get(path, what, maxResults=PAGE, **query, **_at(token))
            _require_complete(page, what)
            yield page
            token = str(page.get("nextPageToken") or "")
            if not token:
                return

    def finish(self, operation: Answer, scope: str, what: str) -> Answer:
        """Wait until the operation is done; the last that is known of it if that takes too long."""
        end = time.monotonic() + OPERATION_S
        pause_s = FIRST_PAUSE_S
        while operation.get("status") != "DONE" and time.monotonic() < end:
            path = f"{scope}/operations/{text_of(operation, 'name', what)}"
            operation = self._waited(path, what) or operation
            if operation.get("status") != "DONE":
                time.sleep(pause_s)  # Google may answer at once, though it is asked to wait
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return operation

    def close(self) -> None:
        with self._lock:
            for session in self._sessions:
                session.close()
            self._sessions.clear()

    def _waited(self, path: str, what: str) -> Answer | None:
        """Google holds the answer back for up to two minutes, which may be longer than we wait."""
        try:
            return self.post(f"{path}/wait", what)
        except Transient as error:
            if isinstance(error.__cause__, requests.Timeout):
                return None
            raise

    def _read(self, reply: requests.Response, what: str) -> Answer:
        try:
            body = reply.json() if reply.content else {}
        except ValueError:
            body = None
        if reply.status_code == 401 and not isinstance(self._credentials, AnonymousCredentials):
            self._spent = True
        if reply.status_code >= 400:
            raise cloud_error(parse_refusal(reply.status_code, body), what)
        if not isinstance(body, dict):
            raise Transient(f"Google, {what}: the answer is none of its API's; is a proxy between?")
        return body

    def _url(self, path: str) -> str:
        whole = path if path.startswith("projects/") else f"projects/{self.project}/{path}"
        return self._root + quote(whole.rstrip("/"), safe="/:")

    def _headers(self) -> dict[str, str]:
        """With a token that is valid; who comes while it is fetched waits for it."""
        headers: dict[str, str] = {}
        with self._lock:
            if self._spent or not self._credentials.valid:
                with requests.Session() as session:
                    fetch = _Timely(session, self._timeout_s)
                    self._credentials.refresh(fetch)  # type: ignore[no-untyped-call]
                self._spent = False
            self._credentials.apply(headers)  # type: ignore[no-untyped-call]
        return headers

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._mine, "session", None)
        if session is None:
            session = self._mine.session = requests.Session()
            # A proxy is for the real service, not for one on this machine.
            session.trust_env = not isinstance(self._credentials, AnonymousCredentials)
            with self._lock:
                self._sessions.append(session)
        return session


class _Timely(Request):
    """Fetches tokens, with our limit where google-auth has none of its own."""

    def __init__(self, session: requests.Session, timeout_s: float) -> None:
        super().__init__(session)
        self._timeout_s = timeout_s

    def __call__(self, *args: Any, timeout: float | None = None, **more: Any) -> Any:
        more["timeout"] = timeout or self._timeout_s
        return super().__call__(*args, **more)  # type: ignore[no-untyped-call]


def text_of(answer: Answer, key: str, what: str) -> str:
    if not isinstance(text := answer.get(key), str):
        raise Transient(f"Google, {what}: the answer has no {key}; is a proxy between?")
    return text


def _at(token: str) -> dict[str, str]:
    return {"pageToken": token} if token else {}


def _require_complete(page: Answer, what: str) -> None:
    """Google answers also if a zone does not: what such a list lacks is not gone."""
    scopes = page.get("items")
    parts = [*scopes.values()] if isinstance(scopes, dict) else []
    codes = {str((part.get("warning") or {}).get("code", "")) for part in [page, *parts]}
    if page.get("unreachables") or codes - COMPLETE:
        why = ", ".join(sorted(codes - COMPLETE)) or "zones are not reached"
        raise Transient(f"Google, {what}: the list is not complete now ({why})")
