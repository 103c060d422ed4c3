"""The parts of one fragment's query, as its owner passes them.

Called by `fragment_query` and its two kinds, `micro_batch_query` and `realtime_query`; made by
`spark.run.execution`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_engine import QueryEngine
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.prepare.trunk import Trunk


@dataclass(frozen=True)
class QueryParts:
    """A compiled fragment and what its query works with.

    `directory` is the fragment's own, `readers` are the channels that it reads, by id, `counts` those of
    this attempt, and `book` has the ends of channels in this process.
    """

    engine: QueryEngine
    plan: Plan
    fragment: Fragment
    trunk: Trunk
    branches: Branches
    directory: Path
    readers: Mapping[str, ChannelStore]
    counts: Counts
    book: FlowBook
