"""The replicated registry of the masters."""
