"""Sinks of tables without Spark, in each format: what a table has, whoever dies, is late or interferes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from arrow_frame import frame, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from sink_worlds import Crash
from table_worlds import WORLDS, TableWorld

from drivetrain.connectors.iceberg import synced_files
from drivetrain.connectors.tables import appended_files
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OutputError, UnavailableError
from drivetrain.spark.connector.publishing import abort_after, publish_transaction
from nightly_run import examples, is_nightly


@pytest.fixture(params=WORLDS)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> TableWorld:
    return WORLDS[request.param](tmp_path)


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is synced, another test looks at; here it would only take time."""
    monkeypatch.setattr(synced_files, "sync", lambda path: None)


def accounts(tables: TableWorld) -> dict[str, int]:
    return dict(tables.read().select("account", "balance").rows())


def upserting(tables: TableWorld, **how: Any) -> Any:
    return tables.open(mode="upsert", key="account", **how)


def refused(tables: TableWorld, match: str, *, batch: int = 1, how: Any = None, **columns: Any) -> None:
    with pytest.raises(OutputError, match=match):
        tables.open(**(how or {})).write(frame(**columns), batch)


# -- batches -------------------------------------------------------------------------------------------


def test_a_batch_is_published_once_in_any_process(tables: TableWorld) -> None:
    first = tables.open()
    first.validate()
    assert first.write(rows(1, 2), 0) == 2
    assert first.write(rows(1, 2), 0) == 0
    again = tables.open()
    again.validate()
    assert again.write(rows(8), 0) == 0
    assert again.write(rows(3), 1) == 1
    assert again.write(rows(), 2) == 0
    assert tables.ids() == [1, 2, 3]


def test_batches_of_a_checkpoint_are_one_commit(tables: TableWorld) -> None:
    sink = tables.open()
    for batch in range(4):
        assert sink.prepare(rows(batch), batch) == 1
    assert sink.prepared() == [0, 1, 2, 3]
    assert tables.ids() == []
    before = tables.version()
    assert publish_transaction({"a": sink}, 1, {"a": 2}) == {"a": 3}
    assert tables.version() == before + 1
    assert tables.ids() == [0, 1, 2]
    assert publish_transaction({"a": tables.open()}, 1, {"a": 2}) == {"a": 0}
    assert publish_transaction({"a": tables.open()}, 2, {"a": 3}) == {"a": 1}
    assert sink.prepare(rows(9), 3) == 0


def test_what_is_aborted_or_computed_again_is_never_seen_and_its_files_are_deleted(
    tables: TableWorld,
) -> None:
    sink = tables.open()
    sink.prepare(rows(1), 0)
    sink.prepare(rows(2), 1)
    sink.prepare(rows(3), 2)
    again = tables.open()
    abort_after(again, 0)
    assert again.prepared() == [0]
    assert publish_transaction({"a": again}, 1, {"a": 0}) == {"a": 1}
    again.prepare(rows(4), 1)
    assert again.prepare(rows(5, 6), 1) == 2
    assert publish_transaction({"a": again}, 2, {"a": 1}) == {"a": 2}
    assert tables.ids() == [1, 5, 6]
    again.write(rows(7), 2)
    assert tables.data() == tables.shown()


def test_files_of_a_dead_process_are_deleted_when_nobody_can_commit_them(tables: TableWorld) -> None:
    dead = tables.open()
    dead.write(rows(1), 0)
    with pytest.raises(Crash), patch.object(appended_files, "write_whole", side_effect=Crash):
        dead.prepare(rows(2), 1)
    other = tables.open("other")
    other.prepare(rows(10), 1)
    orphans = tables.data() - tables.shown()
    assert len(orphans) == 2
    sink = tables.open()
    assert sink.write(rows(2), 1) == 1
    assert tables.data() - tables.shown() == {n for n in orphans if n.startswith("drivetrain-other-")}
    assert publish_transaction({"o": other}, 1, {"o": 1}) == {"o": 1}
    assert tables.ids() == [1, 2, 10]


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 12), max_size=6), st.booleans())
@pytest.mark.parametrize("kind", WORLDS)
def test_every_row_is_there_once_wherever_processes_die(
    kind: str, deaths: list[int], with_checkpoints: bool
) -> None:
    with TemporaryDirectory() as place:
        tables = WORLDS[kind](Path(place))
        committed, waiting = -1, [*deaths, 10_000]
        while committed < 5:
            sink = tables.open()
            try:
                with tables.dying_before(waiting[0]):
                    if with_checkpoints:
                        abort_after(sink, committed)  # what the record does not have runs again
                    while committed < 5:
                        committed = step(sink, committed, with_checkpoints)
            except Crash:
                del waiting[0]
        assert tables.ids() == [0, 1, 2, 3, 4, 5]
        assert tables.by_duckdb("id") == [(id,) for id in range(6)]


def step(sink: Any, committed: int, with_checkpoints: bool) -> int:
    """Run a batch, or a checkpoint of two; returns the last one that Spark does not run again."""
    if not with_checkpoints:
        sink.write(rows(committed + 1), committed + 1)
        return committed + 1
    for batch in (committed + 1, committed + 2):
        sink.prepare(rows(batch), batch)
    publish_transaction({"a": sink}, 1, {"a": committed + 2})
    return committed + 2


# -- processes that are late ---------------------------------------------------------------------------


def test_of_two_processes_with_the_same_batch_one_publishes_it(tables: TableWorld) -> None:
    zombie, sink = tables.open(), tables.open()
    zombie.write(rows(1), 0)
    zombie.prepare(rows(2), 1)
    sink.prepare(rows(2), 1)
    late = tables.open()
    assert publish_transaction({"a": sink}, 1, {"a": 1}) == {"a": 1}
    assert publish_transaction({"a": zombie}, 1, {"a": 1}) == {"a": 0}
    assert publish_transaction({"a": late}, 1, {"a": 1}) == {"a": 0}
    assert tables.ids() == [1, 2]


def test_a_process_that_slept_before_its_commit_is_refused(tables: TableWorld) -> None:
    sink, zombie = tables.open(), tables.open()
    sink.write(rows(1), 0)

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not woken:
            woken.append(point)
            assert sink.write(rows(2), 1) == 1

    woken: list[CrashPoint] = []
    with armed(overtaken):
        assert zombie.write(rows(2), 1) == 0
    assert woken
    assert tables.ids() == [1, 2]


def test_a_run_whose_table_was_started_over_is_refused(tables: TableWorld) -> None:
    zombie = tables.open()
    zombie.write(rows(1), 0)

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION:
            tables.open(on_fresh="keep").fresh()

    with armed(overtaken), pytest.raises(OutputError, match="another run has taken over"):
        zombie.write(rows(2), 1)
    assert tables.ids() == [1]


def test_commits_of_others_are_waited_for_and_no_longer_than_the_timeout(tables: TableWorld) -> None:
    sink = tables.open(timeout="2 s")
    sink.write(rows(1), 0)
    other = tables.open("b", evolve=True)
    names = itertools.count()

    def change(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION:
            tables.interfere(f"c{next(names)}")

    with armed(change), pytest.raises(UnavailableError, match="other writers change the table"):
        sink.write(rows(2), 1)
    assert next(names) > 1
    assert sink.write(rows(2), 1) == 1
    assert other.write(rows(3), 0) == 1
    assert tables.ids() == [1, 2, 3]


def test_several_processes_may_create_the_table(tables: TableWorld) -> None:
    """Each writes its first batch when all have seen that there is no table."""
    together = threading.Barrier(4)
    create = tables.target.create

    def created(*args: Any) -> Any:
        if threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            together.wait(60)
        return create(*args)

    written: list[int] = []
    waited: set[int] = set()
    with patch.object(tables.target, "create", created):
        writers = [
            threading.Thread(target=lambda n=n: written.append(tables.open(f"s{n}").write(rows(n), 0)))  # type: ignore[misc]
            for n in range(4)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
    assert written == [1, 1, 1, 1]
    assert tables.ids() == [0, 1, 2, 3]


def test_two_applications_and_a_compaction_on_one_table(tables: TableWorld) -> None:
    batches = 12 if is_nightly() else 4
    errors: list[BaseException] = []
    compacted: list[bool] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                errors.append(error)

        return run

    def write(app: str, first: int) -> None:
        sink = tables.open(app=app)
        for batch in range(batches):
            sink.write(rows(first + batch), batch)

    def compact() -> None:
        while any(writer.is_alive() for writer in writers):
            if tables.exists():
                compacted.append(tables.compact())

    writers = [
        threading.Thread(target=guarded(lambda app=app, first=first: write(app, first)))  # type: ignore[misc]
        for app, first in (("one", 0), ("two", 100))
    ]
    compacting = threading.Thread(target=guarded(compact))
    for thread in (*writers, compacting):
        thread.start()
    for thread in (*writers, compacting):
        thread.join(120)
    assert errors == []
    assert any(compacted) or tables.compact(), "those beside the writers may all have met a commit of theirs"
    assert tables.ids() == [*range(batches), *range(100, 100 + batches)]


# -- states --------------------------------------------------------------------------------------------


def test_rows_of_another_state_are_not_added_to(tables: TableWorld) -> None:
    tables.open().write(rows(1), 0)
    other = tables.open(state="other")
    with pytest.raises(OutputError, match="another state directory"):
        other.validate()
    tables.open("b", state="other").validate()


@pytest.mark.parametrize(("choice", "left"), [("keep", [1, 2]), ("empty", [2])])
def test_a_fresh_start_does_what_the_sink_says(tables: TableWorld, choice: str, left: list[int]) -> None:
    tables.open().check_fresh()
    tables.open().write(rows(1), 3)
    with pytest.raises(OutputError, match="cannot be distinguished"):
        tables.open().check_fresh()
    sink = tables.open(on_fresh=choice)
    sink.prepare(rows(7), 4)
    sink.check_fresh()
    sink.fresh()
    sink.validate()
    assert sink.write(rows(2), 0) == 1
    assert tables.ids() == left
    assert tables.open().prepared() == []


# -- columns -------------------------------------------------------------------------------------------


def test_columns_that_do_not_fit_are_refused_before_anything_is_written(tables: TableWorld) -> None:
    tables.open(partition_by="p").write(frame(id=pa.array([1], pa.int64()), p=["x"]), 0)
    before = tables.data()
    refused(tables, "has no column q", id=pa.array([1], pa.int64()), p=["x"], q=[1])
    refused(tables, "another type in the table", id=["one"], p=["x"])
    refused(tables, "only in capital letters", ID=pa.array([1], pa.int64()), p=["x"])
    refused(tables, "cannot be the name", **{"a b": [1], "p": ["x"]})
    refused(tables, "no equivalent for the type", id=pa.array([1], pa.duration("us")), p=["x"])
    refused(tables, "has no column r", how={"partition_by": "r"}, id=pa.array([1], pa.int64()), p=["x"])
    refused(tables, "has other partitions", how={"partition_by": "id"}, id=pa.array([1]), p=["x"])
    assert tables.data() == before
    assert tables.open().write(frame(p=["y"], id=pa.array([2], pa.int32())), 1) == 1
    assert tables.ids() == [1, 2]


def test_columns_are_added_only_when_asked(tables: TableWorld) -> None:
    tables.open().write(rows(1), 0)
    waiting = tables.open("b")
    waiting.prepare(rows(2), 0)
    sink = tables.open(evolve=True)
    assert sink.write(frame(id=pa.array([3], pa.int64()), note=["new"]), 1) == 1
    assert publish_transaction({"b": waiting}, 1, {"b": 0}) == {"b": 1}
    assert sink.write(rows(4), 2) == 1
    table = tables.read().sort("id")
    assert table.rows() == [(1, None), (2, None), (3, "new"), (4, None)]


def test_a_batch_that_waits_for_a_table_with_other_columns_says_so(tables: TableWorld) -> None:
    sink = tables.open()
    sink.prepare(rows(1), 0)
    other = pa.schema([("id", pa.string())])
    tables.create(other)
    with pytest.raises(OutputError, match="another type in the table"):
        publish_transaction({"a": sink}, 1, {"a": 0})
    assert sink.prepared() == [0]


def test_a_file_that_was_lost_while_it_waited_is_an_error(tables: TableWorld) -> None:
    sink = tables.open()
    sink.prepare(rows(1), 0)
    for path in tables.directory.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(OutputError, match="one of its files is damaged"):
        publish_transaction({"a": tables.open()}, 1, {"a": 0})
    assert tables.ids() == []


# -- upsert --------------------------------------------------------------------------------------------


def balances(**amounts: int | None) -> Any:
    return frame(account=list(amounts), balance=pa.array(list(amounts.values()), pa.int64()))


@pytest.mark.usefixtures("_staged")
def test_a_row_replaces_the_one_with_its_key_once(tables: TableWorld) -> None:
    sink = upserting(tables)
    sink.validate()
    assert sink.write(balances(a=1, b=2), 0) == 2
    assert sink.write(balances(b=3, c=4), 1) == 2
    assert upserting(tables).write(balances(b=7), 1) == 0
    assert accounts(tables) == {"a": 1, "b": 3, "c": 4}
    sink.prepare(balances(a=5), 2)
    sink.prepare(balances(a=6, d=7), 3)
    assert publish_transaction({"a": upserting(tables)}, 1, {"a": 3}) == {"a": 3}
    assert accounts(tables) == {"a": 6, "b": 3, "c": 4, "d": 7}
    assert dict(tables.by_duckdb("account", "balance")) == accounts(tables)
    with pytest.raises(OutputError, match="some rows have no key"):
        sink.write(frame(account=pa.array([None], pa.string()), balance=pa.array([1], pa.int64())), 4)
    other = upserting(tables, state="other")
    other.validate()
    assert other.write(balances(a=9), 0) == 1
    assert accounts(tables)["a"] == 9


@pytest.mark.usefixtures("_staged")
def test_of_rows_with_one_key_the_newest_counts_or_the_last(tables: TableWorld) -> None:
    def twice(*values: tuple[str, int, int | None]) -> Any:
        account, balance, at = zip(*values, strict=True)
        return frame(
            account=list(account), balance=pa.array(balance, pa.int64()), at=pa.array(at, pa.int64())
        )

    several = [("a", 1, 5), ("b", 2, None), ("a", 3, 4), ("b", 4, 1), ("c", 5, 1), ("c", 6, 1)]
    last, newest = (type(tables)(tables.directory / name) for name in ("last", "newest"))
    for world in (last, newest):
        world.directory.mkdir()
    assert upserting(last).write(twice(*several), 0) == 6
    assert upserting(newest, newest="at").write(twice(*several), 0) == 6
    assert accounts(last) == {"a": 3, "b": 4, "c": 6}
    assert accounts(newest) == {"a": 1, "b": 4, "c": 6}


@pytest.mark.usefixtures("_staged")
def test_a_late_merge_of_the_same_batch_is_refused(tables: TableWorld) -> None:
    sink, zombie = upserting(tables), upserting(tables)
    sink.write(balances(a=1), 0)

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not woken:
            woken.append(point)
            sink.write(balances(a=2), 1)
            sink.write(balances(a=3), 2)

    woken: list[CrashPoint] = []
    with armed(overtaken):
        assert zombie.write(balances(a=2), 1) == 0
    assert woken
    assert accounts(tables) == {"a": 3}
