"""Flow control between the fragments of a process."""
