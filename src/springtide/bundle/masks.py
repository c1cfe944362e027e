"""Takes secrets out of the parts of a bundle: by name and shape, and by their value. Pure."""

from base64 import b64encode
from binascii import hexlify
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote_from_bytes

from springtide.bundle.lines import MASK, mask_lines
from springtide.bundle.parts import Part
from springtide.bundle.trees import mask_json, mask_json_lines

SHORTEST = 4
"""A shorter value is no secret, and would take half the text with it."""
WINDOW, STEP = 16, 24
"""So many bytes of a key are looked for, at every so many: a part of it is as bad as all."""
LEFT_OUT = b"left out: "
BROKEN = 12
"""Encoded texts of so many letters are looked for over the ends of lines."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that must not be in a bundle."""

    what: str
    """What people call it, such as `munge key`."""
    value: bytes = field(repr=False)
    binary: bool = False
    """No text: where any part of it is found, nothing around it is kept."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A text without its secrets."""

    content: bytes
    found: Counter[str]
    """What was taken out, and how often."""

    @property
    def is_left_out(self) -> bool:
        """Whether nothing is left but words that say so."""
        return self.content.startswith(LEFT_OUT)


@dataclass(frozen=True, slots=True)
class KeyParts:
    """What a key is found by."""

    raw: tuple[bytes, ...]
    encoded: tuple[bytes, ...]
    """Looked for without regard to white space: encoded keys are often broken into lines."""


class Masks:
    """All secrets that are known, in all forms that they may have in a text."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        kept = {one.value: one for one in secrets if len(one.value) >= SHORTEST}
        ordered = sorted(kept.values(), key=lambda one: -len(one.value))
        self._keys = [(one.what, parts_of(one.value)) for one in ordered if one.binary]
        texts = [one for one in ordered if not one.binary]
        known = [(one.what, form) for one in texts for form in forms(one.value)]
        self._texts = sorted(known, key=lambda each: -len(each[1]))
        self._broken = [
            (one.what, form)
            for one in texts
            for form in encoded_forms(one.value)
            if len(form) >= BROKEN
        ]

    def clean(self, part: Part) -> Masked:
        """By names and shapes as its kind allows, and without values that are known."""
        mask = mask_json if part.name.endswith(".json") else mask_json_lines
        if not part.name.endswith((".json", ".jsonl")):
            return self.apply(part.content)
        found: Counter[str] = Counter()
        first = self.known(part.content)  # in one piece yet: long texts will be cut
        try:
            content = mask(first.content, found)
        except ValueError:  # a number was masked, or nothing was left
            if first.found:
                return first if first.is_left_out else _left_out(*first.found)
            raise
        last = self.known(content)
        return Masked(last.content, +(first.found + last.found + found))

    def apply(self, content: bytes) -> Masked:
        """For any text: known values first, so that what others call them does not matter."""
        first = self.known(content)
        found = first.found.copy()
        return Masked(mask_lines(first.content, found), +found)

    def known(self, content: bytes) -> Masked:
        """Without values that are known; nothing is left if there is a part of a key."""
        dense = _dense(content)
        for what, parts in self._keys:
            if any(part in content for part in parts.raw) or any(e in dense for e in parts.encoded):
                return _left_out(what)
        found: Counter[str] = Counter()
        for what, form in self._texts:
            if times := content.count(form):
                found[what] += times
                content = content.replace(form, MASK)
        dense = _dense(content) if found else dense
        for what, form in self._broken:
            if form in dense:
                return _left_out(what)
        return Masked(content, found)


def _left_out(*what: str) -> Masked:
    return Masked(LEFT_OUT + f"{', '.join(what)} was in it\n".encode(), Counter(what))


def _dense(content: bytes) -> bytes:
    """Without what stands between the lines of something encoded, also in JSON."""
    return content.replace(b"\\n", b"").translate(None, b" \t\r\n:")


def forms(value: bytes) -> Iterator[bytes]:
    """How a text may be written: as it is, in base64, in hex, in an address, in JSON."""
    yield value
    yield from encoded_forms(value)
    if (quoted := quote_from_bytes(value, safe="").encode()) != value:
        yield quoted
    if (escaped := value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')) != value:
        yield escaped


def encoded_forms(value: bytes) -> list[bytes]:
    return list(dict.fromkeys((*_base64(value), *_hex(value)))) if len(value) >= 8 else []


def parts_of(key: bytes) -> KeyParts:
    starts = range(0, max(len(key) - WINDOW, 0) + 1, STEP)
    raw = tuple(key[start : start + WINDOW] for start in starts)
    encoded = [form for part in raw for form in (*_hex(part), *_base64(part))]
    return KeyParts(raw, tuple(dict.fromkeys(encoded)))


def _hex(value: bytes) -> tuple[bytes, bytes]:
    return hexlify(value), hexlify(value).upper()


def _base64(value: bytes) -> Iterator[bytes]:
    """Wherever it begins in what was encoded; letters that its neighbours share are left away."""
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(value)) * 8 // 6
        encoded = b64encode(bytes(before) + value)[skipped:whole]
        yield encoded
        if (safe := encoded.translate(bytes.maketrans(b"+/", b"-_"))) != encoded:
            yield safe
