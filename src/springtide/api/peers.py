"""Who is at the other end of the socket, as the kernel says, and what they may do."""

import grp
import os
import pwd
import socket
import struct
from asyncio import BaseTransport, Transport
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from springtide.spec import Cluster

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """A local process, by its user."""

    uid: int
    gid: int

    @property
    def name(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"uid {self.uid}"

    def groups(self) -> set[int]:
        try:
            return set(os.getgrouplist(pwd.getpwuid(self.uid).pw_name, self.gid))
        except KeyError:
            return {self.gid}


class PeerProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 that puts the peer's credentials where others put its address."""

    def connection_made(self, transport: BaseTransport) -> None:
        assert isinstance(transport, Transport)
        super().connection_made(transport)
        connection: Any = transport.get_extra_info("socket")
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _pid, uid, gid = _CREDENTIALS.unpack(raw)
        self.client = (str(uid), gid)


def peer_of(request: Request) -> Peer:
    assert request.client is not None
    return Peer(int(request.client.host), request.client.port)


def may_change(peer: Peer, spec: Cluster) -> bool:
    """Root, the batch system's user, and members of the admin group."""
    return is_batch(peer, spec) or _group_id(spec.admin_group) in peer.groups()


def is_batch(peer: Peer, spec: Cluster) -> bool:
    """Root and the batch system's user: those whose programs call the hook."""
    try:
        return peer.uid in (0, pwd.getpwnam(spec.batch.user).pw_uid)
    except KeyError:
        return peer.uid == 0


def _group_id(name: str | None) -> int | None:
    try:
        return None if name is None else grp.getgrnam(name).gr_gid
    except KeyError:
        return None
