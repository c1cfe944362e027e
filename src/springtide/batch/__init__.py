"""Batch systems: one adapter each. The daemon makes one; all others use `ports.BatchSystem`."""
