"""The parts of every process that need no Spark: durable files, locks, the state directory."""
