"""Metrics in OpenMetrics: the status that is there, under names that stay."""
