"""The current state of the cluster: queried while any page watches it, and sent to every page that does."""
