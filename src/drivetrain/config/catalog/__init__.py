"""Every configuration key, by topic."""

from drivetrain.config.catalog import actor, run, spark
from drivetrain.config.catalog.collection import collect_keys

ALL_KEYS = collect_keys(spark, run, actor)

__all__ = ["ALL_KEYS", "actor", "run", "spark"]
