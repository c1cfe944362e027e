"""Serves one WSGI application of OpenStack: one process, a few threads.

Run by the servers' Python as `serve.py MODULE PORT [OPTION...]`.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

import importlib
import sys


def main() -> None:
    """Servers read the command line while they are imported: by then it must be their own."""
    module, port, *options = sys.argv[1:]
    sys.argv = [module, *options]
    application = importlib.import_module(module).application
    from waitress import serve

    serve(application, host="127.0.0.1", port=int(port), threads=8)


if __name__ == "__main__":
    main()
