"""Keyed Tasks on Spark's keyed state: several typed states for each key, in buckets of keys.

Messages are packed by bucket before the shuffle, as for persistent Tasks (`persistent_packs`). A bucket is
one Spark group, and its state one value of bytes (`core.state.key_states`).

A Task that takes messages as they come first gets the timers that the clock has reached, then the batch's
messages. One that takes them in order gets the messages and timers that the clock has passed, in the order
of their times: timers before messages of the same time, messages of one key and one time in the order of
their content. Other messages are held. So its results do not depend on the order of arrival, or on batches.

Called by `operators`, and through Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Process
from drivetrain.api.states.keyed_task import RUNNING, KeyedDeclaration, KeyedTask
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS, ended_by
from drivetrain.core.state.key_migration import declaration
from drivetrain.core.state.key_states import KINDS, CurrentKey, KeyStates
from drivetrain.core.state.state_keys import decoded_key
from drivetrain.errors import GraphError
from drivetrain.spark.compile.bucket_function import BucketFunction
from drivetrain.spark.compile.frame import Frame, message_class, require_column
from drivetrain.spark.compile.keyed import (
    PACKED,
    UnpackResults,
    clock_in,
    expander,
    hook_stamp_ms,
    kept_in_buckets,
    result_row,
    timeout_at,
)
from drivetrain.spark.compile.message_payloads import Entry, MessageForm, entries_of
from drivetrain.spark.compile.named_outputs import ResultColumns
from drivetrain.spark.compile.persistent_buckets import instance_of
from drivetrain.spark.compile.persistent_packs import MessagePack
from drivetrain.spark.compile.python_work import MeasuredStage
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings
from drivetrain.spark.compile.tasks import add, call_hook, collect
from drivetrain.spark.compile.timers_of_key import TimersOfKey

if TYPE_CHECKING:
    import pandas as pd


def keyed_task(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Compile a keyed Task; the DataFrame holds packed results for `expand`."""
    operation = node.operation
    assert isinstance(operation, Process)
    assert operation.keyed is not None
    ready = [frame.resolved() for frame in inputs]
    for frame in ready:
        _require(node, operation.keyed, frame)
    union = ready[0].df
    for frame in ready[1:]:
        union = union.unionByName(frame.df)
    columns = ready[0].columns
    pack = MessagePack(operation, str(node), operation.keyed.keys, columns, ready[0].message, ready[0].timed)
    packed = union.mapInArrow(MeasuredStage(pack), PACKED)
    out = kept_in_buckets(packed, KeyedFunction(operation, node.id, str(node), around.run_id, pack.form))
    results = ResultColumns.of(operation)
    unpack = UnpackResults(results, str(node))
    return StatefulPlan(out, expand=expander(unpack, results.schema, message_class(operation.type)))


def _require(node: Node, declared: KeyedDeclaration, frame: Frame) -> None:
    for name in declared.keys:
        require_column(name, frame.columns, str(node), "to tell keys by")
    if not frame.timed and (declared.in_order or any(state.ttl_ms is not None for state in declared.states)):
        raise GraphError(
            "a Task with in_order or a ttl needs event time, and these messages have none",
            where=str(node),
            remedy='put .event_time("column", max_disorder="10 s") before it',
        )


@dataclass(frozen=True)
class KeyedFunction(BucketFunction):
    """Called by Spark for a bucket."""

    operation: Process
    id: str
    operator: str
    run_id: str
    form: MessageForm

    def _rows(self, bucket: int, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        declared = self.operation.keyed
        assert declared is not None
        clock_ms = clock_in(state)
        states = KeyStates(declaration(declared), state.get[0] if state.exists else None)
        task = instance_of(self.operation, self.id, self.operator, self.run_id, bucket, clock_ms)
        batch = _Batch(self.operator, declared, states, task, clock_ms, _pickling(self.form))
        came = [] if state.hasTimedOut else [p for frame in frames for p in frame["payload"]]
        batch.run(chain.from_iterable(entries_of(payload, self.form) for payload in came))
        if states.is_empty:
            if state.exists:
                state.remove()
        else:
            state.update((states.saved(),))
            timeout_at(state, states.next_ms(holds=True), clock_ms)
        if batch.results or batch.late:
            yield result_row(batch.results, batch.late)


def _pickling(form: MessageForm) -> Callable[[Any], bytes]:
    """How held messages are pickled.

    A class of the application may be one that a worker cannot import. Rows consist of the values of columns,
    and those `pickle` writes in a fourth of the time.
    """
    return pickle.dumps if form.message in (None, tuple) else cloudpickle.dumps


class _Running(CurrentKey, TimersOfKey):
    """The part of its runner that a Task can use: the states of the current key, and its timers."""

    def __init__(
        self, states: KeyStates, declared: KeyedDeclaration, kind: type[KeyedTask[Any, Any]]
    ) -> None:
        CurrentKey.__init__(self, states)
        TimersOfKey.__init__(self, states, kind, KeyedTask)
        self.states_by_name = {
            s.name: KINDS[s.kind](self, s.name, s.types, s.ttl_ms) for s in declared.states
        }

    def key_of_timers(self) -> bytes:
        """The current key."""
        return self.required_key()


class _Batch:
    """One call for a bucket."""

    def __init__(
        self,
        operator: str,
        declared: KeyedDeclaration,
        states: KeyStates,
        task: Any,
        clock_ms: int,
        pickled: Callable[[Any], bytes],
    ) -> None:
        self.late = 0
        self._operator: Final = operator
        self._declared: Final = declared
        self._states: Final = states
        self._task: Final = task
        self._clock_ms: Final = clock_ms
        self._pickled: Final = pickled
        self._ttls_us: Final = {s.name: s.ttl_ms * 1000 for s in declared.states if s.ttl_ms is not None}
        self._place: Final = _Running(states, declared, type(task))
        self._out: list[Any] = []
        self._at_us: list[int] = []
        self._reached_ms = NO_CLOCK_MS
        setattr(task, RUNNING, self._place)

    @property
    def results(self) -> list[Any]:
        """The results of the hooks, for `keyed.Unpack`."""
        return [((), value, us) for value, us in zip(self._out, self._at_us, strict=True)]

    def run(self, entries: Iterable[Entry]) -> None:
        """Take messages and call timers, in the order that the Task declares."""
        if self._declared.in_order:
            self._hold(entries)
            self._call_due()
            self._expire()
            return
        self._call_timers(ended_by(self._clock_ms))
        self._expire()
        for key, stamps, messages in entries:
            for ts_us, message in zip(repeat(0) if stamps is None else stamps, messages, strict=False):
                self._call_next(key, ts_us, message, max(ts_us, self._clock_ms * 1000))
        # Timers that were set for a time which the clock has already reached.
        self._reached_ms = hook_stamp_ms(self._clock_ms)
        self._call_timers(ended_by(self._clock_ms))
        self._expire()

    def _expire(self) -> None:
        if self._clock_ms < FINAL_CLOCK_MS:
            self._states.expire(self._clock_ms, self._ttls_us)

    def _hold(self, entries: Iterable[Entry]) -> None:
        """Hold messages, except late ones."""
        for key, stamps, messages in entries:
            assert stamps is not None  # in_order needs event time
            for ts_us, message in zip(stamps, messages, strict=True):
                if ts_us < self._clock_ms * 1000:
                    self.late += 1
                else:
                    self._states.held.append((ts_us, key, self._pickled(message)))

    def _call_due(self) -> None:
        """Call the hooks of messages and timers that the clock has passed, in the order of their times."""
        until_us = ended_by(self._clock_ms) * 1000
        due = [held for held in self._states.held if held[0] < until_us]
        self._states.held = [held for held in self._states.held if held[0] >= until_us]
        messages = [(ts_us, key, cloudpickle.loads(content)) for ts_us, key, content in due]
        for ts_us, key, message in sorted(messages, key=lambda m: (m[0], m[1], repr(m[2]))):
            self._call_timers(ts_us // 1000, can_set=True)
            self._reached_ms = ts_us // 1000
            self._call_next(key, ts_us, message, ts_us)
        self._call_timers(ended_by(self._clock_ms))

    def _call_next(self, key: bytes, ts_us: int, message: Any, now_us: int) -> None:
        self._place.key, self._place.now_us = key, now_us
        collect(self._operator, self._task, message, ts_us, self._out, self._at_us)
        self._place.key = None

    def _call_timers(self, until_ms: int, *, can_set: bool = False) -> None:
        """Call the timers up to a time; their results are not older than those of earlier calls."""
        self._place.takes_timers = can_set or self._clock_ms < FINAL_CLOCK_MS
        while (timer := self._states.timers.take(until_ms)) is not None:
            at_ms, key = timer
            self._reached_ms = max(self._reached_ms, at_ms)
            self._place.key, self._place.now_us = key, self._reached_ms * 1000
            made = call_hook(self._operator, "on_timer", self._task.on_timer, decoded_key(key), at_ms)
            for result in made:
                add(result, self._reached_ms * 1000, self._out, self._at_us)
        self._place.key, self._place.takes_timers = None, True
