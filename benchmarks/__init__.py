"""What Drivetrain costs, beside its peers in the same run: `python -m benchmarks --help`."""
