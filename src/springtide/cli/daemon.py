"""`tide daemon`: one cluster's daemon in the foreground, until it is told to stop."""

import signal
from types import FrameType
from typing import NoReturn

from springtide.cli.check import read_spec
from springtide.cli.endings import Complaint, Exit
from springtide.cli.place import Choice, ClusterOption, FileArgument, StateOption, spec_file


def daemon(
    file: FileArgument = None, cluster: ClusterOption = None, state: StateOption = None
) -> None:
    """Serve a cluster in the foreground.

    From its file, or (with --cluster or --state) from the copy of its last deploy.
    """
    if file is not None and (cluster is not None or state is not None):
        raise Complaint("give a FILE, or --cluster or --state, not both", Exit.WRONG)
    path = spec_file(file, Choice(cluster, state))
    spec = read_spec(path)

    import asyncio

    from springtide.api.server import serve
    from springtide.cli import controlled
    from springtide.daemon import DaemonError, WrongFile
    from springtide.ports import StoreError

    controlled.refuse_outside(spec)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        asyncio.run(serve(spec, path))
    except WrongFile as error:
        raise Complaint(str(error), Exit.WRONG) from None
    except (DaemonError, StoreError) as error:
        raise Complaint(str(error)) from None


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """End in good order. The server stops by itself first and then passes the signal on."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(Exit.DONE)
