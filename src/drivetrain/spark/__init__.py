"""The only layer that imports pyspark: fragments as queries, channels as data sources.

Spark's Python workers import parts of this package, so the package itself imports nothing. What users call
(`run`, `start`, `savepoint`, `state`) is in `entry_points`: folders here have the names `run` and `state`.
"""
