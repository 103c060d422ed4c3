"""A plugin of pytest for tests of applications: it closes their runs, and all runs use one Spark session.

A project loads it in the `conftest.py` at its root:

    pytest_plugins = ["drivetrain.testing.pytest_plugin"]

Spark starts with the first run, and stays until the tests are over.

Called by pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from drivetrain.testing.test_run import TestRun


@pytest.fixture(scope="session")
def drivetrain_config() -> dict[str, str]:
    """The configuration keys of all runs; override this fixture in `conftest.py` to set keys."""
    return {}


@pytest.fixture
def start_run(drivetrain_config: dict[str, str]) -> Iterator[Callable[..., TestRun]]:
    """Starts runs that are closed at the end of the test: `run = start_run(app)`, as `TestRun(app)`.

    Fails the test if a run never reached a point at which it was supposed to die.
    """
    with ExitStack() as runs:

        def start(app: Any, *args: Any, **options: Any) -> TestRun:
            options["config"] = {**drivetrain_config, **(options.get("config") or {})}
            return runs.enter_context(TestRun(app, *args, **options))

        yield start
