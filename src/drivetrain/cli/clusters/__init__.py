"""Commands that start a cluster, or ask one to run, stop or restart an application."""
