"""Repairs of lost messages, from their producer's checkpoint."""
