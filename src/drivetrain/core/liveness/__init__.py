"""Failure detection and supervision."""
