"""Files as sources and sinks: text, CSV, JSON lines and Parquet."""
