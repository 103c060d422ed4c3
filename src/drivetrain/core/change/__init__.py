"""Versions of an application's graph, and what differs between two of them."""
