"""Asking an application for its states: now, or as of an application time, while it runs or when it does not.

Problem: states are in Spark's checkpoint of a fragment, which a query may be writing to. Who asks must not
disturb it, must not be told half of a batch, and may not have the application's code.

Design: the newest batch that Spark has committed is read by Spark's own state reader, which copies what it
needs; what the bytes mean says `kept_state`. A persistent Task's states as of an earlier time follow from
those of that batch and the pictures since (`pictures`). When Spark or the Task has deleted meanwhile what was
about to be read, it is read anew, from the batch that is the newest then.

Invariants:

1. What is told is the state after one committed batch, or exactly as of the time that was asked for.
2. A time that cannot be answered exactly is refused, with the nearest ones that can.

Called by `drivetrain.state`, by the handle of `drivetrain.start`, and by the command `drivetrain state`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from drivetrain.api.durations import told
from drivetrain.api.graph import Aggregate, Fold, Process
from drivetrain.api.moments import moment_ms, told_moment
from drivetrain.core.paged_state import BUCKETS, bucket_of
from drivetrain.core.state_keys import decoded_key, encoded_key
from drivetrain.core.two_state import EVER, Span, TwoStates
from drivetrain.errors import DrivetrainError, InputError, UnavailableError, UserError
from drivetrain.spark.aggregate_state import aggregate_values
from drivetrain.spark.kept_state import noted_operator
from drivetrain.spark.offset_log import committed, read_offsets
from drivetrain.spark.pictures import Pictures

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Moment: TypeAlias = "str | int | datetime"

_ATTEMPTS: Final = 5


@dataclass(frozen=True)
class KeptState:
    """One state: its key (several columns: a tuple), its value, and its window [start, end) in ms if any."""

    key: Any
    value: Any
    window: Span | None = None


@dataclass(frozen=True)
class Times:
    """As of which times states can be asked for: every `step_ms` from `first_ms` to `last_ms`."""

    first_ms: int
    last_ms: int
    step_ms: int


class States:
    """The states of one processor; every question is answered from the newest committed batch."""

    def __init__(self, fragment: Path, processor: str, spark: Callable[[], SparkSession]) -> None:
        self.processor: Final = processor
        self._fragment: Final = fragment
        self._spark: Final = spark
        self.operation: Final = noted_operator(fragment)

    def get(self, key: Any, at: Moment | None = None) -> Any:
        """The value of a key, now or as of an application time; None when it has none.

        With windows a mapping by window: (start_ms, end_ms) to the value. `at` is ISO 8601 (UTC unless it
        says otherwise), a datetime, or ms since the epoch. Raises `UserError` for a time that cannot be told.
        """
        found = self._found(at, key)
        windows = {state.window: state.value for state in found if state.window is not None}
        return windows if windows else next((state.value for state in found), None)

    def items(self, at: Moment | None = None) -> list[KeptState]:
        """All states, now or as of an application time, ordered by window and key; raises as `get`."""
        return sorted(self._found(at), key=lambda s: (s.window or EVER, str(s.key)))

    def clock_ms(self) -> int | None:
        """The clock of the newest committed batch, in ms; None without one."""
        batch = committed(self._checkpoint)
        return None if batch < 0 else self._watermark(batch)

    def times(self) -> Times | None:
        """As of which times one may ask; None when no pictures are taken."""
        step_ms, clock_ms = self._step_ms, self.clock_ms()
        return None if step_ms is None or clock_ms is None else self._times(clock_ms, step_ms)

    # -- what is read ------------------------------------------------------------------------------

    @property
    def _checkpoint(self) -> Path:
        return self._fragment / "checkpoint"

    @property
    def _step_ms(self) -> int | None:
        operation = self.operation
        is_task = isinstance(operation, Process) and operation.persistent is not None
        return operation.persistent.state.step_ms if is_task else None  # type: ignore[union-attr]

    def _found(self, at: Moment | None, *keys: Any) -> list[KeptState]:
        at_ms = None if at is None else _moment(at)
        if at_ms is not None and self._step_ms is None:
            raise UserError(
                f"{self.processor} can be asked for its states of now only",
                got=f"at={told_moment(at_ms)}",
                remedy='a persistent Task with State(..., as_of="1 h") can be asked as of every hour',
            )
        error: Exception | None = None
        for _ in range(_ATTEMPTS):
            batch = committed(self._checkpoint)
            if batch < 0:
                return []
            try:
                return self._read(batch, at_ms, *keys)
            except DrivetrainError:
                raise
            except Exception as raised:  # noqa: BLE001 - Spark's, of files that it has deleted meanwhile
                error = raised
        raise UnavailableError(
            f"the states of {self.processor} cannot be read right now",
            where=str(self._checkpoint),
            got=f"{type(error).__name__}: {str(error)[:300]}",
            remedy="ask again; if it stays so, the checkpoint is damaged",
        ) from error

    def _read(self, batch: int, at_ms: int | None, *keys: Any) -> list[KeptState]:
        operation = self.operation
        if isinstance(operation, Process) and operation.persistent is not None:
            return list(self._of_task(operation, batch, at_ms, *keys))
        if isinstance(operation, Fold):
            found = self._of_fold(operation, batch)
        elif isinstance(operation, Aggregate):
            found = (
                KeptState(_bare(key), value, window)
                for key, window, value in aggregate_values(operation, self._rows(batch), self.processor)
            )
        else:
            raise UserError(
                f"{self.processor} keeps no state that can be asked for",
                expected="a persistent Task, or an aggregation, reduce or fold",
                where=str(self._fragment),
            )
        return [state for state in found if not keys or state.key == keys[0]]

    def _rows(self, batch: int) -> list[Row]:
        reader = self._spark().read.format("statestore").option("batchId", batch)
        return reader.load(str(self._checkpoint)).collect()

    def _blobs(self, batch: int, bucket: int | None = None) -> dict[int, bytes]:
        reader = self._spark().read.format("statestore").option("batchId", batch)
        df = reader.load(str(self._checkpoint)).selectExpr(
            "key.bucket AS bucket", "value.groupState.blob AS blob"
        )
        if bucket is not None:
            df = df.where(f"bucket = {bucket}")
        return {row["bucket"]: bytes(row["blob"]) for row in df.collect()}

    def _watermark(self, batch: int) -> int:
        metadata, _ = read_offsets(self._checkpoint / "offsets" / str(batch))
        return int(metadata.get("batchWatermarkMs", 0))

    def _of_fold(self, operation: Fold, batch: int) -> Iterator[KeptState]:
        for blob in self._blobs(batch).values():
            groups: Mapping[tuple[Any, int, int], Any] = pickle.loads(blob)  # noqa: S301 - what Spark keeps of us
            for (key, start, end), state in groups.items():
                window = None if operation.window.kind == "global" else (start, end)
                yield KeptState(_bare(key), operation.monoid.result(state), window)

    # -- persistent Tasks --------------------------------------------------------------------------

    def _of_task(self, operation: Process, batch: int, at_ms: int | None, *keys: Any) -> Iterator[KeptState]:
        from drivetrain.spark.compile.persistent_rules import rules_of

        rules = rules_of(operation)
        clock_ms = self._watermark(batch)
        if at_ms is not None:
            assert rules.step_ms is not None
            self._require(at_ms, self._times(clock_ms, rules.step_ms))
        wanted = encoded_key(keys[0]) if keys else None
        bucket = None if wanted is None else bucket_of(wanted)
        blobs = self._blobs(batch, bucket)
        for number in range(BUCKETS) if bucket is None else [bucket]:
            states = TwoStates(rules, blobs.get(number))
            until_ms = states.checkpoint_ms if number in blobs else clock_ms
            # Spark calls a bucket up to a millisecond after its time, and one without messages not at all.
            _, due = states.advance(max(clock_ms, states.clock_ms))
            if at_ms is None:
                found = {(span, key): state for span, key, state in states.items()}
                if wanted is not None:
                    found = {group: state for group, state in found.items() if group[1] == wanted}
            else:
                since = Pictures(self._fragment, number).between(at_ms, until_ms)
                found = states.as_of([*since, *(p for p in due if p.at_ms > at_ms)], wanted)
            for (span, key), state in found.items():
                yield KeptState(decoded_key(key), rules.monoid.result(state), None if span == EVER else span)

    def _times(self, clock_ms: int, step_ms: int) -> Times:
        operation = self.operation
        assert isinstance(operation, Process)
        assert operation.persistent is not None
        last_ms = clock_ms - clock_ms % step_ms
        taken = [t for b in range(BUCKETS) for t in Pictures(self._fragment, b).times() if t <= last_ms]
        kept_ms = max(taken, default=0) - operation.persistent.state.keep_ms
        return Times(max(0, -(-kept_ms // step_ms) * step_ms), last_ms, step_ms)

    def _require(self, at_ms: int, times: Times) -> None:
        step_ms = times.step_ms
        if times.first_ms <= at_ms <= times.last_ms and at_ms % step_ms == 0:
            return
        below = min(max(at_ms - at_ms % step_ms, times.first_ms), times.last_ms)
        nearest = sorted({below, min(below + step_ms, times.last_ms)})
        kept, passed = told_moment(times.first_ms), told_moment(times.last_ms)
        raise UserError(
            f"the states of {self.processor} as of {told_moment(at_ms)} cannot be told",
            expected=f"a multiple of {told(step_ms)}, from {kept}, since when they are kept, to {passed}, "
            "which the clock has passed",
            got=told_moment(at_ms),
            remedy=f"ask for {' or '.join(map(told_moment, nearest))}",
        )


def states_of(home: Path, processor: str, spark: Callable[[], SparkSession]) -> States:
    """The states of a processor of the application that keeps its state in `home`.

    Raises `UserError` when that has no processor of the name with a state to ask for, `InputError` when what
    it says of it cannot be read.
    """
    fragment = home / "fragments" / processor
    if Path(processor).name == processor and fragment.is_dir():
        states = States(fragment, processor, spark)
        if states.operation is not None:
            return states
    kept = [d.name for d in sorted((home / "fragments").glob("*")) if (d / "operator").is_file()]
    if not home.is_dir():
        raise InputError(
            "the application has no state here", where=str(home), remedy="run it, or say --state-dir"
        )
    raise UserError(
        f"there is no state of a processor {processor!r}",
        where=str(home),
        expected=f"one of {', '.join(kept)}" if kept else "a persistent Task or an aggregation that has run",
        got=processor,
    )


def _moment(at: Moment) -> int:
    at_ms = moment_ms(at, "at")
    try:
        told_moment(at_ms)
    except OverflowError as error:
        raise UserError(
            "not a moment", where="at", expected="one in the years 1 to 9999", got=repr(at)
        ) from error
    return at_ms


def _bare(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) and len(key) == 1 else key
