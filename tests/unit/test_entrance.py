"""The join port, for real: TLS with a certificate that nodes pin, and clients that mean no good."""

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from springtide.api import tls, troubles
from springtide.api.entrance import ALL, Entrance, Place, decide_place, listen
from springtide.api.joining import MAX_BODY
from springtide.configure import identity
from springtide.ports import Site
from springtide.spec import parse
from tests.ports import free_ports
from tests.unit.join_world import TEXT, JoinWorld, join_world

LIMIT_S = 200.0


async def until(look: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not look():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def entered(world: JoinWorld) -> AsyncIterator[int]:
    """With its door open, or so that it is tried."""
    task = asyncio.create_task(Entrance(world.joining).run())
    try:
        yield world.spec.join.port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is as slow as this machine is let go nowhere but where a test says so."""
    for limit in ("HANDSHAKE_S", "REQUEST_S", "LIFE_S"):
        monkeypatch.setattr(tls, limit, LIMIT_S)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[JoinWorld]:
    async with join_world(tmp_path, port=free_ports(1)[0]) as made:
        yield made


def line(port: int) -> closing[http.client.HTTPSConnection]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=LIMIT_S, context=context))


def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any, str]:
    """Status, answer, and the digest of the certificate."""
    with line(port) as it:
        text = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        it.request(method, path, text)
        assert isinstance(it.sock, ssl.SSLSocket)
        shown = sha256(it.sock.getpeercert(binary_form=True) or b"").hexdigest()
        answer = it.getresponse()
        said = answer.read()
    known = answer.headers["content-type"] == "application/json"
    return answer.status, json.loads(said) if known else said, shown


async def ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    again: tuple[type[Exception], ...] = (ConnectionRefusedError,),
) -> tuple[int, Any, str]:
    """As soon as the port is there, or again when we were let go."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return await asyncio.to_thread(call, port, method, path, body)
            except again:
                await asyncio.sleep(0.02)


LET_GO = (OSError, http.client.HTTPException)


async def is_served(port: int) -> bool:
    """Where time is short, one who is as slow as this machine is let go and comes again."""
    return (await ask(port, "GET", "/agent", again=LET_GO))[0] == 200


async def connected(
    port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Also where time is so short that we may be let go before we have shaken hands."""
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError:
            await asyncio.sleep(0.02)


def body_of(token: str, **more: Any) -> dict[str, Any]:
    machine = {"arch": "x", "cpus": 2, "memory": 1000, "slurm": "", "boot": "b", "clock": 1_000_000}
    about = {"cluster": "blue", "node": "b1", "generation": 1, "machine": machine, "phases": []}
    return {**about, "token": token, **more}


@pytest.mark.accepts("X17")
async def test_a_node_joins_and_reports_over_tls(world: JoinWorld) -> None:
    asked = await world.invited()
    async with entered(world) as port:
        status, welcome, shown = await ask(port, "POST", "/join", body_of(asked.secret))
        assert (status, welcome["node"]) == (200, "b1")
        assert shown == identity.pin(world.layout.join)
        phase = {"name": "slurmd", "at": 1_000_000, "took_s": 1, "detail": ""}
        report = body_of("", key=welcome["key"], phases=[phase])
        assert (await ask(port, "POST", "/report", report))[:2] == (200, {})
        status, again, _ = await ask(port, "POST", "/refresh", {**report, "phases": []})
        assert status == 200
        assert again["munge"] == welcome["munge"]
    assert [one.name for one in await world.parts.record.store.phases("b1")] == ["slurmd"]


async def test_errors_say_whether_to_ask_again(world: JoinWorld) -> None:
    async with entered(world) as port:
        status, said, _ = await ask(port, "POST", "/join", body_of("guess"))
        assert (status, said["final"]) == (403, True)
        assert said["error"].startswith("b1 is not let in: ")
        for wrong in (b"{", b"[]", b"\xff" * 10, b"[" * 5000):
            status, said, _ = await ask(port, "POST", "/join", wrong)
            assert (status, said["final"]) == (400, True)
        asked = await world.invited()
        world.layout.munge_key.unlink()
        status, said, _ = await ask(port, "POST", "/join", body_of(asked.secret))
        assert (status, said["final"]) == (503, False)


async def test_nothing_else_is_served_there(world: JoinWorld) -> None:
    async with entered(world) as port:
        for path in ("/", "/status", "/nodes", "/join/../status", "/events"):
            assert (await ask(port, "GET", path))[0] in (404, 405), path
        assert (await ask(port, "GET", "/join"))[0] == 405
        assert (await ask(port, "POST", "/operations", {"operation": "destroy"}))[0] == 404


def begin_to_report(port: int) -> tuple[int, Any]:
    """The answer to a report that is told to be long, when a byte too much of it was sent."""
    with line(port) as it:
        it.putrequest("POST", "/report")
        it.putheader("Content-Length", str(2 * MAX_BODY))
        it.endheaders(b"x" * (MAX_BODY + 1))
        answer = it.getresponse()
        return answer.status, json.loads(answer.read())


async def test_a_body_that_is_too_large_is_not_read(world: JoinWorld) -> None:
    async with entered(world) as port:
        assert await is_served(port)
        status, said = await asyncio.to_thread(begin_to_report, port)
        assert (status, said["final"]) == (413, True)


async def test_the_agent_is_for_anybody(world: JoinWorld) -> None:
    async with entered(world) as port:
        status, text, _ = await ask(port, "GET", "/agent")
        assert status == 200
        assert text.startswith(b"#!/usr/bin/python3\n")


async def test_who_speaks_no_tls_or_nothing_harms_nobody(
    world: JoinWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.5)
    async with entered(world) as port:
        assert await is_served(port)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        plain = socket.create_connection(("127.0.0.1", port))
        plain.sendall(b"GET /agent HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await is_served(port)
        plain.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LIMIT_S):
            assert b"200" not in await loop.sock_recv(plain, 100)
            for one in silent:  # let go by itself
                one.setblocking(False)
                assert await loop.sock_recv(one, 100) == b""
        for one in (*silent, plain):
            one.close()


@pytest.mark.parametrize("limit", ["LIFE_S", "REQUEST_S"])
async def test_who_asks_too_slowly_is_let_go(
    world: JoinWorld, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(tls, limit, 0.5)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with entered(world) as port:
        assert await is_served(port)
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await connected(port, context)
            writer.write(b"POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        assert await is_served(port)


async def test_no_answer_is_worked_on_after_the_end(
    world: JoinWorld, caplog: pytest.LogCaptureFixture
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return Response()

    context = identity.tls(world.layout.join)
    listener = listen(Place("127.0.0.1", world.spec.join.port))
    server = tls.Server(Starlette(routes=[Route("/slow", answer)]), context)
    async with asyncio.timeout(LIMIT_S), server.serving(listener):
        asking = asyncio.create_task(ask(world.spec.join.port, "GET", "/slow"))
        await begun.wait()
    assert ended.is_set()
    assert caplog.text == ""
    with suppress(OSError, http.client.HTTPException):
        await asking


async def test_more_connections_than_there_are_places_wait(
    world: JoinWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "PLACES", 4)
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.5)
    async with entered(world) as port:
        assert await is_served(port)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
        assert await is_served(port)
        for one in silent:
            one.close()


async def test_one_address_does_not_take_all_places(
    world: JoinWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "PLACES_OF_ONE", 2)
    async with entered(world) as port:
        assert await is_served(port)
        three = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        for one in three:
            one.setblocking(False)
        loop = asyncio.get_running_loop()
        ends = [asyncio.create_task(loop.sock_recv(one, 10)) for one in three]
        async with asyncio.timeout(LIMIT_S):  # whoever asked before may not have left yet
            assert await next(asyncio.as_completed(ends)) == b""
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        for one in three:
            one.close()


# --- where it is ---------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_told_and_tried_again(
    world: JoinWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("springtide.api.entrance.AGAIN_S", 0.05)
    with closing(socket.create_server(("127.0.0.1", world.spec.join.port))):
        task = asyncio.create_task(Entrance(world.joining).run())
        await until(lambda: world.joining.closed)
        shown = await troubles.shown(world.daemon)
        (line,) = shown["nodes cannot join"]
        assert line.endswith(
            "Address already in use; another program has that port: stop it, or set join.port"
        )
    await until(lambda: not world.joining.closed)
    assert (await ask(world.spec.join.port, "GET", "/agent"))[0] == 200
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(await world.events("nodes cannot join")) == 1
    assert len(await world.events("nodes can join")) == 1
    assert "nodes cannot join" not in await troubles.shown(world.daemon)


async def test_a_certificate_that_cannot_be_used_is_told_as_such(world: JoinWorld) -> None:
    """As after a backup of which one file was put back."""
    place = world.joining.layout.join
    (place / "tls.key").unlink()
    (place / "tls.crt").rename(place / "former.crt")
    identity.ensure(place, "blue")
    (place / "former.crt").replace(place / "tls.crt")
    async with entered(world):
        await until(lambda: world.joining.closed)
        assert "key values mismatch" in world.joining.closed


async def test_it_opens_with_the_site_and_follows_the_file(world: JoinWorld) -> None:
    site, world.parts.site = world.parts.site, None
    port, (other,) = world.spec.join.port, free_ports(1)
    async with entered(world):
        world.parts.site = site
        assert (await ask(port, "GET", "/agent"))[0] == 200
        join = world.spec.join.model_copy(update={"port": other})
        spec = world.spec.model_copy(update={"join": join})
        world.parts.membership = replace(world.membership, spec=spec)
        assert (await ask(other, "GET", "/agent"))[0] == 200
        with pytest.raises(ConnectionRefusedError):
            call(port, "GET", "/agent")


def place_of(world: JoinWorld, text: str, site: str = "10.1.1.1") -> Place | None:
    text = text.replace("STATE", str(world.layout.state)).replace("PORT", "6821")
    return decide_place(replace(world.membership, spec=parse(text, "x.yaml")), Site(site))


async def test_it_listens_where_nodes_look(world: JoinWorld) -> None:
    plain = TEXT.replace(", listen: 127.0.0.1", "")
    assert place_of(world, TEXT) == Place("127.0.0.1", 6821)
    assert place_of(world, plain) == Place("10.1.1.1", 6821, elsewhere=True)
    own = plain.replace("{kind: command", "{kind: command, control_address: 10.2.2.2", 1)
    assert place_of(world, own) == Place("10.2.2.2", 6821, elsewhere=True)
    two = own.replace("x1", "y1").replace(
        "without: [join]",
        "provider: {kind: command, control_address: 10.3.3.3, create: [/bin/true], "
        "delete: [/bin/true], list: [/bin/true]}",
    )
    assert place_of(world, two) == Place(ALL, 6821)
    none = plain.replace("flavors: [small]}", "flavors: [small], without: [join]}", 1)
    assert place_of(world, none) is None
    assert decide_place(None, Site("10.1.1.1")) is None
    assert decide_place(world.membership, None) is None


def test_where_the_address_is_a_gateways_it_listens_at_all() -> None:
    (port,) = free_ports(1)
    with closing(listen(Place("192.0.2.1", port, elsewhere=True))):
        socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(OSError, match="Cannot assign"):
        listen(Place("192.0.2.1", port))
