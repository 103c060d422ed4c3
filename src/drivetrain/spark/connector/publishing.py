"""Publishes the prepared results of an application's sinks as one transaction of its checkpoints.

The problem: results of one transaction are in several sinks, and a reader of two of them wants both or
neither. Which process publishes is not known beforehand: one that feeds a sink, one that was started after a
crash, or two at once.

The design: sinks are grouped by the targets that can show them in one step: the sinks in one database, the
file sinks under one directory. The first process to publish gives each group its last batches. The target
stores, in the same step, how far it was published, so any other process finds it done.

Kafka's sink publishes batch by batch, and a new producer fences off the one before it; so only the process
that feeds such a sink commits its batches (`own`).

What if we die here: between two groups, one shows the transaction and the other not yet. It is published
again when the application continues, since the decision was persisted before. Users who need two sinks always
to agree put them into one group.

Invariants:

1. Nothing after `last` is shown.
2. When `publish_transaction` returns, everything up to `last` is shown, except in sinks that others own.

Called by the engine, at COMMIT and at a restore; `RollingSinks` is called between batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeGuard

from drivetrain.core.checkpoint.transaction import NO_TXID
from drivetrain.errors import DrivetrainError
from drivetrain.spark.connector.sink import (
    CommittingSinkWriter,
    PreparingSinkWriter,
    RollingSinkWriter,
    SinkWriter,
    TransactionalSinkWriter,
)

log = logging.getLogger(__name__)

_LOOK_S = 1.0


def is_transactional(sink: SinkWriter) -> TypeGuard[PreparingSinkWriter]:
    """Whether batches of a sink can wait until a transaction is committed."""
    return isinstance(sink, TransactionalSinkWriter | CommittingSinkWriter)


def publish_transaction(
    sinks: Mapping[str, SinkWriter], txid: int, last: Mapping[str, int], *, own: Collection[str] | None = None
) -> dict[str, int]:
    """Publish what the sinks have prepared up to their last batches; returns the rows shown now, by sink id.

    `sinks` are all of the application, by id, opened in this process; `last` is by sink id too, and a sink
    that is not in it shows nothing. `own` are the sinks that this process feeds (None: all of them). A second
    call shows nothing more. Raises the target's errors; results that were not shown keep waiting then.
    """
    groups: dict[str, dict[str, TransactionalSinkWriter]] = {}
    shown: dict[str, int] = {}
    for id, sink in sinks.items():
        if isinstance(sink, TransactionalSinkWriter):
            groups.setdefault(sink.group, {})[id] = sink
        elif isinstance(sink, CommittingSinkWriter) and id in last and (own is None or id in own):
            shown[id] = sum(sink.commit(batch) for batch in sink.prepared() if batch <= last[id])
    for group in groups.values():
        if any(id in last for id in group):
            shown.update(next(iter(group.values())).publish(txid, last, group))
    return shown


def abort_after(sink: SinkWriter, last: int | None) -> None:
    """Drop what a sink has prepared after its batch `last` (None: all of it)."""
    if is_transactional(sink):
        for batch in sink.prepared():
            if last is None or batch > last:
                sink.abort(batch)


def publish_prepared(sinks: Mapping[str, SinkWriter]) -> None:
    """Show everything prepared: the life of the application ends, and its results are not computed again."""
    last = {id: sink.prepared() for id, sink in sinks.items() if is_transactional(sink)}
    publish_transaction(sinks, NO_TXID, {id: max(batches) for id, batches in last.items() if batches})


def finish_rolling(sinks: Iterable[SinkWriter]) -> None:
    """Show everything that waits in sinks that get no more batches."""
    for sink in sinks:
        if isinstance(sink, RollingSinkWriter):
            sink.roll(ends=True)


class RollingSinks:
    """The sinks of one fragment that may collect several published batches before they show them.

    `released` is the newest batch that Spark does not run again; None when that is true of all that wait.
    """

    def __init__(self, sinks: Iterable[SinkWriter], released: Callable[[], int | None]) -> None:
        self._sinks = [sink for sink in sinks if isinstance(sink, RollingSinkWriter)]
        self._released = released
        self._looked_s = time.monotonic()

    def look(self) -> None:
        """Show the batches that have waited long enough, if it is time to look."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            for sink in self._sinks:
                sink.roll(self._released())

    def finish(self) -> None:
        """Show everything: no batch follows."""
        for sink in self._sinks:
            sink.roll(ends=True)

    def pause(self) -> None:
        """Show all collected batches before the run stops. Those that cannot be shown now wait for the next
        run."""
        try:
            for sink in self._sinks:
                sink.roll(self._released(), ends=True)
        except DrivetrainError as error:
            log.warning("the newest results are shown when the application continues: %s", error)
