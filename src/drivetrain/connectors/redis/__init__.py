"""Redis as a sink."""
