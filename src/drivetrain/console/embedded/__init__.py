"""The runs of this machine: the applications that `drivetrain run` runs, found by their state directories."""
