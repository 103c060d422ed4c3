"""Who may do what in a cluster: names of processes, the keys that prove them, what each may send to which."""
