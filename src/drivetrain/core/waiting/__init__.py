"""Timing wheel, timer and purgatory."""
