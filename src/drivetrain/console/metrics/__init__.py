"""Metrics in the OpenMetrics format: the status of the cluster, under stable names."""
