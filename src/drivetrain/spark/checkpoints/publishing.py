"""Publishing what an application's sinks have prepared, as one transaction of its checkpoints.

The problem: results of one transaction lie in several sinks, and somebody who reads two of them wants both or
neither. Who may publish (a process that feeds one of them, one that was started after a crash, two at once)
is not known beforehand.

The design: sinks are sorted into groups by what can show them in one step: the sinks in one database, the
file sinks under one directory. Each group is told once what to show, by whoever comes first; the target
itself remembers, in the same step, how far it has been shown, so that everybody else finds it done.

Kafka's sink publishes batch by batch, and a producer that begins shuts out the one before it; so only the
process that feeds such a sink commits its batches (`own`).

What if we die here: between two groups, one shows the transaction and the other not yet. It is published
again when the application goes on, since the decision was persisted before. Who needs two sinks never to be
apart puts them into one group.

Invariants:

1. Nothing behind `last` is shown.
2. When `publish_transaction` returns, everything up to `last` is shown, but for sinks that others own.

Called by the engine, at COMMIT and at a restore; `Rolling` between batches.
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
    """Show what the sinks have prepared up to their last batches; the rows that were shown now, by sink id.

    `sinks` are all of the application, by id, opened in this process; `last` is by sink id too, and a sink
    that is not in it shows nothing. `own` are the sinks that this process feeds (None: all of them). Doing it
    again shows nothing more. Raises what a target refuses; whatever was not shown still waits then.
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
    """Forget what a sink has prepared behind its batch `last` (None: all of it)."""
    if is_transactional(sink):
        for batch in sink.prepared():
            if last is None or batch > last:
                sink.abort(batch)


def publish_prepared(sinks: Mapping[str, SinkWriter]) -> None:
    """Show everything that is prepared: an application's life ends whose results are not made again."""
    last = {id: sink.prepared() for id, sink in sinks.items() if is_transactional(sink)}
    publish_transaction(sinks, NO_TXID, {id: max(batches) for id, batches in last.items() if batches})


class RollingSinks:
    """The sinks of one fragment whose batches may wait after they were published.

    `released` is the newest batch that Spark does not run again; None when all that wait are such.
    """

    def __init__(self, sinks: Iterable[SinkWriter], released: Callable[[], int | None]) -> None:
        self._sinks = [sink for sink in sinks if isinstance(sink, RollingSinkWriter)]
        self._released = released
        self._looked_s = time.monotonic()

    def look(self) -> None:
        """Show what has waited long enough, if it is time to look."""
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
        """Show what there is before the run stops. What cannot be shown now waits for the next run."""
        try:
            for sink in self._sinks:
                sink.roll(self._released(), ends=True)
        except DrivetrainError as error:
            log.warning("the newest results are shown when the application goes on: %s", error)
