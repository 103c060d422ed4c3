"""Operations at the ends of a graph: those that read sources, and those that nothing reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from drivetrain.api.durations import duration_text, milliseconds
from drivetrain.api.expressions.columns import col
from drivetrain.api.operations.operation import EventTime, How, Operation
from drivetrain.api.partitioners import Partitioner
from drivetrain.api.sinks import BatchesSink, Sink
from drivetrain.api.sources import Source


@dataclass(frozen=True)
class _Input(Operation):
    """Reads a source."""

    source: Source

    @property
    def described(self) -> str:
        names = (getattr(self.source, name, None) for name in ("path", "host", "name"))
        return f"{type(self.source).__name__} {next(filter(None, names), '')}".strip()

    @property
    def runs(self) -> tuple[How, str]:
        return "source", "read by Spark"

    @property
    def any_source(self) -> Source | None:
        return self.source


@dataclass(frozen=True)
class Read(_Input):
    """Reads messages from a source."""

    @property
    def stream_source(self) -> Source | None:
        return self.source

    @property
    def assigned_time(self) -> EventTime | None:
        """The event time that the source declares (`event_time=`, `max_disorder=`)."""
        if self.source.event_time is None:
            return None
        disorder_ms = milliseconds(self.source.max_disorder or "0 s", "max_disorder")
        return EventTime(col(self.source.event_time), disorder_ms)

    @property
    def sets_aside(self) -> bool:
        return self.source.on_bad_record == "dead_letter"


@dataclass(frozen=True)
class Table(_Input):
    """Reads all of a bounded source, for joins; this is not a stream."""

    is_table: ClassVar[bool] = True
    refresh_ms: int | None = None
    """How often it is read again, if at all."""

    @property
    def described(self) -> str:
        again = "" if self.refresh_ms is None else f", read again every {duration_text(self.refresh_ms)}"
        return super().described + again


class _Output(Operation):
    """Ends a stream."""

    ends_stream: ClassVar[bool] = True

    @property
    def runs(self) -> tuple[How, str]:
        return "sink", "written once per batch"


@dataclass(frozen=True)
class Log(_Output):
    """Writes messages to the log as they pass."""

    limit: int
    realtime_obstacle: ClassVar[str | None] = "writes to the log, a batch at a time"

    @property
    def described(self) -> str:
        return f"up to {self.limit} messages a batch"


@dataclass(frozen=True)
class Write(_Output):
    """Writes messages to a sink, as `parallelism` tasks if there is a partitioner."""

    sink: Sink
    partitioner: Partitioner | None = None
    parallelism: int = 1

    @property
    def described(self) -> str:
        return sink_text(self.sink)

    @property
    def target(self) -> Sink | None:
        return self.sink

    @property
    def may_skip_messages(self) -> bool:
        """True if the sink is a user's function."""
        return isinstance(self.sink, BatchesSink)


@dataclass(frozen=True)
class Subscription(_Output):
    """Keeps messages in a channel for the source `source` of the application `reader` until it has read them.

    With `drop_after_ms`, messages that are not read within that time are dropped. `key` distinguishes this
    subscription from earlier ones of the same reader, which gets a new channel each time it starts over.
    """

    reader: str
    source: str
    key: str
    drop_after_ms: int | None = None
    is_subscription: ClassVar[bool] = True
    realtime_obstacle: ClassVar[str | None] = "keeps messages for another application, a batch at a time"

    @property
    def described(self) -> str:
        policy = "" if self.drop_after_ms is None else f", dropped after {duration_text(self.drop_after_ms)}"
        return f"of {self.reader}/{self.source}{policy}"

    @property
    def runs(self) -> tuple[How, str]:
        return "sink", "kept in a channel until the other application has read it"


def sink_text(sink: object) -> str:
    """A sink as plans and errors name it."""
    path = getattr(sink, "name", None) or getattr(sink, "path", None) or ""
    form = getattr(sink, "format", None)
    return f"{type(sink).__name__} {path}{f' ({form})' if form else ''}".strip()
