"""The command `tide`: a client of the daemon's API. Nothing imports it but its script.

`main` has the commands' names, one file each has a family of commands; `client` talks to the
daemon, `place` finds it, `foresight` tells what would happen, `consent` asks, `course` watches
operations by their steps, `output` prints for people and programs; `changing` is the way from
one cluster file to another.
What a command needs only sometimes (pydantic, rich, uvicorn) is imported when it is needed.
"""
