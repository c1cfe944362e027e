"""The daemon's face: HTTP over a unix socket, for the CLI and the hook."""
