"""The command `tide`: names and order of its commands. `app` is the script's entry."""

from typing import Annotated

import typer

from springtide import __version__
from springtide.cli import output
from springtide.cli.apply import apply
from springtide.cli.attach import attach
from springtide.cli.bundle import bundle
from springtide.cli.check import check
from springtide.cli.daemon import daemon
from springtide.cli.deploy import deploy
from springtide.cli.destroy import destroy
from springtide.cli.drain import drain, undrain
from springtide.cli.endings import Commands
from springtide.cli.events import events
from springtide.cli.finish import finish
from springtide.cli.flavors import flavors
from springtide.cli.holds import holds
from springtide.cli.image import image
from springtide.cli.importing import import_
from springtide.cli.init import init
from springtide.cli.kill import kill
from springtide.cli.log import log
from springtide.cli.maintenance import maintenance
from springtide.cli.nodes import nodes
from springtide.cli.operations import operations
from springtide.cli.place import BEFORE_COMMAND, Choice, ClusterOption, StateOption
from springtide.cli.plan import plan
from springtide.cli.power import resume, suspend
from springtide.cli.rebuild import rebuild
from springtide.cli.resize import resize
from springtide.cli.schedule import schedule
from springtide.cli.status import status
from springtide.cli.stop import start, stop
from springtide.cli.text import Command
from springtide.cli.timeline import timeline
from springtide.cli.update import update
from springtide.cli.users import user
from springtide.cli.why import why

app = typer.Typer(
    name="tide",
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _put_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"springtide {__version__}")
        raise typer.Exit


@app.callback()
def tide(
    cluster: ClusterOption = None,
    state: StateOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_put_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """A batch cluster that rises with its queue and falls when it empties.

    Exit codes: 0 done, 1 failed, 2 wrong usage or file, 3 partly done, 4 daemon not reachable.
    """
    BEFORE_COMMAND.set(Choice(cluster, state))
    output.spare_old_terminals()


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running.")] = False,
) -> None:
    """Watch a real cluster rise and fall.

    It grows from nothing, runs jobs, and shrinks to nothing.
    """
    from springtide.cli.demo import run

    raise typer.Exit(run(keep))


for command in (
    *(status, nodes, operations, events, why, log, timeline, bundle, plan, resume, suspend),
    *(drain, undrain),
    *(apply, resize, rebuild, update, stop, start, kill, maintenance, holds),
    *(init, flavors, check, deploy, finish, attach, destroy, daemon, demo),
):
    app.command(cls=Command)(command)
app.command("import", cls=Command)(import_)
app.add_typer(user)
app.add_typer(image)
app.add_typer(schedule)

if __name__ == "__main__":
    app()
