"""The command `tide`: a client of the daemon's API. Nothing imports it but its script.

`main` has the commands' names, one file each has a family of commands; `client` talks to the
daemon, `place` finds it, `follow` watches long work, `output` prints for people and programs.
What a command needs only sometimes (pydantic, rich, uvicorn) is imported when it is needed.
"""
