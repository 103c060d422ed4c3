"""Checkpoints of a whole application: the shells around `core.checkpoint.coordinator` and
`core.checkpoint.barriers`."""
