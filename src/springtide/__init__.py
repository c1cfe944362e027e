"""Springtide makes a batch cluster rise with its queue and fall when it empties."""

__version__ = "0.1.0"
