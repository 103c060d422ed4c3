"""A kit for testing applications: run one on rows of a test, advance the clock, look at what came of it."""

from drivetrain.testing.test_run import TestRun, run_app

__all__ = ["TestRun", "run_app"]
