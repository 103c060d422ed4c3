"""What the sinks of tables have in common, whatever the format of the tables."""
