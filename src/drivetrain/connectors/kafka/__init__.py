"""Kafka as a source and a sink."""
