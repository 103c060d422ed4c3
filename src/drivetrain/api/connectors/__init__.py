"""Declarations of sources and sinks, each for one system; `sources` and `sinks` make them."""
