"""Queries the states of an application: now, or as of an application time, whether or not it runs.

Problem: states are in Spark's checkpoint of a fragment, which a query may be writing to. A state query must
not disturb it, must not return half of a batch, and may not have the application's code.

Design: Spark's own state reader reads the newest batch that Spark has committed, and copies what it needs;
`state_description` gives the bytes their meaning. A persistent Task's states as of an earlier time follow
from those of that batch and the pictures since (`state_pictures`). If Spark or the Task deletes files while
they are being read, the query starts again, from the batch that is the newest then. If the pictures for a
time are deleted, the snapshot of the newest checkpoint is tried, too: the time for which it was recorded
can be queried for as long as it is the newest.

Invariants:

1. A result is the state after one committed batch, or exactly as of the requested time.
2. A time that cannot be answered exactly is refused, with the nearest ones that can.

Called by `drivetrain.state`, by the handle of `drivetrain.start`, and by the command `drivetrain state`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from drivetrain.api.durations import duration_text
from drivetrain.api.moments import moment_ms, moment_text
from drivetrain.api.operations import Aggregate, Fold, Process
from drivetrain.api.states.keyed_task import KeyedDeclaration
from drivetrain.core.clock.time_bounds import ended_by, known_clock
from drivetrain.core.state.paged_state import BUCKETS, bucket_of
from drivetrain.core.state.picture_times import PictureTimes
from drivetrain.core.state.state_keys import canonical_key, decoded_key, encoded_key
from drivetrain.core.state.state_rules import EVER, Span
from drivetrain.core.state.two_state import TwoStates
from drivetrain.errors import DrivetrainError, InputError, UnavailableError, UserError
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.state_pictures import Pictures
from drivetrain.spark.session.offset_log import committed
from drivetrain.spark.state.aggregate_state import aggregate_values, on_our_scale
from drivetrain.spark.state.available_times import clock_at, kept_times
from drivetrain.spark.state.keyed_state import keyed_values
from drivetrain.spark.state.state_description import noted_operator

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Moment: TypeAlias = "str | int | datetime"

CHECKPOINT: Final = "checkpoint"
"""Stands for the application time of the newest checkpoint."""

_ATTEMPTS: Final = 5


@dataclass(frozen=True)
class StateEntry:
    """One state: its key (several columns: a tuple), its value, and its window [start, end) in ms if any."""

    key: Any
    value: Any
    window: Span | None = None


class States:
    """The states of one processor; every query is answered from the newest committed batch.

    `files` are the application's checkpoints (None for a snapshot, which has none).

    >>> def spent(states: States) -> None:
    ...     print(states.clock_ms(), states.times())
    ...     print(states.get("ann"), states.get("ann", at="2024-01-01T12:00"))
    ...     print(states.items(at=states.checkpoint_ms()))
    """

    def __init__(
        self,
        fragment: Path,
        processor: str,
        spark: Callable[[], SparkSession],
        files: CheckpointFiles | None = None,
    ) -> None:
        self.processor: Final = processor
        self._fragment: Final = fragment
        self._spark: Final = spark
        self._files: Final = files
        self.operation: Final = noted_operator(fragment)

    def get(self, key: Any, at: Moment | None = None) -> Any:
        """The value of a key, now or as of an application time; None when it has none.

        With windows it is a mapping from (start_ms, end_ms) to the value; for a keyed Task, its states by
        name. `at` is ISO 8601 (UTC by default), a datetime, or ms since the epoch; or "checkpoint", see
        `checkpoint_ms`. Raises `UserError` for a time that is not available.
        """
        found = self._found(at, key)
        windows = {state.window: state.value for state in found if state.window is not None}
        return windows if windows else next((state.value for state in found), None)

    def items(self, at: Moment | None = None) -> list[StateEntry]:
        """All states, now or as of an application time, ordered by window and key; raises the errors of
        `get`."""
        return sorted(self._found(at), key=lambda s: (s.window or EVER, str(s.key)))

    def clock_ms(self) -> int | None:
        """The clock of the newest committed batch, in ms; None without one."""
        batch = committed(self._checkpoint)
        return None if batch < 0 else known_clock(clock_at(self._fragment, batch))

    def times(self) -> PictureTimes | None:
        """The times that can be queried without a checkpoint; None when no pictures are taken."""
        return kept_times(self._fragment, self.operation, committed(self._checkpoint))

    def checkpoint_ms(self) -> int:
        """The application time of the newest checkpoint: all processors with pictures have it.

        Raises `UserError` when there is no checkpoint, or it has no such time.
        """
        known = None if self._files is None else self._files.transaction()
        record = None if known is None else known.record
        if record is None:
            raise UserError(
                "the application has no checkpoint",
                where="at",
                got=repr(CHECKPOINT),
                remedy="run it with checkpoint.mode=on, or ask as of a time",
            )
        if record.as_of_ms is None:
            raise UserError(
                f"checkpoint {record.txid} has no application time",
                where="at",
                expected='a time that all persistent Tasks with State(..., as_of="...") have a picture of',
                got=repr(CHECKPOINT),
                remedy="ask as of a time; declare steps that are multiples of each other",
            )
        return record.as_of_ms

    # -- reading -----------------------------------------------------------------------------------

    @property
    def _checkpoint(self) -> Path:
        return self._fragment / "checkpoint"

    def _found(self, at: Moment | None, *keys: Any) -> list[StateEntry]:
        if at is None:
            return self._newest(None, *keys)
        at_ms = self.checkpoint_ms() if at == CHECKPOINT else _moment(at)
        times = self.times()
        if times is None:
            raise UserError(
                f"{self.processor} can only be queried for its current states",
                got=f"at={moment_text(at_ms)}",
                remedy='a persistent Task with State(..., as_of="1 h") can be queried as of every hour',
            )
        if at_ms not in times:
            with self._saved() as saved:
                if saved is not None and at_ms in (saved.times() or ()):
                    return saved._newest(at_ms, *keys)
        return self._newest(at_ms, *keys)

    @contextmanager
    def _saved(self) -> Iterator[States | None]:
        """The states in the snapshot of the newest checkpoint, held meanwhile; None without one."""
        if self._files is None or not self._files.snapshots.is_dir():
            yield None
            return
        snapshots = Snapshots(self._files.snapshots)
        with snapshots.held():
            known = self._files.transaction()
            record, name = None if known is None else known.record, self._fragment.name
            if record is None or name not in record.fragments:
                yield None
                return
            place = snapshots.place(name, record.round)
            yield States(place, self.processor, self._spark) if place.is_dir() else None

    def _newest(self, at_ms: int | None, *keys: Any) -> list[StateEntry]:
        """The states from the newest committed batch."""
        error: Exception | None = None
        for _ in range(_ATTEMPTS):
            batch = committed(self._checkpoint)
            if batch < 0:
                return []
            try:
                return self._read(batch, at_ms, *keys)
            except DrivetrainError:
                raise
            except Exception as raised:  # noqa: BLE001 - of Spark, about files that it has just deleted
                error = raised
        raise UnavailableError(
            f"the states of {self.processor} cannot be read right now",
            where=str(self._checkpoint),
            got=f"{type(error).__name__}: {str(error)[:300]}",
            remedy="try again; if this error continues, the checkpoint is damaged",
        ) from error

    def _read(self, batch: int, at_ms: int | None, *keys: Any) -> list[StateEntry]:
        operation = self.operation
        if isinstance(operation, Process) and operation.persistent is not None:
            return list(self._of_task(operation, batch, at_ms, *keys))
        if isinstance(operation, Process) and operation.keyed is not None:
            return list(self._of_keyed(operation.keyed, batch, *keys))
        if isinstance(operation, Fold):
            found = self._of_fold(operation, batch)
        elif isinstance(operation, Aggregate):
            found = (
                StateEntry(_bare(canonical_key(key)), value, window)
                for key, window, value in aggregate_values(
                    operation, self._rows(operation, batch), self.processor
                )
            )
        else:
            raise UserError(
                f"{self.processor} has no state that can be queried",
                expected="a persistent or keyed Task, or an aggregation, reduce or fold",
                where=str(self._fragment),
            )
        return [state for state in found if not keys or state.key == canonical_key(keys[0])]

    def _rows(self, operation: Aggregate, batch: int) -> list[Row]:
        reader = self._spark().read.format("statestore").option("batchId", batch)
        return on_our_scale(reader.load(str(self._checkpoint)), operation.window.size_ms).collect()

    def _blobs(self, batch: int, bucket: int | None = None) -> dict[int, bytes]:
        reader = self._spark().read.format("statestore").option("batchId", batch)
        df = reader.load(str(self._checkpoint)).selectExpr(
            "key.bucket AS bucket", "value.groupState.blob AS blob"
        )
        if bucket is not None:
            df = df.where(f"bucket = {bucket}")
        return {row["bucket"]: bytes(row["blob"]) for row in df.collect()}

    def _of_fold(self, operation: Fold, batch: int) -> Iterator[StateEntry]:
        for blob in self._blobs(batch).values():
            groups: Mapping[tuple[Any, int, int], Any] = pickle.loads(blob)  # noqa: S301 - from our own state
            for (key, start, end), state in groups.items():
                window = None if operation.window.kind == "global" else (start // 1000, -(-end // 1000))
                yield StateEntry(_bare(key), operation.monoid.result(state), window)

    def _of_keyed(self, declared: KeyedDeclaration, batch: int, *keys: Any) -> Iterator[StateEntry]:
        only = encoded_key(keys[0]) if keys else None
        clock_ms = clock_at(self._fragment, batch)
        for saved in self._blobs(batch, None if only is None else bucket_of(only)).values():
            for key, value in keyed_values(declared, saved, clock_ms, only):
                yield StateEntry(key, value)

    # -- persistent Tasks --------------------------------------------------------------------------

    def _of_task(self, operation: Process, batch: int, at_ms: int | None, *keys: Any) -> Iterator[StateEntry]:
        from drivetrain.spark.compile.persistent_rules import rules_of

        rules = rules_of(operation)
        clock_ms = clock_at(self._fragment, batch)
        if at_ms is not None:
            self._require(at_ms, kept_times(self._fragment, operation, batch))
        wanted = encoded_key(keys[0]) if keys else None
        bucket = None if wanted is None else bucket_of(wanted)
        blobs = self._blobs(batch, bucket)
        for number in range(BUCKETS) if bucket is None else [bucket]:
            states = TwoStates(rules, blobs.get(number))
            until_ms = states.checkpoint_ms if number in blobs else clock_ms
            # Spark calls a bucket up to a millisecond after its time, and not at all without messages.
            _, due = states.advance(max(ended_by(clock_ms), states.clock_ms))
            if at_ms is None:
                found = {(span, key): state for span, key, state in states.items()}
                if wanted is not None:
                    found = {group: state for group, state in found.items() if group[1] == wanted}
            else:
                since = Pictures(self._fragment, number).between(at_ms, until_ms)
                found = states.as_of([*since, *(p for p in due if p.at_ms > at_ms)], wanted)
            for (span, key), state in found.items():
                yield StateEntry(decoded_key(key), rules.monoid.result(state), None if span == EVER else span)
        if at_ms is not None:
            # Batches that were committed meanwhile may have let the next one delete pictures that were read.
            self._require(at_ms, kept_times(self._fragment, operation, committed(self._checkpoint)))

    def _require(self, at_ms: int, times: PictureTimes | None) -> None:
        assert times is not None  # the caller has checked it
        if at_ms in times:
            return
        step_ms = times.step_ms
        if times.newest_ms is None:
            raise UserError(
                f"the states of {self.processor} as of {moment_text(at_ms)} are not known yet",
                expected=f"a multiple of {duration_text(step_ms)} that the clock has passed;"
                " it has passed none",
                got=moment_text(at_ms),
                remedy="wait until messages have moved the clock",
            )
        below = min(max(at_ms - at_ms % step_ms, times.first_ms), times.last_ms)
        nearest = sorted({below, min(below + step_ms, times.last_ms)})
        kept, passed = moment_text(times.first_ms), moment_text(times.last_ms)
        raise UserError(
            f"the states of {self.processor} as of {moment_text(at_ms)} cannot be queried",
            expected=f"a multiple of {duration_text(step_ms)}, from {kept}, when they begin, to {passed}, "
            "which the clock has passed",
            got=moment_text(at_ms),
            remedy=f"ask for {' or '.join(map(moment_text, nearest))}",
        )


def states_of(home: Path, processor: str, spark: Callable[[], SparkSession]) -> States:
    """The states of a processor of the application that keeps its state in `home`.

    Raises `UserError` when there is no such processor with a state that can be queried, `InputError` when its
    description cannot be read.
    """
    fragment = home / "fragments" / processor
    if Path(processor).name == processor and fragment.is_dir():
        states = States(fragment, processor, spark, CheckpointFiles(home))
        if states.operation is not None:
            return states
    kept = [d.name for d in sorted((home / "fragments").glob("*")) if (d / "operator").is_file()]
    if not home.is_dir():
        raise InputError(
            "the application has no state here", where=str(home), remedy="run it, or pass its --state-dir"
        )
    raise UserError(
        f"there is no state of a processor {processor!r}",
        where=str(home),
        expected=f"one of {', '.join(kept)}"
        if kept
        else "a persistent or keyed Task, or an aggregation, that has run",
        got=processor,
    )


def _moment(at: Moment) -> int:
    at_ms = moment_ms(at, "at")
    try:
        moment_text(at_ms)
    except OverflowError as error:
        raise UserError(
            "not a time", where="at", expected="one in the years 1 to 9999", got=repr(at)
        ) from error
    return at_ms


def _bare(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) and len(key) == 1 else key
