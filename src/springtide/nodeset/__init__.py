"""Hostlists in Slurm's syntax: `expand` turns text into node names, `fold` turns names into text.

Slurm hands us nodes as hostlists and takes them back as hostlists, one call for many nodes.
Every layer above uses this package; it does no I/O and needs only the standard library.

The text means what it means to `scontrol show hostnames`. Where Slurm guesses or garbles
(`a[1` becomes `a]`, `a[1-]` becomes `a1`, `a[1, 2]` becomes `a1 a02`, and `a[1-010]` loses its
padding) the text is refused.
Three differences are deliberate:

- a suffix after a bracket (`n[1-2]-ib`) is understood here, but Slurm 22.05 refuses it, so
  `fold` never writes one;
- three or more brackets count with the rightmost fastest; Slurm gives the same names but
  turns its first bracket before its second;
- names are separated by commas, with spaces around them if you like. Slurm also takes bare
  whitespace and skips empty elements, which hides slips of the hand.
"""

from springtide.nodeset.expanding import MAX_NAMES, MAX_TEXT, expand
from springtide.nodeset.folding import fold
from springtide.nodeset.names import (
    MAX_DIGITS,
    MAX_LABEL,
    MAX_NAME,
    MAX_RANGE,
    NodeNameError,
    natural_key,
    sort,
    validate_name,
)

__all__ = [
    "MAX_DIGITS",
    "MAX_LABEL",
    "MAX_NAME",
    "MAX_NAMES",
    "MAX_RANGE",
    "MAX_TEXT",
    "NodeNameError",
    "expand",
    "fold",
    "natural_key",
    "sort",
    "validate_name",
]
