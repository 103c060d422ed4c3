"""The checkpoint of a fragment with another state: an empty one, or one in other partitions."""
