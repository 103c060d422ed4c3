"""Measures batches and limits them: what channels, connectors and queries share, without Spark's plans."""
