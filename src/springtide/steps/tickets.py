"""Tokens: what lets a node's instance join the cluster, once, for a while.

Steps issue them with each launch; the API asks whether one that a node shows is good. A token is
a digest over (cluster, node, generation, expiry) with a secret of the cluster's own. So the same
launch again carries the same token, and the record keeps no token, only what became of it.
"""

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from springtide.configure.secret_file import keep_secret
from springtide.model import Node, Ticket
from springtide.record import Record
from springtide.spec import Cluster

SECRET_BYTES = 32
TOKEN_BYTES = 16
EXPIRY_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Tickets:
    """The tickets of one cluster; the secret is a file in `directory`."""

    record: Record
    directory: Path

    async def issue(self, spec: Cluster, nodes: Iterable[Node]) -> dict[str, str]:
        """Tokens for instances that are about to be made or started afresh, by node.

        A token that was not used is issued again: a launch is repeated as it was. But not if more
        than half its time is over: a machine must be able to boot in what is left.
        """
        joining = [node for node in nodes if spec.gets(node.group)]
        if not joining:
            return {}
        now = self.record.now()
        known = await self.record.store.tickets([node.name for node in joining])
        kept_at = now + _good_s(spec) / 2
        tickets = {
            n.name: _kept(n, known.get(n.name), kept_at) or _new(spec, n, now) for n in joining
        }
        fresh = [ticket for name, ticket in tickets.items() if ticket != known.get(name)]
        if fresh:
            await self.record.store.issue(fresh)
        return {name: self.token(spec.cluster, ticket) for name, ticket in tickets.items()}

    def token(self, cluster: str, ticket: Ticket) -> str:
        """`EXPIRY.DIGEST`, both safe in any text."""
        expiry = int(ticket.expires_at)
        what = f"{cluster}\n{ticket.node}\n{ticket.generation}\n{expiry}"
        digest = hmac.new(self._secret(), what.encode(), sha256).digest()[:TOKEN_BYTES]
        return f"{expiry}.{urlsafe_b64encode(digest).decode().rstrip('=')}"

    def is_token(self, token: str, cluster: str, node: str, generation: int) -> bool:
        """Whether it was ever issued for that instance; it may have been used, or be too old."""
        expiry = token.partition(".")[0]
        if not (expiry.isascii() and expiry.isdecimal() and len(expiry) <= EXPIRY_DIGITS):
            return False
        real = self.token(cluster, Ticket(node, generation, float(expiry)))
        return hmac.compare_digest(real.encode(), token.encode())

    def _secret(self) -> bytes:
        """Made anew if the power failed as it was made: of an empty one all could make tokens."""
        path = self.directory / "secret"
        if not path.exists() or path.stat().st_size < SECRET_BYTES:
            make_secret(path)
        return path.read_bytes()


def make_secret(path: Path) -> None:
    """Random bytes that only we can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep_secret(path, secrets.token_bytes(SECRET_BYTES), 0o600)


def _kept(node: Node, known: Ticket | None, until: float) -> Ticket | None:
    if known is None or known.generation != node.generation:
        return None
    return known if known.used_at is None and until <= known.expires_at else None


def _good_s(spec: Cluster) -> float:
    """A launch may have to be repeated, and then takes as long as any."""
    return spec.join.expiry or 2 * spec.timing.start


def _new(spec: Cluster, node: Node, now: float) -> Ticket:
    """Whole seconds: the token says them."""
    return Ticket(node.name, node.generation, float(int(now + _good_s(spec)) + 1))
