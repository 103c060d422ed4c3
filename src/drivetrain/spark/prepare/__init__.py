"""From a plan to Spark queries that can start: trunks, stored sources, replay filters."""
