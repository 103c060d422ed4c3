"""The only layer that imports pyspark: fragments as queries, channels as data sources."""
