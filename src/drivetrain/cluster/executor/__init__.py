"""The executor: a process that owns a Spark session and runs fragments for an application master."""
