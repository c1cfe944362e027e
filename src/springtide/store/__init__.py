"""The record on disk. The daemon opens one store; steps and engine see only `ports.Store`."""

from springtide.store.sqlite import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "open_sqlite"]
