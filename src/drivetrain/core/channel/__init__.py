"""The log of a channel and what follows from it."""
