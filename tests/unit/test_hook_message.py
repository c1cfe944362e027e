"""The hook writes JSON without the module of that name; it must be read as meant."""

import json
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from springtide import hook

VALUES = st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.text(), VALUES))
def test_a_message_is_read_as_it_was_meant(message: hook.Message) -> None:
    assert json.loads(hook.encode(message)) == message


def test_bytes_that_are_no_text_do_not_spoil_a_message() -> None:
    nodes = b"c[1-\xff]".decode(errors="surrogateescape")
    assert json.loads(hook.encode({"nodes": nodes})) == {"nodes": nodes}


def test_hardly_anything_is_imported() -> None:
    script = f"exec(open({hook.__file__!r}).read(), {{'__name__': 'hook'}})"
    assert _modules(script) - _modules("import os") <= {"_json", "_socket"}


def _modules(script: str) -> set[str]:
    command = [sys.executable, "-IS", "-c", f"{script}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True).stdout.split())
