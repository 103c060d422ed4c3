"""Compiles the processors of a fragment to DataFrames: stateless operators, stateful ones, Tasks."""
