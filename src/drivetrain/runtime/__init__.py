"""What runs without Spark, for every process of an application: durable files, locks, its directory."""
