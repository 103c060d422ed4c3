"""The workers of the leading master, and their slots."""
