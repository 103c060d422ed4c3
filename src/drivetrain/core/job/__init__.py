"""The job of an application: fragments, attempts, restarts, progress."""
