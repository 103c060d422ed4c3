"""Checkpoint transactions over all fragments."""
