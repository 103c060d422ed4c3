"""The runs of this machine: what `drivetrain run` runs, seen through state directories."""
