"""Replay from a timestamp T: which messages of each source are processed again, and how lives are numbered.

Problem: an application was wrong, or its outputs were lost, from some moment on. Its messages from T on are
to be processed again: each message with a timestamp at or after T, and none before, although sources hold
messages in no order and know positions (files, offsets, rows) rather than timestamps.

Design: a source begins at the first position that can hold a message of T or later, and a filter at the place
where the message gets its timestamp drops older ones. The position may be too early, never too late; the
filter makes it exact. State, channels and Spark's checkpoints belong to a *life* of the application: a replay
begins the next life with nothing but T. Lives share what is outside of the application: sources' stores,
sinks, dead letters. These distinguish batches by number, so numbers continue from life to life
(`Life.first_batch`), and a sink that skips batches it has already written never mistakes a batch of one life
for a batch of another.

A message is as old as its first timestamp. So on each path from a source the first event time counts, and one
that an operator assigns later does not. Where nothing assigns one, a source that is stored at its end uses
the time at which a message was stored; any other source cannot be replayed from a timestamp.

Invariants:

1. On every path from a replayed source exactly one place drops messages older than T.
2. No stateful processor and no sink comes before that place.
3. The lives of an application are numbered 1, 2, …, and no batch number of a life was used in an earlier one.

Called by layer `spark`: `execution` (the plan), `run_directory` (lives), `source_store` (how much a store
keeps). Source: timestamp replay and the message store of Apache Gearpump; the timestamp index of Apache
Kafka's log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.sources import is_stored_first
from drivetrain.errors import InternalError, UserError

FIRST_LIFE = 1
FAR = 100_000_000
"""A batch a second for three years; columns of users may have 32 bits."""


class ReplayError(UserError):
    """The application cannot be replayed from that timestamp; nothing was changed."""

    code = "cannot-replay"


class Life(msgspec.Struct, frozen=True):
    """One life of an application's state: `from_ms` is where its replay began (None: everything).

    `first_batch` is the number of the first batch of each of its fragments, as outputs see it.
    """

    number: int = FIRST_LIFE
    from_ms: int | None = None
    first_batch: int = 0

    def next(self, from_ms: int, last_batch: int) -> Life:
        """The life of a replay from `from_ms`, when this one's newest batch of any fragment is `last_batch`.

        A fragment may publish one more batch at its end than Spark has numbered.
        """
        if last_batch < -1:
            raise InternalError(f"not the number of a batch: {last_batch}")
        return Life(self.number + 1, from_ms, self.first_batch + last_batch + 2)

    def elsewhere(self) -> Life:
        """The life that continues from a savepoint of this one, while this one may continue too.

        How far this one has come is unknown: it is assumed to use fewer than `FAR` more numbers.
        """
        return Life(self.number + 1, self.from_ms, self.first_batch + FAR)


@dataclass(frozen=True)
class SourceTime:
    """Where the messages of a source get their first timestamp.

    `places` are the processors that assign it (the source itself, or `EventTime`s); with `by_arrival` only
    the source. `column` is the source's own column that holds it unchanged, None if it is computed.
    """

    places: tuple[str, ...]
    column: str | None = None
    by_arrival: bool = False


@dataclass(frozen=True)
class Replay:
    """A replay of one graph from `from_ms`; `sources` are keyed by processor id."""

    from_ms: int
    sources: Mapping[str, SourceTime] = field(default_factory=dict)

    def drops_at(self, id: str) -> bool:
        """Whether older messages are dropped after processor `id`."""
        return any(id in source.places for source in self.sources.values())

    def check(self, graph: Graph) -> None:
        """Verify invariants 1 and 2 by walking every path; raises InternalError."""
        for id in self.sources:
            _check_paths(graph, graph.nodes[id], self, dropped=self.drops_at(id))


def replay_of(graph: Graph, from_ms: int) -> Replay:
    """How `graph` is replayed from `from_ms`.

    Raises `ReplayError` for a source whose messages have no timestamp where one is needed.
    """
    sources = {}
    for node in graph.nodes.values():
        if node.operation.stream_source is not None:
            sources[node.id] = _replayable(graph, node)
    replay = Replay(from_ms, sources)
    for place in (p for source in sources.values() for p in source.places):
        again = next((id for id in _behind(graph, place) if replay.drops_at(id)), None)
        if again is not None:
            raise ReplayError(
                "some messages get their first timestamp where others get their second one",
                where=str(graph.nodes[again]),
                expected="event time that is assigned before streams are united",
                got=f"messages that have got theirs at {graph.nodes[place]}",
                remedy="declare event_time= on each source",
            )
    return replay


def source_time(graph: Graph, id: str) -> SourceTime | None:
    """Where the messages of source `id` get their first timestamp; None when some reach a stateful processor
    or sink without one.
    """
    times, gaps = _walk(graph, graph.nodes[id])
    return None if gaps else times


def replay_of_way(graph: Graph, from_ms: int, sources: Iterable[str], to: str) -> Replay:
    """How the messages of `sources` are read again from `from_ms` on for the messages of processor `to`.

    Raises `ReplayError` for a source whose messages come to `to` without a timestamp.
    """
    found: dict[str, SourceTime] = {}
    before = {to, *(id for id in graph.nodes if to in _behind(graph, id))}
    for id in sources:
        if id not in before:
            continue
        node = graph.nodes[id]
        times, _ = _walk(graph, node)
        places = tuple(place for place in times.places if place in before)
        is_stored = is_stored_first(node.operation.stream_source)
        if not times.places and is_stored:
            found[id] = SourceTime((id,), by_arrival=True)
        elif places and not _comes_untimed(graph, id, to, frozenset(places)):
            found[id] = SourceTime(places, times.column)
        else:
            raise ReplayError(
                "messages have no timestamp where a new fragment begins, so no time selects the former ones",
                where=str(graph.nodes[to]),
                expected=f"event time on every way from {id} to it",
                remedy="attach to a processor after .event_time(...), or declare event_time= on the source",
            )
    return Replay(from_ms, found)


def _comes_untimed(graph: Graph, id: str, to: str, places: frozenset[str]) -> bool:
    """Whether messages of `id` can come to `to` without passing one of `places`."""
    if id in places:
        return False
    if id == to:
        return True
    return any(_comes_untimed(graph, consumer.id, to, places) for consumer in graph.consumers(id))


def has_event_time(graph: Graph, id: str) -> bool:
    """Whether messages of source `id` get a timestamp anywhere."""
    return bool(_walk(graph, graph.nodes[id])[0].places)


def _replayable(graph: Graph, node: Node) -> SourceTime:
    if isinstance(node.operation.stream_source, ApplicationStream):
        raise ReplayError(
            "another application keeps the messages of its stream only until they are read",
            where=str(node),
            expected="sources that keep their messages",
            remedy="have the other application write its messages to files or a Kafka topic and read those, "
            "or start over with --fresh",
        )
    times, gaps = _walk(graph, node)
    if not gaps:
        return times
    # Messages of a one-pass source are stored first, with the time of their arrival.
    is_stored = is_stored_first(node.operation.stream_source)
    if is_stored and not times.places:
        return SourceTime((node.id,), by_arrival=True)
    raise ReplayError(
        "the messages of a source have no timestamp, so a replay cannot select them",
        where=str(node),
        expected="event time on every path from the source to stateful operators and sinks",
        got=f"none on the path to {gaps[0]}",
        remedy="declare it with event_time= on the source, or with .event_time(...) directly after it",
    )


def _walk(graph: Graph, node: Node) -> tuple[SourceTime, list[Node]]:
    """The first event times after a source, and the processors that its messages reach without any."""
    source = node.operation.stream_source
    if source is not None and source.event_time is not None:
        return SourceTime((node.id,), source.event_time), []
    places: dict[str, Node] = {}
    gaps: dict[str, Node] = {}
    stack, seen = [node.id], {node.id}
    while stack:
        for consumer in graph.consumers(stack.pop()):
            if consumer.operation.assigned_time is not None:
                places[consumer.id] = consumer
            elif consumer.operation.needs_event_time:
                gaps[consumer.id] = consumer
            elif consumer.id not in seen:
                seen.add(consumer.id)
                stack.append(consumer.id)
    columns = {_plain(place, node.id) for place in places.values()}
    column = columns.pop() if len(columns) == 1 else None
    return SourceTime(tuple(sorted(places)), column), list(gaps.values())


def _plain(place: Node, source: str) -> str | None:
    """The column of the source that `place` uses unchanged; None if it computes something."""
    operation = place.operation.assigned_time
    if operation is None or place.inputs != (source,):
        return None
    column = operation.column
    is_name = column.op == "function:col" and len(column.args) == 1 and isinstance(column.args[0], str)
    return str(column.args[0]) if is_name else None


def _behind(graph: Graph, id: str) -> list[str]:
    """The processors that messages can reach from `id`, without itself."""
    found: dict[str, None] = {}
    stack = [id]
    while stack:
        for consumer in graph.consumers(stack.pop()):
            if consumer.id not in found:
                found[consumer.id] = None
                stack.append(consumer.id)
    return list(found)


def _check_paths(graph: Graph, node: Node, replay: Replay, *, dropped: bool) -> None:
    for consumer in graph.consumers(node.id):
        if not dropped and consumer.operation.needs_event_time:
            raise InternalError(f"replay invariant 2: {consumer.id} gets messages of any age")
        if dropped and replay.drops_at(consumer.id):
            raise InternalError(f"replay invariant 1: {consumer.id} drops behind another place")
        _check_paths(graph, consumer, replay, dropped=dropped or replay.drops_at(consumer.id))


# -- positions ---------------------------------------------------------------------------------------


def first_row(start_us: int, step_us: int, from_ms: int) -> int:
    """The first row at or after `from_ms`, of rows every `step_us` (1 or more) from `start_us` on."""
    return max(0, -(-(from_ms * 1000 - start_us) // step_us))


class RetainedEntry(NamedTuple):
    """An entry of a store that was read: its size, when it was stored, its newest timestamp if any."""

    number: int
    bytes: int
    stored_ms: int
    newest_ms: int | None


class RetainedEntries:
    """The entries that a store keeps for replays after they were read, oldest first, densely numbered."""

    def __init__(self) -> None:
        self._entries: deque[RetainedEntry] = deque()
        self._bytes = 0

    @property
    def end(self) -> int | None:
        """The number after the newest entry; None when there is none."""
        return self._entries[-1].number + 1 if self._entries else None

    def add(self, entry: RetainedEntry) -> None:
        """One more entry was read; raises InternalError unless it follows the newest."""
        if self.end not in (None, entry.number):
            raise InternalError(f"entry {entry.number} of a store does not follow entry {self.end}")
        self._entries.append(entry)
        self._bytes += entry.bytes

    def drop(self, *, keep_bytes: int, keep_ms: int, keep_entries: int, now_ms: int) -> list[RetainedEntry]:
        """Drop the oldest while there are too many bytes or entries, or they are too old; returns them."""
        gone = []
        while self._entries and (
            self._bytes > keep_bytes
            or len(self._entries) > keep_entries
            or self._entries[0].stored_ms < now_ms - keep_ms
        ):
            gone.append(self._entries.popleft())
            self._bytes -= gone[-1].bytes
        return gone
