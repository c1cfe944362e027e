"""Takes secrets out of text, line by line, by what they are called and by their shape. Pure.

Where a name says that a secret follows, all up to the end of the line goes: rather too much than
a part too little. Each pattern looks at so many letters at most, and lines that are too long are
cut, so that no text takes long.
"""

import re
from collections import Counter

from springtide.bundle.names import is_secret

MASK = b"<masked>"
LONGEST = 16 << 10
"""Bytes of a line; the rest of a longer one is cut off."""
_HINT = re.compile(
    rb"(?i)pass|pwd|pw|secret|token|key|auth|jwt|cookie|://|eyj|akia|asia|\$|-----|bearer|[0-9]{9}\."
)
"""Of most lines nothing is to be taken, which this tells soon."""
_SHAPES = (
    ("a password in an address", rb"(?<=://)\S{1,512}(?=@)"),
    ("a join token", rb"(?<![\w.])[0-9]{9,12}\.[A-Za-z0-9_-]{22}(?![\w-])"),
    ("a cloud's access key", rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a bearer token", rb"(?<![\w-])eyJ[\w-]{10,}+\.[\w-]{10,}+\.[\w-]*+"),
    ("a bearer token", rb"(?i)(?<=\bbearer )[\w.~+/=-]{8,}+"),
    ("a password's hash", rb"\$(?:1|2[aby]|5|6|y|gy)\$[^\s:'\"]{8,}+"),
)
SHAPES = tuple((what, re.compile(pattern)) for what, pattern in _SHAPES)
_NAMED = re.compile(
    rb"(?<![\w.-])(?P<name>[\w.-]{1,128}+)[\\\"'$\])]{0,4}"
    rb"(?:\s{0,8}(?:[:=>]{1,3}|,(?=\s{0,4}[\\\"']))\s{0,64}|(?P<blank>[\s,]{1,64}|$))"
)
"""`password: x`, `"secret": "x"`, `('token', 'x')`, `StoragePass=x`, `--password x`."""
_NOTHING = re.compile(
    rb"(?i)(?:\\?[\"']?(?:null|none|true|false|~|<masked>|\{\}|\[\])\\?[\"']?|\"\"|''|\\\"\\\")"
    rb"(?=[,;}\])]|\s*$|\s[\w.-]{1,64}=)"
)
_SOCKET = re.compile(rb"/[\w./-]{1,200}\.socket(?:\.\d)?\s*$")
"""Slurm has the way to munge in a place for passwords."""
_BLOCK = re.compile(rb"[|>]?[+-]?[\[{(\"']?\s*$")
"""What follows is in the next lines."""
_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_ENCODED = re.compile(rb"[A-Za-z0-9+/=]*\s*")
_KEY = "a private key"


def mask_lines(content: bytes, found: Counter[str]) -> bytes:
    """The text without what is called a secret or looks like one; counts what was found."""
    if not _HINT.search(content) and len(content) <= LONGEST:
        return content
    return _Lines(found).all_of(content)


class _Lines:
    """One text, and what its last lines said of the next."""

    def __init__(self, found: Counter[str]) -> None:
        self._found = found
        self._done: list[bytes] = []
        self._in_key = self._after_flag = False
        self._what = ""
        self._block: int | None = None
        """How far the name is indented whose value is deeper in the lines that follow."""

    def all_of(self, content: bytes) -> bytes:
        for line in content.splitlines(keepends=True):
            body = line.rstrip(b"\r\n")
            end = line[len(body) :]
            if len(body) > LONGEST:
                body = body[:LONGEST] + b" <cut>"
            self._done.append(self._line(body) + end)
        return b"".join(self._done)

    def _line(self, body: bytes) -> bytes:
        if self._in_key:
            self._in_key = _END.search(body) is None
            return b""
        if self._after_flag or self._is_in_block(body):
            self._after_flag = False
            if (hidden := _hidden(body)) != body:
                self._found[self._what] += 1
            return hidden
        return self._key(body) if b"PRIVATE KEY" in body else self._words(body)

    def _is_in_block(self, body: bytes) -> bool:
        if self._block is None or not body.strip():
            return False
        indent = _indent(body)
        if indent > self._block or (indent == self._block and body.lstrip().startswith(b"- ")):
            return True
        self._block = None
        return False

    def _key(self, body: bytes) -> bytes:
        """Also one whose beginning was cut off, or that is in one line."""
        if begin := _BEGIN.search(body):
            self._found[_KEY] += 1
            self._in_key = _END.search(body, begin.end()) is None
            return self._words(body[: begin.start()]) + MASK
        if end := _END.search(body):
            self._found[_KEY] += 1
            while self._done and _ENCODED.fullmatch(self._done[-1]):
                self._done.pop()
            return MASK + self._words(body[end.end() :])
        return self._words(body)

    def _words(self, body: bytes) -> bytes:
        if not _HINT.search(body):
            return body
        for what, shape in SHAPES:
            body, times = shape.subn(MASK, body)
            self._found[what] += times
        for match in _NAMED.finditer(body):
            name = match["name"].decode(errors="replace")
            if not is_secret(name) or (match["blank"] is not None and not name.startswith("-")):
                continue
            rest = body[match.end() :]
            if _NOTHING.match(rest) or _SOCKET.match(rest):
                continue
            self._what = f"the value of {name.lstrip('-')}"
            if match["blank"] is None and _BLOCK.match(rest):
                self._block = _indent(body)
                return body
            if not rest:
                self._after_flag = True
                return body
            self._found[self._what] += 1
            return body[: match.end()] + MASK
        return body


def _indent(body: bytes) -> int:
    return len(body) - len(body.lstrip())


def _hidden(body: bytes) -> bytes:
    """A line that is a value, with the mark of a list that it may begin with."""
    start = _indent(body)
    mark = b"- " if body[start : start + 2] == b"- " else b""
    return body[:start] + mark + MASK
