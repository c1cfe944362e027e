"""Asks running nodes to look again at what they are to have. The roster calls it after a change.

The cluster logs in with its own key. All that a node does for it is to ask the daemon anew, as it
also does by itself every few minutes; so a node that cannot be reached now has it a little later.
`shots` has a node run a script instead, which is its last act as this node.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from springtide.configure import identity
from springtide.configure.programs import write
from springtide.node.bundle import PLACE

AT_ONCE = 16
CONNECT_S = 5
LIMIT_S = 30.0
"""For one node."""
CHUNK = 4096
MOST_BYTES = 64 << 10
"""Of what a node says, its end: it may be in wrong hands, and go on without end."""
LONGEST = 300
"""Characters of that in a reason."""
ALL_S = 300.0
"""Nobody waits longer for nodes that do not answer."""
COMMAND = (PLACE, "refresh")
READ = ('exec sh -c "$(cat)" </dev/null',)
"""Runs the script that it is given; what that starts finds no input."""
OPTIONS = (
    *("BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "LogLevel=ERROR"),
    *("GlobalKnownHostsFile=/dev/null", "ControlPath=none", "ForwardAgent=no"),
    *(f"ConnectTimeout={CONNECT_S}", "ServerAliveInterval=5", "ServerAliveCountMax=3"),
)


@dataclass(frozen=True, slots=True)
class Turns:
    """How nodes are asked one after the other, and until when."""

    free: asyncio.Semaphore
    until: float


@dataclass(frozen=True, slots=True)
class Refreshing:
    """With the keys in `directory`, which `identity` made."""

    directory: Path
    program: str = "ssh"

    async def ask(self, addresses: Mapping[str, str]) -> dict[str, str]:
        """Why nodes did not do it; those that did are not in the answer."""
        if not addresses:
            return {}
        if not (self.directory / "id_ed25519").exists():
            return dict.fromkeys(addresses, "the cluster has no ssh key yet")
        try:
            self._know_hosts()
        except OSError as error:
            return dict.fromkeys(addresses, f"{error.filename}: {error.strerror}")
        turns = Turns(asyncio.Semaphore(AT_ONCE), asyncio.get_running_loop().time() + ALL_S)
        asked = [self._ask(name, address, turns) for name, address in addresses.items()]
        said = await asyncio.gather(*asked)
        return {name: why for name, why in zip(addresses, said, strict=True) if why}

    async def hand(self, name: str, address: str, script: str, last: Sequence[str]) -> str:
        """Have a node run a script as root, until it says one of the last words or ends.

        Answers the end of what it said; raises OSError without ssh, and TimeoutError. The node may
        switch itself off, so how the connection ends tells nothing.
        """
        self._know_hosts()
        pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        process = await asyncio.create_subprocess_exec(
            self.program, *self.words(name, address, READ), stdin=pipe, stdout=pipe, stderr=both
        )
        try:
            async with asyncio.timeout(ALL_S):
                return await _converse(process, script, last)
        except TimeoutError:
            raise TimeoutError(f"no last word within {ALL_S:.0f} s") from None
        finally:
            await _end(process)

    def _know_hosts(self) -> None:
        write(self._hosts, identity.known_hosts(self.directory, ["*"]) + "\n", 0o600)

    @property
    def _hosts(self) -> Path:
        return self.directory / "refreshing_known_hosts"

    async def _ask(self, name: str, address: str, turns: Turns) -> str:
        async with turns.free:
            if asyncio.get_running_loop().time() > turns.until:
                return "not asked: too many others did not answer"
            try:
                return await _run([self.program, *self.words(name, address)])
            except OSError as error:
                return f"{self.program}: {error.strerror}; install openssh-client"

    def words(self, name: str, address: str, command: Sequence[str] = COMMAND) -> Sequence[str]:
        """By its name, not by its address, is a node's key known."""
        own = (f"HostKeyAlias={name}", f"UserKnownHostsFile={self._hosts}")
        options = [word for one in (*OPTIONS, *own) for word in ("-o", one)]
        key = ["-F", "none", "-i", str(self.directory / "id_ed25519"), "-l", "root"]
        return [*key, *options, "--", address, *command]


async def _run(command: Sequence[str]) -> str:
    """The end of the last line that it said, if it failed."""
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=nothing, stdout=nothing, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said = await _heard(process.stderr, ())
            code = await process.wait()
    except TimeoutError:
        return f"no answer within {LIMIT_S:.0f} s"
    finally:
        await _end(process)
    lines = [shown for line in said.splitlines() if (shown := _shown(line))]
    return (lines or [f"exit code {code}"])[-1] if code else ""


def _shown(line: str) -> str:
    """What a terminal can show."""
    return "".join(sign for sign in line[-LONGEST:] if sign.isprintable()).strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _converse(process: asyncio.subprocess.Process, script: str, last: Sequence[str]) -> str:
    assert process.stdin is not None
    with suppress(ConnectionError):  # then it says why
        process.stdin.write(script.encode())
        await process.stdin.drain()
    process.stdin.close()
    return await _heard(process.stdout, last)


async def _heard(stream: asyncio.StreamReader | None, last: Sequence[str]) -> str:
    """The end of what is said there, up to a line with one of the last words."""
    assert stream is not None
    said = b""
    while more := await stream.read(CHUNK):
        said = (said + more)[-MOST_BYTES:]
        lines = said[: said.rfind(b"\n") + 1]
        if any(words.encode() in lines for words in last):
            break
    return said.decode(errors="replace")
