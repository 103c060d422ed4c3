"""Columns and functions of Spark, recorded without Spark."""
