"""The channels that a fragment reads, as streams.

Problem: one channel may be read as messages, as some columns of them, or as partial results, and every stream
of it must have the same offsets and limits.

Called by `fragment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.config.catalog import channel as channel_keys
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.plan.plan import Fragment
from drivetrain.spark.channel.source import read_channel, read_partial_results
from drivetrain.spark.connector.reduction import Reduction
from drivetrain.spark.prepare.compile_context import CompileContext


class ChannelStreams:
    """Reads the channels of `fragment`.

    `subscriber` and `released` are options of the reader (`ChannelSource`), empty in a query that runs a
    batch again; `limit_path` is where the share of the next batch is.
    """

    def __init__(
        self,
        context: CompileContext,
        fragment: Fragment,
        limit_path: str,
        subscriber: Mapping[str, str],
        released: Mapping[str, str],
    ) -> None:
        self._context: Final = context
        self._fragment: Final = fragment
        self._limit_path: Final = limit_path
        self._subscriber: Final = subscriber
        self._released: Final = released

    def messages(self, id: str, columns: StructType | None = None) -> DataFrame:
        """The messages of a channel, with these of their columns; None: all."""
        of = self._context.schemas[id] if columns is None else columns
        return read_channel(self._context.spark, self._context.rundir.channel(id), of, **self._options())

    def partial_results(self, id: str, by: Reduction) -> DataFrame:
        """Partial results of a channel's messages."""
        place = self._context.spark, self._context.rundir.channel(id), self._context.schemas[id]
        return read_partial_results(*place, by, **self._options())

    def _options(self) -> dict[str, Any]:
        return {
            **self._subscriber,
            **self._released,
            **self._pace(),
            "maxBytes": self._context.config[run_keys.MAX_BATCH_BYTES],
            "limit": self._limit_path,
            "tasks": int(self._context.spark.conf.get("spark.sql.shuffle.partitions", "2") or 2),
        }

    def _pace(self) -> dict[str, int]:
        """How often batches begin, if the stateful processor gathers messages for some time."""
        stateful = (
            self._context.plan.graph.nodes[self._fragment.stateful] if self._fragment.stateful else None
        )
        interval_ms = None if stateful is None else stateful.operation.interval_ms
        if not interval_ms or not self._subscriber:
            return {}
        config = self._context.config
        kept, age_ms = config[channel_keys.MAX_BYTES], config[channel_keys.MAX_AGE]
        return {
            "intervalMs": min(interval_ms, age_ms // 2) if age_ms else interval_ms,
            "windowBatches": config[channel_keys.WINDOW_BATCHES],
            "windowRows": config[channel_keys.WINDOW_MESSAGES],
            "windowBytes": min(filter(None, (config[channel_keys.WINDOW_BYTES], kept))),
        }
