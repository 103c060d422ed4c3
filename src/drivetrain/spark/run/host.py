"""What an application runs on: an engine for its queries, and what moves its parts on.

Problem: the engine and the threads are the only things of a run that a simulation cannot have.

Design: whoever prepares an application may give others; who gives none gets Spark and threads.

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
    """What an application is given by whoever runs it.

    `engine` makes its engine, once; `part` makes what takes part in checkpoints for a query.
    """

    engine: Callable[[Plan, Config], QueryEngine]
    part: Callable[[Participation], CheckpointPart] = ParticipationThread


def _spark(plan: Plan, config: Config) -> QueryEngine:
    spark = session(config, plan.application, kafka=uses_kafka(plan))
    ship(plan.graph)
    return SparkEngine(spark)


SPARK: Final = Host(_spark)
"""Spark, and a thread for each fragment that takes part in checkpoints."""
