"""Asks a name server as a resolver would: one question over UDP, for addresses or names.

It is asked again while nobody answers: on a busy machine either way may lose a packet."""

import socket
import struct
import time
from contextlib import closing
from ipaddress import IPv4Address

A, PTR, IN = 1, 12, 1
ANSWER_S = 60.0
AGAIN_S = 2.0


def addresses(server: str, name: str) -> list[str]:
    return [str(IPv4Address(data)) for data in _ask(server, name, A)]


def names(server: str, address: str) -> list[str]:
    """What an address is called."""
    return [_labels(data) for data in _ask(server, IPv4Address(address).reverse_pointer, PTR)]


def _ask(server: str, name: str, kind: int) -> list[bytes]:
    head = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0)
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = labels + b"\0" + struct.pack(">HH", kind, IN)
    answer = _answer(server, head + question)
    count = struct.unpack(">H", answer[6:8])[0]
    return _answers(answer[len(head + question) :], count, kind)


def _answer(server: str, question: bytes) -> bytes:
    end = time.monotonic() + ANSWER_S
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        asking.settimeout(AGAIN_S)
        while True:
            asking.sendto(question, (server, 53))
            try:
                return asking.recv(4096)
            except TimeoutError:
                if time.monotonic() > end:
                    raise


def _answers(rest: bytes, count: int, kind: int) -> list[bytes]:
    """Each begins with a reference to the question, as dnsmasq writes them."""
    found = []
    for _ in range(count):
        _, this, _, _, length = struct.unpack(">HHHIH", rest[:12])
        found += [rest[12 : 12 + length]] if this == kind else []
        rest = rest[12 + length :]
    return found


def _labels(data: bytes) -> str:
    found = []
    while data[0]:
        found.append(data[1 : 1 + data[0]].decode())
        data = data[1 + data[0] :]
    return ".".join(found)
