"""Access control in a cluster: names of processes, keys that prove them, and the messages each may send."""
