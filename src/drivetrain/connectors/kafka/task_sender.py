"""Sends the rows of a batch from Spark's tasks, by the function with which Spark's own Kafka sink ends.

The problem: `df.write.format("kafka").save()` makes a second query around the rows. Spark analyses and
plans them again, describes that plan to its listeners, and takes each option by a call from Python. In a
small batch this takes longer than the messages do.

The design: what is left of all that in the tasks is one function of the connector, `KafkaWriter.write`. It is
called here with the query that the rows are. The settings are handed over once for each Java process. Spark
completes observations when a query of its own ends; here that is a call, after the job.

Invariants:

1. `send` returns only after every task has had the brokers' acknowledgements for all its messages.
2. After that, everything that was observed in the rows can be read.

Called by the Kafka sink. Source: `org.apache.spark.sql.kafka010.KafkaSourceProvider.createRelation`, which
saves a DataFrame with the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation

from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import observed
from drivetrain.spark.session.dataframe_calls import observing, static_method
from drivetrain.spark.session.java_classes import java_class

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView
    from pyspark.sql import DataFrame

_WRITER: Final = "org.apache.spark.sql.kafka010.KafkaWriter"
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
_OPTIONS: Final = "org.apache.spark.sql.catalyst.util.CaseInsensitiveMap"


class TaskSender:
    """Sends batches with the same `settings` (those of the connector, which begin with `kafka.`).

    `topic` is that of all messages; None if the rows have a column with that name.
    """

    def __init__(self, settings: Mapping[str, str], topic: str | None) -> None:
        self._settings = dict(settings)
        self._topic = topic
        self._made: tuple[JVMView, Any, Any] | None = None
        """The Java process that has the arguments, and these."""

    def send(self, df: DataFrame) -> int:
        """Send the rows of `df`, which have the connector's columns; returns their number.

        Raises the error of the job.
        """
        counted = Observation()
        rows = observing(df, counted, "count(1) AS n")
        settings, topic = self._arguments(rows.sparkSession._jvm)
        query = rows._jdf.queryExecution()
        with computing():
            static_method(_WRITER, "write")(query, settings, topic)
        rows.sparkSession._jsparkSession.observationManager().tryComplete(query)
        return observed(counted).get("n") or 0

    def _arguments(self, jvm: JVMView) -> tuple[Any, Any]:
        """The settings of a producer, and the topic, as Java has them."""
        if self._made is None or self._made[0] is not jvm:
            options = java_class(jvm, _OPTIONS)(jvm.PythonUtils.toScalaMap(self._settings))
            provider = getattr(java_class(jvm, _PROVIDER), "MODULE$")
            settings = provider.kafkaParamsForProducer(options)
            self._made = (jvm, settings, jvm.scala.Option.apply(self._topic))
        return self._made[1:]
