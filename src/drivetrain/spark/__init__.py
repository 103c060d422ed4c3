"""The only layer that imports pyspark: fragments as queries, channels as data sources.

Spark's Python workers import parts of this package, so the package itself imports nothing. Users' functions
(`run`, `start`, `savepoint`, `state`) are in `entry_points`: folders here have the names `run` and `state`.
"""
