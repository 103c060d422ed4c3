"""The operation of a processor: a frozen record with everything about it that needs no Spark.

The problem: the planner, the printed plan, replays, the clock and the compiler each need to know something
about an operation: whether it keeps state, how far its results lag behind the watermark, how it is described.
The design: an operation answers these questions itself, in its own class. To add an operation, add one class
here and one line in `spark.compile.operators`.

Invariants:

1. An operation is immutable; it opens and executes nothing.
2. The defaults of `Operation` are right for a stateless, native operation with one input.

Built by `application`, `stream` and `grouped`; read by the planner and by layer `spark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from drivetrain.api.durations import duration_text
from drivetrain.api.expressions.columns import Column
from drivetrain.api.sinks import Sink
from drivetrain.api.sources import Source
from drivetrain.api.types import MessageType
from drivetrain.api.windows import Window

OnError = Literal["fail", "dead_letter"]
How = Literal["source", "native", "lowered", "arrow", "task", "sink"]
"""How a processor runs."""

_PYTHON = "a Python function: consecutive ones run as one Arrow function, a batch at a time"
_NATIVE = "Spark expressions: code-generated"


@dataclass(frozen=True)
class Function:
    """A Python function over columns: its parameters name the columns it takes."""

    fn: Callable[..., Any]
    type: MessageType
    parameters: tuple[str, ...] = ()
    on_error: OnError = "fail"


class Operation:
    """The questions that every operation answers; a subclass overrides what differs."""

    ends_stream: ClassVar[bool] = False
    """Whether nothing can read from it."""
    is_table: ClassVar[bool] = False
    """Whether all of it is read, for joins, so that it is not a stream."""
    keeps_number: ClassVar[bool] = False
    """Whether it emits as many messages as it takes."""
    is_subscription: ClassVar[bool] = False
    """Whether its messages go into a channel that another application reads."""
    is_counted: ClassVar[bool] = False
    """Whether its messages are counted as they pass, because their number cannot be derived."""
    reads_aside: ClassVar[bool] = False
    """Whether it reads messages that its input emits for it alone, not those that all other readers get."""
    hears_end: ClassVar[bool] = False
    """Whether it must run once more, on an empty batch, when the input has ended."""
    realtime_obstacle: ClassVar[str | None] = None
    """The reason why it can never run in Spark's real-time mode, if there is one."""

    @property
    def described(self) -> str:
        """Its arguments in a few words, for the printed plan."""
        raise NotImplementedError

    @property
    def runs(self) -> tuple[How, str]:
        """How it runs and why, as far as the planner knows."""
        return ("arrow", _PYTHON) if self.functions else ("native", _NATIVE)

    @property
    def keeps_state(self) -> bool:
        """Whether it keeps state between batches."""
        return False

    @property
    def wants_clock(self) -> bool:
        """Whether it must run in a query that knows the clock of its own batch, even without state."""
        return False

    @property
    def differs_by_batch(self) -> bool:
        """Whether it must be compiled for each batch, so that it cannot be part of a trunk with state."""
        return False

    @property
    def can_be_asked(self) -> bool:
        """Whether users can query its state."""
        return False

    @property
    def needs_event_time(self) -> bool:
        """Whether a replay must know the event time of each message that arrives here."""
        return self.keeps_state or self.ends_stream

    @property
    def interval_ms(self) -> int | None:
        """How often its batches begin at most, in a query that reads a channel; None: as soon as they can.

        0 is for a test: as soon as they can, in the same query.
        """
        return None

    @property
    def state_described(self) -> str:
        """What its state depends on."""
        return self.described

    @property
    def state_version(self) -> tuple[int, str]:
        """The version of its state, and what of it stays in the next version; 0 without versions."""
        return 0, ""

    @property
    def result_lag_ms(self) -> int:
        """By how much its results may be older than the watermark of their batch."""
        return 0

    @property
    def input_lag_ms(self) -> int:
        """By how much the watermark before it must lag behind the clock of its input."""
        return 0

    @property
    def stream_source(self) -> Source | None:
        """The source that it reads as a stream."""
        return None

    @property
    def any_source(self) -> Source | None:
        """The source that it reads, as a stream or whole."""
        return self.stream_source

    @property
    def target(self) -> Sink | None:
        """The sink that it writes to."""
        return None

    @property
    def assigned_time(self) -> EventTime | None:
        """The event time that it assigns to messages."""
        return None

    @property
    def grouping_window(self) -> Window | None:
        """The window in which it groups messages, and whose end decides which are late."""
        return None

    @property
    def has_late_messages(self) -> bool:
        """Whether it excludes messages that the clock has already passed."""
        return self.grouping_window is not None and self.grouping_window.kind != "global"

    @property
    def emits_only_at_end(self) -> bool:
        """Whether only the batch that ends the input has results."""
        return False

    @property
    def may_skip_messages(self) -> bool:
        """Whether it may read only some messages of a batch, although outputs usually read all."""
        return False

    @property
    def functions(self) -> tuple[Function, ...]:
        """The Python functions over messages that it runs, in order."""
        return ()

    @property
    def sets_aside(self) -> bool:
        """Whether it may send messages to the dead letters."""
        return any(function.on_error == "dead_letter" for function in self.functions)

    def user_code(self) -> Iterator[Any]:
        """Every function, class and object of the user that it needs where it runs."""
        for function in self.functions:
            yield function.fn
            if function.type.python is not None:
                yield function.type.python

    def clocked(self, id: str) -> tuple[str, ...]:
        """The stateful processors whose messages must carry the clock for this operation, with id `id`."""
        return ()


@dataclass(frozen=True)
class EventTime(Operation):
    """Declares where the event timestamp is, and by how much messages may be out of order.

    With `partition`, the disorder is measured within each partition: the column has one of the values
    `partitions`, and the clock ignores a partition that is silent for `idle_ms`.
    """

    column: Column
    max_disorder_ms: int
    partition: Column | None = None
    partitions: tuple[int | str, ...] = ()
    idle_ms: int | None = None
    keeps_number: ClassVar[bool] = True

    @property
    def described(self) -> str:
        each = ""
        if self.partition is not None:
            each = f" in each of {len(self.partitions)} partitions by {self.partition}"
        return f"{self.column}, out of order by at most {duration_text(self.max_disorder_ms)}{each}"

    @property
    def assigned_time(self) -> EventTime | None:
        return self
