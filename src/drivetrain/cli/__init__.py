"""The command line: the only place that knows every adapter."""
