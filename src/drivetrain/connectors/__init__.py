"""Sources and sinks of other systems."""
