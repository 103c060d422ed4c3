"""Who may do what at the console."""
