"""Publishing together: nothing lost, nothing twice, no sink ahead of another, wherever a process dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from arrow_frame import rows
from hypothesis import given, settings
from hypothesis import strategies as st
from sink_worlds import IDS, Crash, FileWorld, SqliteWorld, World

from drivetrain.api import sinks
from drivetrain.connectors.in_process.memory_sink import collected, collected_together
from drivetrain.connectors.opening import open_sink
from drivetrain.spark.connector.publishing import abort_after, is_transactional, publish_transaction
from drivetrain.spark.connector.sink import SinkContext, SinkWriter

WORLDS: list[Callable[[Path], World]] = [FileWorld, SqliteWorld]


def memory_sinks(*names: str) -> dict[str, SinkWriter]:
    found: dict[str, SinkWriter] = {
        name: open_sink(sinks.memory(name), SinkContext("app-1", name, "")) for name in names
    }
    for sink in found.values():
        sink.fresh()
    return found


@contextmanager
def dying_before(world: World, step: int) -> Iterator[None]:
    """Die before the step of that number; steps are numbered from 0."""
    left = step

    def before() -> None:
        nonlocal left
        if left == 0:
            raise Crash
        left -= 1

    with world.steps(before):
        yield


# -- which sinks, and how far --------------------------------------------------------------------------


def test_what_is_prepared_is_seen_when_it_is_published_and_not_before() -> None:
    both = memory_sinks("one", "two")
    one, two = both.values()
    assert is_transactional(one)
    assert is_transactional(two)
    one.prepare(rows(1, 2), 0)
    one.prepare(rows(3), 1)
    two.prepare(rows(4), 0)
    assert collected("one").num_rows == 0
    assert publish_transaction(both, 1, {"one": 0, "two": 0}) == {"one": 2, "two": 1}
    assert publish_transaction(both, 1, {"one": 0, "two": 0}) == {"one": 0, "two": 0}
    shown = collected_together("one", "two")
    assert [t["id"].to_pylist() for t in shown.values()] == [[1, 2], [4]]
    assert one.prepared() == [1]


def test_a_sink_that_is_not_told_how_far_shows_nothing() -> None:
    both = memory_sinks("one", "two")
    for sink in both.values():
        assert is_transactional(sink)
        sink.prepare(rows(1), 0)
    publish_transaction(both, 1, {"one": 0})
    assert collected("one").num_rows == 1
    assert collected("two").num_rows == 0


def test_preparing_again_replaces_and_aborting_forgets() -> None:
    both = memory_sinks("one")
    one = both["one"]
    assert is_transactional(one)
    one.prepare(rows(1), 0)
    one.prepare(rows(2, 3), 0)
    one.prepare(rows(4), 1)
    one.prepare(rows(5), 2)
    abort_after(one, 0)
    assert one.prepared() == [0]
    publish_transaction(both, 1, {"one": 2})
    assert collected("one")["id"].to_pylist() == [2, 3]
    one.prepare(rows(6), 3)
    abort_after(one, None)
    assert one.prepared() == []


class Committing:
    """A sink that publishes batch by batch, as Kafka's does."""

    guarantee = "exactly once"

    def __init__(self) -> None:
        self.waiting = [1, 2, 3]
        self.committed: list[int] = []

    def validate(self) -> None: ...
    def check_fresh(self) -> None: ...
    def fresh(self) -> None: ...
    def write(self, df: object, batch_id: int) -> int:
        raise NotImplementedError

    def prepare(self, df: object, batch_id: int) -> int:
        raise NotImplementedError

    def prepared(self) -> list[int]:
        return list(self.waiting)

    def abort(self, batch_id: int) -> None:
        self.waiting.remove(batch_id)

    def commit(self, batch_id: int) -> int:
        self.waiting.remove(batch_id)
        self.committed.append(batch_id)
        return 10


def test_a_sink_that_publishes_batch_by_batch_is_left_to_the_process_that_feeds_it() -> None:
    kafka = Committing()
    all_of_them = {"kafka": kafka, **memory_sinks("one")}
    assert is_transactional(kafka)
    assert publish_transaction(all_of_them, 1, {"kafka": 2}, own={"one"}) == {}
    assert kafka.committed == []
    assert publish_transaction(all_of_them, 1, {"kafka": 2}, own={"kafka"}) == {"kafka": 20}
    assert kafka.committed == [1, 2]
    assert publish_transaction(all_of_them, 1, {"kafka": 2}) == {"kafka": 0}


def test_a_sink_that_cannot_wait_has_no_part_in_it() -> None:
    console = open_sink(sinks.console(), SinkContext("app-1", "console", ""))
    assert not is_transactional(console)
    assert publish_transaction({"console": console}, 1, {"console": 3}) == {}
    abort_after(console, None)


# -- crashes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", WORLDS)
def test_wherever_a_process_dies_the_next_one_publishes_the_rest_once(
    make: Callable[[Path], World], tmp_path: Path
) -> None:
    step, died = 0, True
    while died:
        directory = tmp_path / str(step)
        directory.mkdir()
        world = make(directory)
        first = world.open()
        world.prepare(first["ledger"], 0, 1)
        world.prepare(first["balances"], 0, 2)
        before = {"balances": [2], "ledger": [1]}
        publish_transaction(first, 1, {"ledger": 0, "balances": 0})
        world.prepare(first["ledger"], 1, 3, 4)
        world.prepare(first["ledger"], 2, 5)
        world.prepare(first["balances"], 2, 6)
        world.prepare(first["balances"], 3, 7)  # behind the transaction
        last = {"ledger": 2, "balances": 2}
        after = {"balances": [2, 6], "ledger": [1, 3, 4, 5]}
        try:
            with dying_before(world, step):
                publish_transaction(first, 2, last)
            died = False
        except Crash:
            died = True
        assert world.shown() in (before, after), step
        again = world.open()
        publish_transaction(again, 2, last)
        assert world.shown() == after, step
        assert again["ledger"].prepared() == []
        assert again["balances"].prepared() == [3]
        publish_transaction(world.open(), 3, {"ledger": 2, "balances": 3})
        assert world.shown() == {"balances": [2, 6, 7], "ledger": [1, 3, 4, 5]}
        step += 1
    assert step > 4


@pytest.mark.parametrize("make", WORLDS)
def test_two_processes_that_publish_at_once_show_everything_once(
    make: Callable[[Path], World], tmp_path: Path
) -> None:
    world = make(tmp_path)
    feeding, other = world.open(), world.open()
    failures: list[Exception] = []
    for batch in range(15):
        world.prepare(feeding["ledger"], batch, batch)
        world.prepare(feeding["balances"], batch, -batch)
        last = {"ledger": batch, "balances": batch}

        def publish(opened: dict[str, SinkWriter], last: dict[str, int] = last, txid: int = batch) -> None:
            try:
                publish_transaction(opened, txid, last)
            except Exception as error:  # noqa: BLE001 - told by the test
                failures.append(error)

        both = [threading.Thread(target=publish, args=(opened,)) for opened in (feeding, other)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(30)
        assert failures == []
    assert world.shown() == {"balances": [-n for n in range(15)], "ledger": list(range(15))}


@given(
    seed=st.integers(0, 10**6),
    life=st.lists(
        st.one_of(
            st.tuples(st.just("prepare"), st.sampled_from(IDS), st.integers(0, 3)),
            st.tuples(st.just("checkpoint"), st.just(""), st.one_of(st.none(), st.integers(0, 12))),
            st.tuples(st.just("restore"), st.just(""), st.just(0)),
            st.tuples(st.just("reopen"), st.just(""), st.just(0)),
        ),
        max_size=12,
    ),
)
@settings(max_examples=40)
@pytest.mark.parametrize("make", WORLDS)
def test_readers_see_whole_transactions_whatever_happens(
    make: Callable[[Path], World], seed: int, life: list[tuple[str, str, int]]
) -> None:
    with TemporaryDirectory() as directory:
        world = make(Path(directory))
        opened = world.open()
        value = seed
        next_batch = {"balances": 0, "ledger": 0}  # behind what is prepared
        record = {"balances": -1, "ledger": -1}
        shown: dict[str, list[int]] = {"balances": [], "ledger": []}
        waiting: dict[str, dict[int, list[int]]] = {"balances": {}, "ledger": {}}
        txid = 0
        for what, sink, number in life:
            if what == "prepare":
                values = list(range(value, value + number))
                value += number
                world.prepare(opened[sink], next_batch[sink], *values)
                waiting[sink][next_batch[sink]] = values
                next_batch[sink] += 1
            elif what == "restore":
                opened = world.open()
                for id in IDS:
                    abort_after(opened[id], record[id])
                    next_batch[id] = record[id] + 1
                    waiting[id] = {}
            elif what == "reopen":
                opened = world.open()
            else:
                txid += 1
                record = {id: next_batch[id] - 1 for id in IDS}
                before = {id: list(shown[id]) for id in IDS}
                for id in IDS:
                    shown[id] += [v for _, values in sorted(waiting[id].items()) for v in values]
                    waiting[id] = {}
                try:
                    with dying_before(world, 10**9 if number is None else number):
                        publish_transaction(opened, txid, record)
                except Crash:
                    assert world.shown() in (before, shown)
                    opened = world.open()
                    publish_transaction(opened, txid, record)
            assert world.shown() == shown
