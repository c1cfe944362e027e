"""Runs a daemon and its API until it is told to stop, or until its cluster is destroyed."""

import asyncio
import resource
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from springtide.api.app import create_app
from springtide.api.entrance import Entrance
from springtide.api.log import configure_log
from springtide.api.peers import PeerProtocol
from springtide.compose import compose
from springtide.daemon import Daemon, DaemonError, sole
from springtide.detach import leave
from springtide.layout import Layout
from springtide.spec import Cluster

GRACE_S = 1
"""How long open requests (prologs, followers) may hold up a stop; the hook calls again."""
OPEN_FILES = 65_536
"""Prologs and followers each hold one. With many more, programs that close all start slowly."""


async def serve(spec: Cluster, file: Path | None = None) -> None:
    """The life of a daemon."""
    layout = Layout(spec.state)
    known = layout.is_ours
    async with sole(layout):
        configure_log(layout)
        allow_open_files()
        try:
            daemon = compose(spec, file)
        except DaemonError:
            if not known:
                remove_state(layout)  # nobody would find a cluster in it to destroy
            raise
        try:
            _keep_copy(layout, file)
            async with daemon.running():
                await _serve(daemon, layout.socket)
        finally:
            await daemon.parts.record.store.close()
            for provider in daemon.parts.distinct_providers():
                await provider.close()
        if daemon.destroyed.is_set():
            remove_state(layout, await asyncio.to_thread(leave, daemon.spec))


def _keep_copy(layout: Layout, file: Path | None) -> None:
    """If nobody did before: what a daemon alone has made must be found and destroyed too."""
    if file is not None and not layout.stored_spec.exists():
        layout.keep_spec(file.read_bytes())


def allow_open_files() -> None:
    """As many as we may have, or need; never fewer than before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def remove_state(layout: Layout, kept: Sequence[Path] = ()) -> None:
    """What is ours but for what must be kept, and the directory if nothing else is in it."""
    for path in layout.entries:
        _remove(path, kept)
    with suppress(OSError):
        layout.state.rmdir()


def _remove(path: Path, kept: Sequence[Path]) -> None:
    if path in kept:
        return
    if not path.is_dir() or path.is_symlink():
        with suppress(OSError):
            path.unlink()
    elif any(each.is_relative_to(path) for each in kept):
        for each in path.iterdir():
            _remove(each, kept)
    else:
        shutil.rmtree(path, ignore_errors=True)


async def _serve(daemon: Daemon, path: Path) -> None:
    listener = listen(path)
    config = uvicorn.Config(
        create_app(daemon),
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = uvicorn.Server(config)
    works = (_stop_when_destroyed(daemon, server), Entrance(daemon.joining).run())
    beside = [asyncio.create_task(work) for work in works]
    try:
        await server.serve(sockets=[listener])
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        with suppress(FileNotFoundError):
            path.unlink()


def listen(path: Path) -> socket.socket:
    """A socket that every local user can reach; what they may do is decided per peer."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise DaemonError(f"cannot listen on {path}: {error}") from error
    path.chmod(0o666)
    return listener


async def _stop_when_destroyed(daemon: Daemon, server: uvicorn.Server) -> None:
    """A destroyed cluster needs no daemon. Followers get a moment to read the end."""
    await daemon.destroyed.wait()
    await asyncio.sleep(GRACE_S)
    server.should_exit = True
