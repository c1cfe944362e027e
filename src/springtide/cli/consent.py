"""Whether somebody really wants it: the question before whatever cannot be taken back."""

import sys
from dataclasses import dataclass

import typer

from springtide.cli import output
from springtide.cli.endings import Complaint, Exit

NO_CHANGE = "nothing was changed"


@dataclass(frozen=True, slots=True)
class Consent:
    """What was said of it before anybody asked: --yes and --yes-really NAME."""

    yes: bool = False
    really: str | None = None

    def require(self, cluster: str, what: str, *, protected: bool = False, mind: str = "") -> None:
        """Go on only with a yes; a protected cluster must be named for it.

        `what` ends "type yes to …"; `mind` is what to bear in mind before.
        """
        if self.really not in (None, cluster):
            raise Complaint(f"--yes-really names {self.really}, this is {cluster}", Exit.WRONG)
        if self.really == cluster or (self.yes and not protected):
            return
        answer, option = (cluster, f"--yes-really {cluster}") if protected else ("yes", "--yes")
        before = f"{cluster} is protected; " if protected else ""
        if not sys.stdin.isatty():
            raise Complaint(f"{before}nobody can be asked here: say {option}", Exit.WRONG)
        if _typed(f"{mind}{before}type {answer} to {what}") != answer:
            raise Complaint(NO_CHANGE)


def _typed(question: str) -> str:
    """The answer; Ctrl-C and the end of input are none."""
    try:
        answer: str = typer.prompt(question, default="", show_default=False, err=True)
    except typer.Abort:
        output.note(f"\ntide: {NO_CHANGE}")
        raise typer.Exit(Exit.INTERRUPTED) from None
    return answer
