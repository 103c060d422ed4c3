"""The work of one batch of a fragment."""
