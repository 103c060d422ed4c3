"""The host of an application: an engine for its queries, and drivers of their parts in checkpoints.

Problem: a simulation needs the whole of a run, except for the engine and the threads.

Design: the caller that prepares an application may pass a different host; the default is Spark and threads.

Called by `execution`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain.spark.batch.spark_engine import SparkEngine
from drivetrain.spark.checkpoints.participation_thread import ParticipationThread
from drivetrain.spark.prepare.code_shipping import ship
from drivetrain.spark.session.kafka_connector import uses_kafka
from drivetrain.spark.session.spark_session import session

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan
    from drivetrain.spark.batch.query_engine import QueryEngine
    from drivetrain.spark.batch.query_part import CheckpointPart
    from drivetrain.spark.checkpoints.participation import Participation


@dataclass(frozen=True)
class Host:
    """The environment of an application, chosen by its caller.

    `engine` makes its engine, once; `part` makes a query's part in checkpoints.
    """

    engine: Callable[[Plan, Config], QueryEngine]
    part: Callable[[Participation], CheckpointPart] = ParticipationThread


def _spark(plan: Plan, config: Config) -> QueryEngine:
    spark = session(config, plan.application, kafka=uses_kafka(plan))
    ship(plan.graph)
    return SparkEngine(spark)


SPARK: Final = Host(_spark)
"""Spark, and a thread for each fragment that takes part in checkpoints."""
