"""Nodes that programs of the site switch on and off: IPMI, Wake-on-LAN, a command by ssh, anything.

Such machines cannot carry a tag. So which of them are on for this cluster, and in which
generation, is kept in files of ours (`marks`); a machine that somebody else switched on is left
alone.
"""

from pathlib import Path

from springtide.layout import Layout
from springtide.ports import Provider
from springtide.providers.cloud import Catalog, Cloud
from springtide.providers.command.driver import CommandDriver
from springtide.providers.command.marks import Marks
from springtide.providers.programs.notes import Note, Notes
from springtide.spec.clouds import Command


def provider(wanted: Command, catalog: Catalog, state: Path, note: Note) -> Provider:
    notes = Notes(note)
    marks = Marks(Layout(state).command)
    return Cloud(CommandDriver(wanted, catalog, marks, notes), after=notes.keep)
