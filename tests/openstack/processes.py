"""The test's end of the keeper: start, signal and await the servers, and tell which have died."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
TAIL = 2000


class ServerDied(Exception):
    """A server of the control plane ended, or never answered; its last words are in the text."""


class Processes:
    """Every process started here is gone when this is closed or when the test's process is."""

    def __init__(self, root: Path) -> None:
        self._log = root / "log"
        self._log.mkdir(parents=True, exist_ok=True)
        keeper = (sys.executable, "-m", "tests.openstack.keeper", str(root))
        self._keeper = subprocess.Popen(
            ["unshare", "--pid", "--ipc", *keeper],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._order(do="start", name=name, argv=list(argv), env=dict(env or {}))

    def send(self, name: str, number: signal.Signals) -> None:
        self._order(do="signal", name=name, signal=int(number))

    def stop(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Return when it has ended; a server that does not heed the signal is killed."""
        self.send(name, number)
        if self.wait(name, 30.0) is None:
            self.stop(name)

    def wait(self, name: str, timeout_s: float) -> int | None:
        """Its exit code, or none when it still runs."""
        code = self._order(do="wait", name=name, timeout_s=timeout_s)
        return code if code is None else int(code)

    def run_all(self, commands: Mapping[str, Sequence[str]], timeout_s: float) -> None:
        """Side by side; all must succeed."""
        deadline = time.monotonic() + timeout_s
        for name, argv in commands.items():
            self.start(name, argv)
        for name in commands:
            code = self.wait(name, max(deadline - time.monotonic(), 0.1))
            if code != 0:
                raise ServerDied(f"{name} ended with {code}: {self.last_words(name)}")

    def until(self, name: str, is_so: Callable[[], bool], timeout_s: float = 300.0) -> None:
        """Wait for something that a server must bring about, for as long as that server lives."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if name in self._order(do="ended") or time.monotonic() > deadline:
                raise ServerDied(f"{name} is not as it should be: {self.last_words(name)}")
            time.sleep(0.1)

    def last_words(self, name: str) -> str:
        log = self._log / f"{name}.log"
        return log.read_text(errors="replace")[-TAIL:] if log.exists() else "(no log)"

    def close(self) -> None:
        """The end of its input is what the keeper stops everything at."""
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
        self._keeper.wait(60.0)
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()

    def _order(self, **order: Any) -> Any:
        if self._keeper.stdin is None or self._keeper.stdout is None:
            raise ServerDied("the keeper of the control plane has no pipes")
        self._keeper.stdin.write(json.dumps(order) + "\n")
        self._keeper.stdin.flush()
        answer = self._keeper.stdout.readline()
        if not answer:
            raise ServerDied("the keeper of the control plane has ended: see above")
        return json.loads(answer)
