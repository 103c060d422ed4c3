"""Where a replay drops what is older, how lives are numbered, and what a store keeps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.api import Application, agg, sinks, sources, windows
from drivetrain.api.expressions.columns import col
from drivetrain.api.expressions.spark_functions import F
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.location import Location
from drivetrain.api.operations import EventTime, Read, Union, Write
from drivetrain.core.replay.replay import (
    Life,
    Replay,
    ReplayError,
    RetainedEntries,
    RetainedEntry,
    first_row,
    replay_of,
    source_time,
)
from drivetrain.errors import InternalError

HERE = Location("app.py", 1)
SCHEMA = "ts timestamp, key string"


def csv(event_time: str | None = None) -> sources.CsvFiles:
    return sources.csv("/in", schema=SCHEMA, event_time=event_time)


def replayed(app: Application) -> Replay:
    graph = app.graph()
    replay = replay_of(graph, 1000)
    replay.check(graph)
    return replay


def test_a_source_that_declares_event_time_drops_at_itself() -> None:
    app = Application("app")
    stream = app.read(csv("ts"), name="in").event_time(col("ts") + 1, max_disorder="0 s")
    stream.sink(sinks.none())
    found = replayed(app).sources["in"]
    assert found.places == ("in",)
    assert found.column == "ts"


def test_event_time_behind_a_source_drops_there_and_names_the_column() -> None:
    app = Application("app")
    timed = app.read(csv(), name="in").event_time("ts", max_disorder="0 s", name="timed")
    timed.group_by("key").window(windows.tumbling("1 s")).count().sink(sinks.none())
    timed.sink(sinks.none())
    found = replayed(app).sources["in"]
    assert (found.places, found.column) == (("timed",), "ts")


def test_a_computed_event_time_has_no_column() -> None:
    app = Application("app")
    timed = app.read(csv(), name="in").filter("key is not null").event_time("ts", max_disorder="0 s")
    timed.sink(sinks.none())
    computed = app.read(csv(), name="other").event_time(F.to_timestamp("key"), max_disorder="0 s")
    computed.sink(sinks.none())
    found = replayed(app).sources
    assert found["in"].column is None
    assert found["other"].column is None


def test_a_stored_source_without_event_time_goes_by_arrival() -> None:
    app = Application("app")
    app.read(sources.socket("localhost", 9999), name="lines").sink(sinks.none())
    found = replayed(app).sources["lines"]
    assert found.by_arrival
    assert found.places == ("lines",)


@pytest.mark.parametrize("state", [True, False])
def test_a_source_without_event_time_is_refused_by_name(state: bool) -> None:
    app = Application("app")
    stream: Any = app.read(csv(), name="in")
    if state:
        stream = stream.group_by("key").aggregate(n=agg.count())
    stream.sink(sinks.none(), name="out")
    with pytest.raises(ReplayError, match="no timestamp") as refused:
        replayed(app)
    assert "in (" in str(refused.value)


def test_a_stored_source_whose_messages_reach_a_sink_with_and_without_event_time_is_refused() -> None:
    app = Application("app")
    stream = app.read(sources.socket("localhost", 9999), name="lines")
    stream.sink(sinks.none(), name="raw")
    stream.event_time(F.to_timestamp("value"), max_disorder="0 s").sink(sinks.none())
    with pytest.raises(ReplayError) as refused:
        replayed(app)
    assert "raw" in str(refused.value)


def test_a_first_timestamp_where_others_get_their_second_is_refused() -> None:
    app = Application("app")
    one = app.read(csv("ts"), name="one")
    other = app.read(csv(), name="other")
    one.union(other).event_time("ts", max_disorder="0 s").sink(sinks.none())
    with pytest.raises(ReplayError, match="second"):
        replayed(app)


def test_tables_are_read_whole() -> None:
    app = Application("app")
    table = app.table(csv(), name="table")
    app.read(csv("ts"), name="in").join(table, on="key").sink(sinks.none())
    assert set(replayed(app).sources) == {"in"}


# -- against a naive model -----------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Layers of sources, event times, unions and sinks, in topological order."""
    nodes: dict[str, Node] = {}
    for i in range(draw(st.integers(1, 3))):
        declared = draw(st.sampled_from(["ts", None]))
        nodes[f"read-{i}"] = Node(f"read-{i}", Read(csv(declared)), (), HERE)
    for i in range(draw(st.integers(0, 5))):
        ups = draw(st.lists(st.sampled_from(sorted(nodes)), min_size=1, max_size=3, unique=True))
        if len(ups) == 1 and draw(st.booleans()):
            nodes[f"time-{i}"] = Node(f"time-{i}", EventTime(col("ts"), 0), tuple(ups), HERE)
        else:
            nodes[f"union-{i}"] = Node(f"union-{i}", Union(), tuple(ups), HERE)
    graph = Graph("app", nodes)
    for id in [id for id in nodes if not graph.consumers(id)]:
        nodes[f"sink-{id}"] = Node(f"sink-{id}", Write(sinks.none()), (id,), HERE)
    return graph


def paths(graph: Graph, id: str) -> list[list[str]]:
    consumers = graph.consumers(id)
    return [[id, *rest] for c in consumers for rest in paths(graph, c.id)] if consumers else [[id]]


def assigns(graph: Graph, id: str) -> bool:
    operation = graph.nodes[id].operation
    if isinstance(operation, Read):
        return operation.source.event_time is not None
    return isinstance(operation, EventTime)


@given(graphs())
def test_every_path_is_filtered_once_at_its_first_event_time_or_the_replay_is_refused(graph: Graph) -> None:
    all_paths = [path for id, n in graph.nodes.items() if not n.inputs for path in paths(graph, id)]
    firsts = [next((id for id in path if assigns(graph, id)), None) for path in all_paths]
    behind = {id for path, first in zip(all_paths, firsts, strict=True) for id in _after(path, first)}
    possible = None not in firsts and not behind & set(firsts)
    try:
        replay = replay_of(graph, 0)
    except ReplayError:
        assert not possible
        return
    assert possible
    replay.check(graph)
    assert {id for id in graph.nodes if replay.drops_at(id)} == set(firsts)
    for path, first in zip(all_paths, firsts, strict=True):
        assert first in replay.sources[path[0]].places
        assert source_time(graph, path[0]) == replay.sources[path[0]]


def _after(path: list[str], first: str | None) -> list[str]:
    return [] if first is None else path[path.index(first) + 1 :]


def test_check_finds_a_path_without_a_place_and_one_with_two() -> None:
    app = Application("app")
    timed = app.read(csv("ts"), name="in").event_time("ts", max_disorder="0 s", name="timed")
    timed.sink(sinks.none())
    graph, fits = app.graph(), replayed(app).sources["in"]
    with pytest.raises(InternalError, match="invariant 2"):
        Replay(0, {"in": dataclasses.replace(fits, places=())}).check(graph)
    with pytest.raises(InternalError, match="invariant 1"):
        Replay(0, {"in": dataclasses.replace(fits, places=("in", "timed"))}).check(graph)


# -- positions -----------------------------------------------------------------------------------------


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**7), st.integers(-(10**6), 10**6))
def test_the_first_row_is_the_first_that_is_not_older(start_us: int, step_us: int, from_ms: int) -> None:
    row = first_row(start_us, step_us, from_ms)
    assert start_us + row * step_us >= from_ms * 1000
    assert row == 0 or start_us + (row - 1) * step_us < from_ms * 1000


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=12),
    st.integers(0, 200),
    st.integers(0, 100),
    st.integers(0, 12),
    st.sets(st.integers(0, 12)),
)
def test_a_store_keeps_the_longest_tail_within_all_bounds(
    known: list[tuple[int, int]], keep_bytes: int, keep_ms: int, keep_entries: int, drop_after: set[int]
) -> None:
    now_ms = 100
    entries = [(n, size, at) for n, (size, at) in enumerate(sorted(known, key=lambda e: e[1]))]

    def fits(first: int) -> bool:
        tail = entries[first:]
        fresh = all(e[2] >= now_ms - keep_ms for e in tail)
        return fresh and sum(e[1] for e in tail) <= keep_bytes and len(tail) <= keep_entries

    wanted = min((n for n in range(len(entries)) if fits(n)), default=len(entries))
    tail, dropped = RetainedEntries(), []
    for n, size, at in entries:
        tail.add(RetainedEntry(n, size, at, n))
        if n in drop_after:
            dropped += tail.drop(keep_bytes=10**6, keep_ms=10**6, keep_entries=keep_entries, now_ms=now_ms)
    dropped += tail.drop(keep_bytes=keep_bytes, keep_ms=keep_ms, keep_entries=keep_entries, now_ms=now_ms)
    assert [kept.number for kept in dropped] == list(range(wanted))


def test_what_a_store_keeps_is_dense() -> None:
    tail = RetainedEntries()
    tail.add(RetainedEntry(7, 1, 0, None))
    with pytest.raises(InternalError):
        tail.add(RetainedEntry(9, 1, 0, None))
    assert tail.end == 8


@given(st.lists(st.integers(-1, 20), max_size=6))
def test_batch_numbers_of_lives_never_meet(last_batches: list[int]) -> None:
    life, taken = Life(), -1
    for last in last_batches:
        numbers = range(life.first_batch, life.first_batch + last + 2)  # one more than Spark has numbered
        assert numbers.start > taken
        taken = max(taken, numbers[-1])
        life = life.next(0, last)
        assert life.first_batch > taken
    assert life.number == 1 + len(last_batches)


def test_a_batch_number_that_cannot_be_is_refused() -> None:
    with pytest.raises(InternalError):
        Life().next(0, -2)
