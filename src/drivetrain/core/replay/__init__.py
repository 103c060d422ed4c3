"""Replay from a timestamp."""
