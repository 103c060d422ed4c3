"""Checkpoints of a whole application: the shells around `core.checkpoint` and `core.barriers`."""
