"""The only layer that imports pyspark: fragments as queries, channels as data sources.

Spark's Python workers import parts of this package, so the package itself imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drivetrain.api.application import Application
    from drivetrain.config import Config
    from drivetrain.core.progress import RunListener, RunResult


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
) -> RunResult:
    """Run an application embedded; see `drivetrain.spark.embedded.run`."""
    from drivetrain.spark import embedded

    return embedded.run(application, config, listener, fresh=fresh)
