"""Aggregations, and states that Tasks keep for each key."""
