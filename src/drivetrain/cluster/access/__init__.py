"""Access control in a cluster: names of processes, keys that prove them, and what each may send to which."""
