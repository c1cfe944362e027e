"""Which names say that what they name is a secret. Pure."""

import re
from functools import lru_cache

_SECRET = re.compile(
    r"(?i)passw|pass[_.-]?phrase|passcode|pass(?:$|[_.-])|pwd|(?:^|[_.-])pw(?:$|[_.-])|secret|token"
    r"|authtok|authorization$|cookie$|jwt|(?:api|access|private|storage|account|shared|master|signing"
    r"|encryption|auth|app|application|client|service|subscription)[_.-]?key"
)
_VARIABLE = re.compile(r"[A-Z0-9_]{1,100}_KEY(?:_[A-Z0-9_]{0,100})?")
_ELSEWHERE = re.compile(r"(?i).{0,128}(?:file|path|dir|directory|type|public_?key)|PWD|OLDPWD")
"""Names of places where secrets are, and of what is public."""
LONGEST = 128


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """`password`, `clientSecret`, `StoragePass`, `--token`, `AZURE_STORAGE_KEY`, and the like."""
    word = name[:LONGEST].strip("-._")
    if _ELSEWHERE.fullmatch(word) and word not in ("pwd", "Pwd"):
        return False
    return bool(_SECRET.search(word) or _VARIABLE.fullmatch(word))


def is_flag(word: str) -> bool:
    """`--password` of a command line, whose value is the next word."""
    return word.startswith("-") and "=" not in word and is_secret(word)
