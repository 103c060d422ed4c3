"""The log of a channel, its lag, its retention and its losses."""
