"""The agent as nodes fetch it: one file that Python runs, made of the modules in this folder.

The join service answers `GET /agent` with it. The same modules always make the same bytes.
"""

from functools import cache
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

PLACE = "/usr/local/lib/springtide/agent"
"""Where nodes have it."""
MODULES = (
    *("accounts", "agent", "console", "daemon", "entry", "features", "fit", "given", "second"),
    *("slurm", "system"),
)
_MAIN = "import sys\nfrom springtide.node.agent import main\nsys.exit(main(sys.argv[1:]))\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""What zip knows as the first day."""


@cache
def agent() -> bytes:
    """A zip file with a first line that names its interpreter."""
    texts = {f"springtide/node/{name}.py": _text(name) for name in MODULES}
    texts |= {"__main__.py": _MAIN, "springtide/__init__.py": "", "springtide/node/__init__.py": ""}
    made = BytesIO()
    made.write(b"#!/usr/bin/python3\n")
    with ZipFile(made, "w", ZIP_DEFLATED) as archive:
        for path, text in sorted(texts.items()):
            entry = ZipInfo(path, _LONG_AGO)
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, text)
    return made.getvalue()


def _text(module: str) -> str:
    return Path(__file__).with_name(f"{module}.py").read_text()
