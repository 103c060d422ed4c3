"""Every configuration key, by topic."""

from drivetrain.config.catalog import actor, channel, run, spark
from drivetrain.config.catalog.collection import collect_keys

ALL_KEYS = collect_keys(spark, run, channel, actor)

__all__ = ["ALL_KEYS", "actor", "channel", "run", "spark"]
