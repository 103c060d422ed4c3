"""Sources and sinks within the process: generated rows, memory, the console, Python functions."""
