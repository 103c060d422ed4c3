"""A kit for testing applications: run one on rows of a test, advance the clock, look at the results.

For authors of connectors: `check_sink` and `check_source` check what the engine relies on.
"""

from drivetrain.testing.sink_checks import check_sink
from drivetrain.testing.source_checks import check_source
from drivetrain.testing.test_run import TestRun, run_app

__all__ = ["TestRun", "check_sink", "check_source", "run_app"]
