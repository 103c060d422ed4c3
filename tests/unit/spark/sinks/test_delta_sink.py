"""Delta sinks without Spark: what a table has, whoever dies, is late, or writes beside them."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from arrow_frame import frame, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from sink_worlds import Crash, _told

from drivetrain.api import sinks
from drivetrain.connectors.delta import appended_files, data_files
from drivetrain.connectors.delta.delta_table import DeltaTarget
from drivetrain.connectors.opening import open_sink
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import DiskFullError, MissingDependencyError, OutputError, UnavailableError
from drivetrain.spark.connector.publishing import abort_after, publish_transaction
from drivetrain.spark.connector.sink import SinkContext


def opened(directory: Path, id: str = "a", *, app: str = "app-1", state: str = "state", **how: Any) -> Any:
    context = SinkContext(app, id, str(directory / state / app / id))
    return open_sink(sinks.delta(directory / "table", **how), context)


def ids(directory: Path) -> list[int]:
    """What a reader finds; files are read by another library than the one that wrote them."""
    return sorted(pl.read_delta(str(directory / "table"))["id"].to_list())


def data(directory: Path) -> set[str]:
    return {path.name for path in (directory / "table").rglob("*.parquet")}


def shown(directory: Path) -> set[str]:
    return {Path(uri).name for uri in deltalake.DeltaTable(str(directory / "table")).file_uris()}


# -- batches -------------------------------------------------------------------------------------------


def test_a_batch_is_published_once_in_any_process(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.validate()
    assert first.write(rows(1, 2), 0) == 2
    assert first.write(rows(1, 2), 0) == 0
    again = opened(tmp_path)
    again.validate()
    assert again.write(rows(8), 0) == 0
    assert again.write(rows(3), 1) == 1
    assert again.write(rows(), 2) == 0
    assert ids(tmp_path) == [1, 2, 3]


def test_batches_of_a_checkpoint_are_one_commit(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for batch in range(4):
        assert sink.prepare(rows(batch), batch) == 1
    assert sink.prepared() == [0, 1, 2, 3]
    assert ids(tmp_path) == []
    before = deltalake.DeltaTable(str(tmp_path / "table")).version()
    assert publish_transaction({"a": sink}, 1, {"a": 2}) == {"a": 3}
    assert deltalake.DeltaTable(str(tmp_path / "table")).version() == before + 1
    assert ids(tmp_path) == [0, 1, 2]
    assert publish_transaction({"a": opened(tmp_path)}, 1, {"a": 2}) == {"a": 0}
    assert publish_transaction({"a": opened(tmp_path)}, 2, {"a": 3}) == {"a": 1}
    assert sink.prepare(rows(9), 3) == 0


def test_what_is_aborted_or_computed_again_is_never_seen_and_its_files_are_deleted(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.prepare(rows(1), 0)
    sink.prepare(rows(2), 1)
    sink.prepare(rows(3), 2)
    again = opened(tmp_path)
    abort_after(again, 0)
    assert again.prepared() == [0]
    assert publish_transaction({"a": again}, 1, {"a": 0}) == {"a": 1}
    again.prepare(rows(4), 1)
    assert again.prepare(rows(5, 6), 1) == 2
    assert publish_transaction({"a": again}, 2, {"a": 1}) == {"a": 2}
    assert ids(tmp_path) == [1, 5, 6]
    again.write(rows(7), 2)
    assert data(tmp_path) == shown(tmp_path)


def test_files_of_a_dead_process_are_deleted_when_nobody_can_commit_them(tmp_path: Path) -> None:
    dead = opened(tmp_path)
    dead.write(rows(1), 0)
    with pytest.raises(Crash), patch.object(appended_files, "write_whole", side_effect=Crash):
        dead.prepare(rows(2), 1)
    other = opened(tmp_path, "other")
    other.prepare(rows(10), 1)
    orphans = data(tmp_path) - shown(tmp_path)
    assert len(orphans) == 2
    sink = opened(tmp_path)
    assert sink.write(rows(2), 1) == 1
    assert data(tmp_path) - shown(tmp_path) == {n for n in orphans if n.startswith("drivetrain-other-")}
    assert publish_transaction({"o": other}, 1, {"o": 1}) == {"o": 1}
    assert ids(tmp_path) == [1, 2, 10]


@contextmanager
def dying_before(step: int) -> Iterator[None]:
    """Die before the step of that number: a file, a note, a commit, a deletion, a crash point."""
    left = itertools.count()

    def before(*_: object) -> None:
        if next(left) == step:
            raise Crash

    def told(owner: Any, name: str) -> Any:
        return patch.object(owner, name, _told(getattr(owner, name), before))

    with ExitStack() as stack:
        stack.enter_context(armed(before))
        for owner, name in (
            (data_files, "sync"),
            (data_files, "folder_of"),
            (appended_files, "write_whole"),
            (appended_files.AppendedFiles, "drop"),
            (appended_files.AppendedFiles, "clean"),
            (DeltaTarget, "create"),
            (DeltaTarget, "commit"),
            (DeltaTarget, "_sync_log"),
        ):
            stack.enter_context(told(owner, name))
        yield


@settings(max_examples=40)
@given(st.lists(st.integers(0, 12), max_size=6), st.booleans())
def test_every_row_is_there_once_wherever_processes_die(deaths: list[int], with_checkpoints: bool) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place)
        committed, waiting = -1, [*deaths, 10_000]
        while committed < 5:
            sink = opened(directory)
            try:
                with dying_before(waiting[0]):
                    if with_checkpoints:
                        abort_after(sink, committed)  # what the record does not have runs again
                    while committed < 5:
                        committed = step(sink, committed, with_checkpoints)
            except Crash:
                del waiting[0]
        assert ids(directory) == [0, 1, 2, 3, 4, 5]


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


def test_of_two_processes_with_the_same_batch_one_publishes_it(tmp_path: Path) -> None:
    zombie, sink = opened(tmp_path), opened(tmp_path)
    zombie.write(rows(1), 0)
    zombie.prepare(rows(2), 1)
    sink.prepare(rows(2), 1)
    late = opened(tmp_path)
    assert publish_transaction({"a": sink}, 1, {"a": 1}) == {"a": 1}
    assert publish_transaction({"a": zombie}, 1, {"a": 1}) == {"a": 0}
    assert publish_transaction({"a": late}, 1, {"a": 1}) == {"a": 0}
    assert ids(tmp_path) == [1, 2]


def test_a_process_that_slept_before_its_commit_is_refused(tmp_path: Path) -> None:
    sink, zombie = opened(tmp_path), opened(tmp_path)
    sink.write(rows(1), 0)

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not woken:
            woken.append(point)
            assert sink.write(rows(2), 1) == 1

    woken: list[CrashPoint] = []
    with armed(overtaken):
        assert zombie.write(rows(2), 1) == 0
    assert woken
    assert ids(tmp_path) == [1, 2]


def test_a_run_whose_table_was_started_over_is_refused(tmp_path: Path) -> None:
    zombie = opened(tmp_path)
    zombie.write(rows(1), 0)

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION:
            opened(tmp_path, on_fresh="keep").fresh()

    with armed(overtaken), pytest.raises(OutputError, match="another run has taken over"):
        zombie.write(rows(2), 1)
    assert ids(tmp_path) == [1]


def test_commits_of_others_are_waited_for_and_no_longer_than_the_timeout(tmp_path: Path) -> None:
    sink = opened(tmp_path, timeout="100 ms")
    sink.write(rows(1), 0)
    other = opened(tmp_path, "b", evolve=True)
    names = itertools.count()

    def change(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION:
            table = deltalake.DeltaTable(str(tmp_path / "table"))
            table.alter.add_columns([deltalake.Field(f"c{next(names)}", "string")])

    with armed(change), pytest.raises(UnavailableError, match="other writers change the table"):
        sink.write(rows(2), 1)
    assert next(names) > 1
    assert sink.write(rows(2), 1) == 1
    assert other.write(rows(3), 0) == 1
    assert ids(tmp_path) == [1, 2, 3]


def test_several_processes_may_create_the_table(tmp_path: Path) -> None:
    """Each writes its first batch when all have seen that there is no table."""
    together = threading.Barrier(4)
    create = DeltaTarget.create

    def created(*args: Any) -> Any:
        together.wait(60)
        return create(*args)

    written: list[int] = []
    with patch.object(DeltaTarget, "create", created):
        writers = [
            threading.Thread(target=lambda n=n: written.append(opened(tmp_path, f"s{n}").write(rows(n), 0)))  # type: ignore[misc]
            for n in range(4)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
    assert written == [1, 1, 1, 1]
    assert ids(tmp_path) == [0, 1, 2, 3]


def test_two_applications_and_a_compaction_on_one_table(tmp_path: Path) -> None:
    batches = 12
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                errors.append(error)

        return run

    def write(app: str, first: int) -> None:
        sink = opened(tmp_path, app=app)
        for batch in range(batches):
            sink.write(rows(first + batch), batch)

    def compact() -> None:
        while any(writer.is_alive() for writer in writers):
            if deltalake.DeltaTable.is_deltatable(str(tmp_path / "table")):
                deltalake.DeltaTable(str(tmp_path / "table")).optimize.compact()

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
    assert ids(tmp_path) == [*range(batches), *range(100, 100 + batches)]
    operations = [one["operation"] for one in deltalake.DeltaTable(str(tmp_path / "table")).history()]
    assert "OPTIMIZE" in operations


# -- states --------------------------------------------------------------------------------------------


def test_rows_of_another_state_are_not_added_to(tmp_path: Path) -> None:
    opened(tmp_path).write(rows(1), 0)
    other = opened(tmp_path, state="other")
    with pytest.raises(OutputError, match="another state directory"):
        other.validate()
    opened(tmp_path, "b", state="other").validate()


@pytest.mark.parametrize(("choice", "left"), [("keep", [1, 2]), ("empty", [2])])
def test_a_fresh_start_does_what_the_sink_says(tmp_path: Path, choice: str, left: list[int]) -> None:
    opened(tmp_path).check_fresh()
    opened(tmp_path).write(rows(1), 3)
    with pytest.raises(OutputError, match="cannot be distinguished"):
        opened(tmp_path).check_fresh()
    sink = opened(tmp_path, on_fresh=choice)
    sink.prepare(rows(7), 4)
    sink.check_fresh()
    sink.fresh()
    sink.validate()
    assert sink.write(rows(2), 0) == 1
    assert ids(tmp_path) == left
    assert opened(tmp_path).prepared() == []


# -- columns -------------------------------------------------------------------------------------------


def refused(directory: Path, match: str, *, batch: int = 1, how: Any = None, **columns: Any) -> None:
    with pytest.raises(OutputError, match=match):
        opened(directory, **(how or {})).write(frame(**columns), batch)


def test_columns_that_do_not_fit_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    opened(tmp_path, partition_by="p").write(frame(id=pa.array([1], pa.int64()), p=["x"]), 0)
    before = data(tmp_path)
    refused(tmp_path, "has no column q", id=pa.array([1], pa.int64()), p=["x"], q=[1])
    refused(tmp_path, "another type in the table", id=["one"], p=["x"])
    refused(tmp_path, "only in capital letters", ID=pa.array([1], pa.int64()), p=["x"])
    refused(tmp_path, "cannot be the name", **{"a b": [1], "p": ["x"]})
    refused(tmp_path, "no equivalent for the type", id=pa.array([1], pa.duration("us")), p=["x"])
    refused(tmp_path, "has no column r", how={"partition_by": "r"}, id=pa.array([1], pa.int64()), p=["x"])
    refused(tmp_path, "has other partitions", how={"partition_by": "id"}, id=pa.array([1]), p=["x"])
    assert data(tmp_path) == before
    assert opened(tmp_path).write(frame(p=["y"], id=pa.array([2], pa.int32())), 1) == 1
    assert ids(tmp_path) == [1, 2]


def test_columns_are_added_only_when_asked(tmp_path: Path) -> None:
    opened(tmp_path).write(rows(1), 0)
    waiting = opened(tmp_path, "b")
    waiting.prepare(rows(2), 0)
    sink = opened(tmp_path, evolve=True)
    assert sink.write(frame(id=pa.array([3], pa.int64()), note=["new"]), 1) == 1
    assert publish_transaction({"b": waiting}, 1, {"b": 0}) == {"b": 1}
    assert sink.write(rows(4), 2) == 1
    table = pl.read_delta(str(tmp_path / "table")).sort("id")
    assert table.rows() == [(1, None), (2, None), (3, "new"), (4, None)]


def test_a_batch_that_waits_for_a_table_with_other_columns_says_so(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.prepare(rows(1), 0)
    other = pa.schema([("id", pa.string())])
    deltalake.DeltaTable.create(str(tmp_path / "table"), other, mode="overwrite")
    with pytest.raises(OutputError, match="another type in the table"):
        publish_transaction({"a": sink}, 1, {"a": 0})
    assert sink.prepared() == [0]


def test_a_file_that_was_lost_while_it_waited_is_an_error(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.prepare(rows(1), 0)
    for path in (tmp_path / "table").glob("*.parquet"):
        path.unlink()
    with pytest.raises(OutputError, match="one of its files is damaged"):
        publish_transaction({"a": opened(tmp_path)}, 1, {"a": 0})
    assert ids(tmp_path) == []


def test_rules_of_a_table_are_observed_or_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = deltalake.DeltaTable.create(place, columns)
    assert opened(tmp_path).write(frame(id=pa.array([1], pa.int64())), 0) == 1
    refused(tmp_path, "accepts no null in the column id", id=pa.array([None], pa.int64()))
    refused(tmp_path, "wants a value for id", v=["x"])
    table.update_incremental()
    table.alter.add_constraint({"small": "id < 100"})
    with pytest.raises(OutputError, match="rules that this sink cannot observe") as caught:
        opened(tmp_path).validate()
    assert "delta.constraints.small" in str(caught.value)


def test_a_missing_library_and_a_full_disk_are_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = DeltaTarget(str(tmp_path), "t").meant(
        OSError("write failed: No space left on device (os error 28)")
    )
    assert type(full) is DiskFullError
    other = DeltaTarget(str(tmp_path), "t").meant(ValueError("first line\n  0: <unknown>"))
    assert type(other) is OutputError
    assert other.got == "first line"
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'drivetrain\[delta\]'"):
        opened(tmp_path).validate()


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="is not a Delta table"):
        opened(tmp_path).validate()


def test_each_partition_is_a_file_and_its_values_are_in_the_log(tmp_path: Path) -> None:
    sink = opened(tmp_path, partition_by=["p", "n"])
    values = frame(
        id=pa.array([1, 2, 3, 4, 5], pa.int64()),
        p=["b/c d=é", "a", None, "a", ""],
        n=pa.array([1, 2, None, 2, 1], pa.int32()),
    )
    assert sink.write(values, 0) == 5
    assert len(shown(tmp_path)) == 4
    found = pl.read_delta(str(tmp_path / "table")).sort("id")
    assert found.select("id", "p", "n").rows() == [
        (1, "b/c d=é", 1),
        (2, "a", 2),
        (3, None, None),
        (4, "a", 2),
        (5, None, 1),
    ]


# -- upsert --------------------------------------------------------------------------------------------


def accounts(directory: Path) -> dict[str, int]:
    return dict(pl.read_delta(str(directory / "table")).select("account", "balance").rows())


def upserting(directory: Path, **how: Any) -> Any:
    return opened(directory, mode="upsert", key="account", **how)


def balances(**amounts: int | None) -> Any:
    return frame(account=list(amounts), balance=pa.array(list(amounts.values()), pa.int64()))


@pytest.fixture
def _staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outbox adds a column of Spark's to a batch, which is a table here."""
    from drivetrain.connectors.outbox import Outbox, PreparedBatch
    from drivetrain.runtime.channel.columns import TS
    from drivetrain.runtime.channel.segments import write_segment

    def staged(self: Outbox, df: Any, batch_id: int) -> PreparedBatch:
        table = df.withColumn(TS, None).toArrow()
        parts = [write_segment(self._files, "test", table.to_batches())] if table.num_rows else []
        return PreparedBatch(batch_id, tuple(parts))

    monkeypatch.setattr(Outbox, "_staged", staged)


@pytest.mark.usefixtures("_staged")
def test_a_row_replaces_the_one_with_its_key_once(tmp_path: Path) -> None:
    sink = upserting(tmp_path)
    sink.validate()
    assert sink.write(balances(a=1, b=2), 0) == 2
    assert sink.write(balances(b=3, c=4), 1) == 2
    assert upserting(tmp_path).write(balances(b=7), 1) == 0
    assert accounts(tmp_path) == {"a": 1, "b": 3, "c": 4}
    sink.prepare(balances(a=5), 2)
    sink.prepare(balances(a=6, d=7), 3)
    assert publish_transaction({"a": upserting(tmp_path)}, 1, {"a": 3}) == {"a": 3}
    assert accounts(tmp_path) == {"a": 6, "b": 3, "c": 4, "d": 7}
    with pytest.raises(OutputError, match="some rows have no key"):
        sink.write(frame(account=pa.array([None], pa.string()), balance=pa.array([1], pa.int64())), 4)
    other = upserting(tmp_path, state="other")
    other.validate()
    assert other.write(balances(a=9), 0) == 1
    assert accounts(tmp_path)["a"] == 9


@pytest.mark.usefixtures("_staged")
def test_of_rows_with_one_key_the_newest_counts_or_the_last(tmp_path: Path) -> None:
    def twice(*values: tuple[str, int, int | None]) -> Any:
        account, balance, at = zip(*values, strict=True)
        return frame(
            account=list(account), balance=pa.array(balance, pa.int64()), at=pa.array(at, pa.int64())
        )

    several = [("a", 1, 5), ("b", 2, None), ("a", 3, 4), ("b", 4, 1), ("c", 5, 1), ("c", 6, 1)]
    last, newest = upserting(tmp_path / "last"), upserting(tmp_path / "newest", newest="at")
    assert last.write(twice(*several), 0) == newest.write(twice(*several), 0) == 6
    assert accounts(tmp_path / "last") == {"a": 3, "b": 4, "c": 6}
    assert accounts(tmp_path / "newest") == {"a": 1, "b": 4, "c": 6}


@pytest.mark.usefixtures("_staged")
def test_a_late_merge_of_the_same_batch_is_refused(tmp_path: Path) -> None:
    sink, zombie = upserting(tmp_path), upserting(tmp_path)
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
    assert accounts(tmp_path) == {"a": 3}
