"""What is told of states that are kept, from the files of a fragment, Spark's part played by the test."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import Row
from test_persistent_buckets import Buckets, packs, rows

from drivetrain import Application, PersistentTask, State, agg, sinks, sources, windows
from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Aggregate
from drivetrain.core.checkpoint.transaction import CheckpointRecord, Phase, Snapshot, Transaction
from drivetrain.core.state.picture_times import PictureTimes
from drivetrain.errors import InputError, UnavailableError, UserError
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.state.aggregate_state import aggregate_values
from drivetrain.spark.state.available_times import kept_times
from drivetrain.spark.state.state_description import note_operator, noted_operator
from drivetrain.spark.state.state_query import StateEntry, States, states_of

STEP = 10


class Exact(PersistentTask[Any, Any]):
    key = "key"
    state = State(agg.sum("n"), as_of="10 ms", keep="50 ms")


class InWindows(PersistentTask[Any, Any]):
    key = "key"
    state = State(agg.sum("n"), as_of="10 ms", window=windows.tumbling("20 ms"))


class Fragment:
    """A fragment's directory, and the groups of keys that Spark would read from it."""

    def __init__(self, home: Path, task: type[PersistentTask[Any, Any]]) -> None:
        self.path = home / "fragments" / "sums"
        for log in ("offsets", "commits"):
            (self.path / "checkpoint" / log).mkdir(parents=True)
        self.spark = Buckets(task, str(self.path))
        self.pack = packs(self.spark)["column"]
        note_operator(self.path, cast(Node, Row(operation=self.spark.operation)))
        self.number = -1
        self._after: dict[int, dict[int, bytes]] = {}

    def batch(self, data: list[tuple[int, Any, Any]], clock_ms: int) -> None:
        self.number += 1
        self.spark.batch(self.pack, [rows(data)] if data else [], clock_ms)
        groups = self.spark.groups.items()
        self._after[self.number] = {b: group.get[0] for b, group in groups if group.exists}
        head = json.dumps({"batchWatermarkMs": watermark_of(clock_ms)})
        (self.path / "checkpoint" / "offsets" / str(self.number)).write_text(f"v1\n{head}\n-")
        (self.path / "checkpoint" / "commits" / str(self.number)).touch()

    def blobs(self, batch: int, bucket: int | None = None) -> dict[int, bytes]:
        held = self._after[batch]
        return held if bucket is None else {b: blob for b, blob in held.items() if b == bucket}


@pytest.fixture
def fragment(tmp_path: Path) -> Fragment:
    return Fragment(tmp_path, Exact)


def states(fragment: Fragment, monkeypatch: pytest.MonkeyPatch) -> States:
    asked = states_of(fragment.path.parent.parent, "sums", lambda: pytest.fail("Spark is not needed"))
    monkeypatch.setattr(asked, "_blobs", fragment.blobs)
    return asked


def values(asked: States, at: int | None = None) -> dict[Any, Any]:
    return {s.key if s.window is None else (s.key, s.window): s.value for s in asked.items(at)}


@pytest.mark.parametrize("task", [Exact, InWindows])
def test_every_step_within_what_is_kept_is_exact_for_any_disorder(
    task: type[PersistentTask[Any, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    fragment = Fragment(tmp_path, task)
    data: list[tuple[int, Any, Any]] = []
    clock_ms = 0
    for _ in range(14):
        clock_ms += draw.randrange(12)
        batch = [(clock_ms + draw.randrange(25), f"k{draw.randrange(30)}", i) for i in range(20)]
        fragment.batch(batch, clock_ms)
        data += batch
    asked = states(fragment, monkeypatch)
    times = asked.times()
    assert times is not None
    assert times.last_ms == clock_ms // STEP * STEP
    for time_ms in range(max(times.first_ms, -STEP), times.last_ms + 1, STEP):
        exact: dict[Any, int] = defaultdict(int)
        for ts, key, n in data:
            window = (ts // 20 * 20, ts // 20 * 20 + 20)
            if ts < time_ms and (task is Exact or window[1] > time_ms):
                exact[key if task is Exact else (key, window)] += n
        assert values(asked, time_ms) == exact, time_ms
    now: dict[Any, int] = defaultdict(int)
    for ts, key, n in data:
        window = (ts // 20 * 20, ts // 20 * 20 + 20)
        if task is Exact or window[1] > clock_ms:
            now[key if task is Exact else (key, window)] += n
    assert values(asked) == now


def test_a_time_is_exact_though_spark_has_not_yet_called_a_bucket_for_it(
    fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragment.batch([(15, "a", 1), (21, "b", 2)], 0)
    fragment.batch([(16, "a", 4)], 19)
    fragment.batch([], 20)  # Spark takes no timeout of 20 at 19, so it comes a millisecond later
    assert fragment.spark.called == []
    asked = states(fragment, monkeypatch)
    assert values(asked, 20) == {"a": 5}
    assert values(asked, 10) == {}


def test_pictures_are_deleted_when_they_are_as_old_as_they_are_kept(
    fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for time_ms in range(0, 200, STEP):
        fragment.batch([(time_ms + 3, "a", 1)], time_ms)
    asked = states(fragment, monkeypatch)
    assert asked.times() == PictureTimes(140, 190, STEP)
    assert asked.get("a", 140) == 14
    assert asked.get("a") == 20
    kept = [int(file.name) for file in (fragment.path / "states").glob("*/*")]
    assert min(kept) > 180 - 50, "the batch before the newest still needs no older one"
    with pytest.raises(UserError, match="cannot be queried") as refused:
        asked.get("a", 130)
    assert "1970-01-01T00:00:00.140+00:00" in str(refused.value.remedy)
    with pytest.raises(UserError, match="cannot be queried"):
        asked.get("a", 145)
    with pytest.raises(UserError, match="cannot be queried"):
        asked.get("a", 200)


def test_a_batch_that_dies_before_its_commit_deletes_no_pictures_of_the_committed_states(
    fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for time_ms in range(0, 200, STEP):
        fragment.batch([(time_ms + 3, "a", 1)], time_ms)
    (fragment.path / "checkpoint" / "commits" / str(fragment.number)).unlink()
    asked = states(fragment, monkeypatch)
    assert asked.times() == PictureTimes(130, 180, STEP)
    for at_ms in range(130, 190, STEP):
        assert asked.get("a", at_ms) == at_ms // STEP, at_ms


def test_a_time_that_is_deleted_while_it_is_read_is_refused(
    fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for time_ms in range(0, 200, STEP):
        fragment.batch([(time_ms + 3, "a", 1)], time_ms)
    asked = states(fragment, monkeypatch)
    read = fragment.blobs

    def runs_on(batch: int, bucket: int | None = None) -> dict[int, bytes]:
        known = read(batch, bucket)
        for time_ms in range(200, 400, STEP):
            fragment.batch([(time_ms + 3, "a", 1)], time_ms)
        return known

    monkeypatch.setattr(asked, "_blobs", runs_on)
    with pytest.raises(UserError, match="cannot be queried"):
        asked.get("a", 150)


def test_the_time_of_a_checkpoint_is_answered_from_its_snapshot_when_its_pictures_are_deleted(
    fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for time_ms in range(0, 60, STEP):
        fragment.batch([(time_ms + 3, "a", 1)], time_ms)
    home = fragment.path.parent.parent
    files = CheckpointFiles(home)
    asked = states_of(home, "sums", lambda: pytest.fail("Spark is not needed"))
    with pytest.raises(UserError, match="has no checkpoint"):
        asked.items("checkpoint")
    Snapshots(files.snapshots).take("sums", 7, fragment.path, fragment.number)
    saved = fragment.blobs(fragment.number)

    def blobs(self: States, batch: int, bucket: int | None = None) -> dict[int, bytes]:
        if files.snapshots not in self._fragment.parents:
            return fragment.blobs(batch, bucket)
        return saved if bucket is None else {b: blob for b, blob in saved.items() if b == bucket}

    monkeypatch.setattr(States, "_blobs", blobs)
    kept = kept_times(fragment.path, asked.operation, fragment.number)
    for pictures, as_of_ms in ((PictureTimes(10, 0, 10), None), (kept, 50)):
        record = CheckpointRecord(
            1, 7, {"sums": Snapshot(fragment.number, pictures=pictures), "b": Snapshot(1)}
        )
        files.persist(Transaction(1, Phase.COMMITTED, 7, record=record))
        assert record.as_of_ms == as_of_ms
        if as_of_ms is None:
            with pytest.raises(UserError, match="has no application time"):
                asked.checkpoint_ms()
    for time_ms in range(60, 200, STEP):
        fragment.batch([(time_ms + 3, "a", 1)], time_ms)
    times = asked.times()
    assert times is not None
    assert times.first_ms == 140
    assert asked.checkpoint_ms() == 50
    assert asked.get("a", "checkpoint") == asked.get("a", 50) == 5
    assert asked.get("a", 150) == 15
    with pytest.raises(UserError, match="cannot be queried"):
        asked.get("a", 70)
    shutil.rmtree(fragment.path / "checkpoint")
    assert asked.get("a", "checkpoint") == 5, "the state itself is lost"


def test_windows_of_one_key_come_by_their_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fragment = Fragment(tmp_path, InWindows)
    fragment.batch([(3, "a", 1), (25, "a", 2), (27, "b", 4)], 0)
    asked = states(fragment, monkeypatch)
    assert asked.get("a") == {(0, 20): 1, (20, 40): 2}
    assert asked.items() == [
        StateEntry("a", 1, (0, 20)),
        StateEntry("a", 2, (20, 40)),
        StateEntry("b", 4, (20, 40)),
    ]
    assert asked.get("nobody") is None


def test_states_that_spark_has_deleted_meanwhile_are_read_anew(
    fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragment.batch([(3, "a", 1)], 0)
    asked = states(fragment, monkeypatch)
    left = iter([OSError("gone"), OSError("gone")])

    def flaky(batch: int, bucket: int | None = None) -> dict[int, bytes]:
        for error in left:
            raise error
        return fragment.blobs(batch, bucket)

    monkeypatch.setattr(asked, "_blobs", flaky)
    assert asked.get("a") == 1

    def broken(_batch: int, _bucket: int | None = None) -> dict[int, bytes]:
        raise OSError("gone for ever")

    monkeypatch.setattr(asked, "_blobs", broken)
    with pytest.raises(UnavailableError, match="right now"):
        asked.get("a")


def test_nothing_is_known_before_the_first_batch_is_committed(
    fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = states(fragment, monkeypatch)
    assert asked.items() == []
    times = asked.times()
    assert times is not None
    assert times.newest_ms is None
    assert asked.items(10) == []
    assert asked.clock_ms() is None


def test_what_cannot_be_asked_is_refused_by_name(fragment: Fragment, tmp_path: Path) -> None:
    home = fragment.path.parent.parent
    with pytest.raises(UserError, match="one of sums"):
        states_of(home, "others", lambda: pytest.fail("no Spark"))
    with pytest.raises(UserError, match="no state of a processor"):
        states_of(home, "../fragments/sums", lambda: pytest.fail("no Spark"))
    with pytest.raises(InputError, match="no state here"):
        states_of(tmp_path / "nowhere", "sums", lambda: pytest.fail("no Spark"))
    (fragment.path / "operator").write_bytes(b"no pickle")
    with pytest.raises(InputError, match="cannot be read here"):
        noted_operator(fragment.path)


# -- native aggregates ------------------------------------------------------------------------------------


def aggregate(window: windows.Window, **aggregations: Any) -> Aggregate:
    app = Application("a")
    read = app.read(sources.csv("/some", schema="at timestamp, k string, n bigint", event_time="at"))
    stream = read.group_by("k").window(window).aggregate(step="of", **aggregations)
    stream.sink(sinks.none())
    return cast(Aggregate, app.graph().nodes["of"].operation)


def test_buffers_of_spark_become_results() -> None:
    of = aggregate(windows.everything(), n=agg.count(), mean=agg.mean("n"), top=agg.max("n"))
    row = Row(key=Row(k="a"), value=Row(count=4, sum=10.0, n=4, max=7))
    assert list(aggregate_values(of, [row], "of")) == [(("a",), None, {"n": 4, "mean": 2.5, "top": 7})]
    one = aggregate(windows.everything(), n=agg.sum("n"))
    assert list(aggregate_values(one, [Row(key=Row(k="a"), value=Row(sum=3))], "of")) == [(("a",), None, 3)]


def test_what_says_nothing_by_itself_is_refused() -> None:
    sketch = aggregate(windows.everything(), n=agg.distinct_count("n"))
    with pytest.raises(UserError, match="cannot be queried"):
        list(aggregate_values(sketch, [], "of"))
    sessions = aggregate(windows.session("1 min"), n=agg.count())
    with pytest.raises(UserError, match="session windows"):
        list(aggregate_values(sessions, [], "of"))
    decimals = aggregate(windows.everything(), n=agg.sum("n"))
    with pytest.raises(UserError, match="cannot be queried"):
        list(aggregate_values(decimals, [Row(key=Row(k="a"), value=Row(sum=1, empty=False))], "of"))
