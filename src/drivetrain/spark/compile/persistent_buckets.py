"""The state of a bucket of keys of a persistent Task: called by Spark for each group, in its workers.

A bucket is one Spark group, and its state one value of bytes of which only touched pages are decoded
(`core.state.two_state`). A bucket is called when it has messages, by a timeout when one of its windows ends
or a picture or a timer is due, and at the end if the Task has an `on_stop`. Other buckets, busy or idle, do
not affect how often it is called.

In a batch the clock moves first: ended windows are emitted, pictures are taken from the earlier messages, and
the timers that it has reached are called; then the batch's messages are merged.

Called by `persistent`, through Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle

from drivetrain.api.operations import Process
from drivetrain.api.states.persistent import RUNNING, PersistentTask, merges_only
from drivetrain.api.task import Task
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, LAST_MS, NO_CLOCK_MS, ended_by, known_clock
from drivetrain.core.state.paged_state import BUCKETS, bucket_of
from drivetrain.core.state.state_keys import decoded_key, encoded_key
from drivetrain.core.state.state_rules import EVER, Span, StateRules
from drivetrain.core.state.two_state import TwoStates
from drivetrain.runtime.state_pictures import Pictures
from drivetrain.spark.compile.bucket_function import BucketFunction
from drivetrain.spark.compile.keyed import clock_in, hook_stamp_ms, result_row, timeout_at
from drivetrain.spark.compile.message_payloads import Entry, MessageForm, entries_of
from drivetrain.spark.compile.python_stage import operator_error
from drivetrain.spark.compile.tasks import add, call_hook, collect_all, started
from drivetrain.spark.compile.timers_of_key import TimersOfKey

if TYPE_CHECKING:
    import pandas as pd

_instances: dict[tuple[str, str, int], Task[Any, Any]] = {}


class RunningState(TimersOfKey):
    """`self.state` of a Task during a call of its hooks: the states of its bucket."""

    def __init__(self, states: TwoStates[Any], bucket: int, kind: type[PersistentTask[Any, Any]]) -> None:
        self._states: Final = states
        self._bucket: Final = bucket
        super().__init__(states, kind, PersistentTask)
        self.key: bytes | None = None
        self.timestamp_us = 0
        self.timer_key: bytes | None = None
        """The key whose timers can be set; None outside of hooks of one key."""

    def key_of_timers(self) -> bytes:
        """The key whose timers can be set; raises RuntimeError outside of hooks of one key."""
        if self.timer_key is None:
            raise RuntimeError("timers belong to a key: set them in on_next, on_change or on_timer")
        return self.timer_key

    def update(self, message: Any, timestamp_ms: int | None = None) -> None:
        """Merge a message into the state of the current key; raises RuntimeError if there is none."""
        states = self._states
        if self.key == states.hot_key:  # without a call: most messages come this way
            states.hot = states.add(states.hot, message)
            return
        if self.key is None:
            raise RuntimeError("a state is updated in on_next, where there is a message with a key")
        states.update(self.key, self.timestamp_us // 1000 if timestamp_ms is None else timestamp_ms, message)

    def following(self, stamps: Iterable[int]) -> Iterator[int]:
        """The timestamps (µs) of messages, each of which counts until the next one is taken."""
        for self.timestamp_us in stamps:
            yield self.timestamp_us

    def get(self, key: Any = None) -> Any:
        """The value of a key; raises RuntimeError for a key of another bucket."""
        encoded = self.key if key is None else encoded_key(key)
        if encoded is None:
            raise RuntimeError("there is no current key here: use get(key)")
        if bucket_of(encoded) != self._bucket:
            raise RuntimeError(f"the state of {key!r} is in another bucket: ask for the key of the message")
        span = self._span(encoded)
        state = None if span is None else self._states.get(encoded, span)
        return None if state is None else self._states.rules.monoid.result(state)

    def _span(self, key: bytes) -> Span | None:
        """The oldest open window of the message, or, without a message, of the key."""
        if self._states.rules.window is None:
            return EVER
        among = (
            self._states.rules.spans(self.timestamp_us // 1000) if self.key else self._states.spans_of(key)
        )
        return next((span for span in among if span[1] > self._states.clock_ms), None)


@dataclass(frozen=True)
class PersistentFunction(BucketFunction):
    """Called by Spark for a bucket."""

    operation: Process
    id: str
    operator: str
    rules: StateRules[Any]
    pictures: str | None
    run_id: str
    form: MessageForm

    def _rows(self, bucket: int, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        clock_ms = clock_in(state)
        states = TwoStates(self.rules, state.get[0] if state.exists else None)
        batch = _BucketBatch(self, bucket, states, clock_ms)
        batch.move_clock()
        if not state.hasTimedOut:
            for frame in frames:
                for payload in frame["payload"]:
                    if batch.merges:
                        batch.merge(cloudpickle.loads(payload))
                    else:
                        batch.take(entries_of(payload, self.form))
        batch.conclude()
        if not states.is_empty or (batch.handles_end and clock_ms < FINAL_CLOCK_MS):
            state.update((states.saved(),))
            timeout_at(state, batch.next_ms(), clock_ms)
        elif state.exists:
            state.remove()
        if batch.results or states.late:
            yield result_row(batch.results, states.late)


def instance_of(
    operation: Process, id: str, operator: str, run_id: str, bucket: int, clock_ms: int
) -> Task[Any, Any]:
    """The instance of a Task that runs a bucket of keys in this process, in this run and with this code."""
    at = (run_id, id, bucket)
    if at not in _instances:
        for old in [other for other in _instances if other[1] == id and other[0] != run_id]:
            del _instances[old]
        _instances[at] = started(replace(operation, parallelism=BUCKETS), id, operator, bucket, clock_ms)
    return _instances[at]


class _BucketBatch:
    """One call for a bucket: its states, its Task, and the results of the hooks."""

    def __init__(
        self, function: PersistentFunction, bucket: int, states: TwoStates[Any], clock_ms: int
    ) -> None:
        self.function = function
        self.bucket = bucket
        self.states = states
        self.clock_ms = clock_ms
        self.task: Any = instance_of(
            function.operation, function.id, function.operator, function.run_id, bucket, clock_ms
        )
        kind: Any = type(self.task)
        self.running = RunningState(states, bucket, kind)
        setattr(self.task, RUNNING, self.running)
        # On the instance, it is found without a call of the class attribute's `__get__`.
        self.task.__dict__["state"] = self.running
        self.merges = merges_only(kind)
        self.reports_changes = kind.on_change is not PersistentTask.on_change
        self.handles_clock = kind.on_clock is not Task.on_clock
        self.handles_end = kind.on_stop is not Task.on_stop
        self._out: list[Any] = []
        self._at_us: list[int] = []

    @property
    def results(self) -> list[Any]:
        """The results of the hooks, for `keyed.Unpack`."""
        return [((), value, us) for value, us in zip(self._out, self._at_us, strict=True)]

    def next_ms(self) -> int | None:
        """When the bucket must be called again, even without messages."""
        if self.handles_clock:
            return self.clock_ms + 1
        next_ms = self.states.next_ms()
        return FINAL_CLOCK_MS if next_ms is None and self.handles_end else next_ms

    def move_clock(self) -> None:
        """Emit ended windows, and store the pictures that are exact now."""
        function, before_ms = self.function, self.states.checkpoint_ms
        ended, pictures = self.states.advance(ended_by(self.clock_ms))
        if pictures and function.pictures is not None:
            declared = function.operation.persistent
            assert declared is not None
            kept = Pictures(function.pictures, self.bucket)
            kept.keep(pictures, before_ms, declared.state.keep_ms)
        for end in sorted(ended, key=lambda e: (e.span, e.key)):
            value = self._value(end.state)
            arguments = (decoded_key(end.key), *end.span, value)
            self._call("on_window", min(end.span[1] - 1, LAST_MS), *arguments)
        self._call_timers(NO_CLOCK_MS)

    def _call_timers(self, stamp_ms: int) -> None:
        """Call the timers that the clock has reached; results are not older than `stamp_ms`."""
        running, timers, until_ms = self.running, self.states.timers, ended_by(self.clock_ms)
        running.takes_timers = self.clock_ms < FINAL_CLOCK_MS
        while (timer := timers.take(until_ms)) is not None:
            at_ms, key = timer
            stamp_ms = max(stamp_ms, at_ms)
            running.key, running.timer_key, running.timestamp_us = key, key, at_ms * 1000
            self._call("on_timer", stamp_ms, decoded_key(key), at_ms)
        running.key, running.timer_key, running.takes_timers = None, None, True

    def merge(self, entries: list[Any]) -> None:
        """Merge the partial results of a batch's messages."""
        try:
            for entry in entries:
                self.states.merge(*entry)
        except Exception as error:
            raise operator_error(self.function.operator, None, error) from error

    def take(self, entries: Iterable[Entry]) -> None:
        """Call the Task with the messages of a batch."""
        running, operator = self.running, self.function.operator
        for key, stamps, messages in entries:
            running.key = running.timer_key = key
            running.timestamp_us = 0
            times = None if stamps is None else running.following(stamps)
            collect_all(operator, self.task, messages, times, self._out, self._at_us)
        running.key = running.timer_key = None

    def conclude(self) -> None:
        """Call the hooks for changed keys and for the clock."""
        stamp_ms = hook_stamp_ms(self.clock_ms)
        if self.reports_changes:
            for span, key in list(self.states.changed):
                self.running.timer_key = key
                self._call("on_change", stamp_ms, decoded_key(key), self._value(self.states.get(key, span)))
        self._call_timers(stamp_ms)  # timers that were set for a time which the clock has already reached
        if self.handles_clock and known_clock(self.clock_ms) is not None:
            self._call("on_clock", stamp_ms, self.clock_ms)
        if self.clock_ms >= FINAL_CLOCK_MS:
            self._call("on_stop", stamp_ms)

    def _value(self, state: Any) -> Any:
        return self.states.rules.monoid.result(state)

    def _call(self, name: str, stamp_ms: int, *arguments: Any) -> None:
        for result in call_hook(self.function.operator, name, getattr(self.task, name), *arguments):
            add(result, stamp_ms * 1000, self._out, self._at_us)
