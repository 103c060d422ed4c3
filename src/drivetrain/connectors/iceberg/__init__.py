"""Tables of Iceberg as sinks."""
