"""Parameters that stay text. `main` makes all commands with these classes.

typer converts parameters with pydantic, whose import takes longer than asking the daemon. Ours
are text or switches and need no conversion; commands read numbers out of text themselves. A
typer that knows nothing of the attribute set here converts text to text, to the same effect.
"""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class AsItIs:
    """Stands where typer keeps a parameter's conversion."""

    def coerce(self, value: Any, param: object, ctx: object) -> Any:
        return value


class TextParameters:
    """For commands and groups of typer."""

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            parameter._runtime_param = AsItIs()
        return parameters


class Command(TextParameters, TyperCommand):
    """One command."""


class Group(TextParameters, TyperGroup):
    """Commands below a word, such as `user`."""
