"""File sinks in an object store, where nothing is renamed: each message once, wherever the process dies."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_frame import frame, rows

from drivetrain import published_files
from drivetrain.api import sinks
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import OutputError
from drivetrain.runtime.objects import locations
from drivetrain.spark.connector.sink import SinkContext
from model_store import CHANGES, ModelStore

BATCHES = 4
PLACE = "s3://lake/out"


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelStore]:
    made = ModelStore()
    monkeypatch.setattr(locations, "ObstoreStore", lambda *_: made)
    locations._connected.cache_clear()
    yield made
    locations._connected.cache_clear()


def context(state: Path, id: str = "a") -> SinkContext:
    return SinkContext("app-1", id, str(state / id))


def seen(store: ModelStore) -> list[int]:
    """What a reader finds who lists the directory."""
    names = sorted(n for n in store.objects if n.endswith(".parquet"))
    return [v for n in names for v in pq.read_table(io.BytesIO(store.objects[n]))["id"].to_pylist()]


def write_each(state: Path, committed: list[int]) -> None:
    """Every batch is seen at once."""
    sink: Any = open_sink(sinks.parquet(PLACE), context(state))
    sink.validate()
    for number in range(len(committed), BATCHES):
        sink.write(rows(number), number)
        committed.append(number)


def write_rolled(state: Path, committed: list[int]) -> None:
    """Batches wait, and are joined; the run is stopped after the second, which shows them."""
    sink: Any = open_sink(sinks.parquet(PLACE, roll=("1 MiB", "1 h")), context(state))
    sink.validate()
    for number in range(len(committed), BATCHES):
        sink.write(rows(number), number)
        committed.append(number)
        if number == 1:
            sink.roll(1, ends=True)
    sink.roll(BATCHES - 1, ends=True)


def write_in_partitions(state: Path, committed: list[int]) -> None:
    """Each batch has two rows, of two partitions."""
    sink: Any = open_sink(sinks.parquet(PLACE, partition_by="odd"), context(state))
    sink.validate()
    for number in range(len(committed), BATCHES // 2):
        sink.write(numbered(2 * number), number)
        committed.append(number)


def write_rolled_partitions(state: Path, committed: list[int]) -> None:
    """The same, joined before they are divided."""
    sink: Any = open_sink(sinks.parquet(PLACE, partition_by="odd", roll="1 h"), context(state))
    sink.validate()
    for number in range(len(committed), BATCHES // 2):
        sink.write(numbered(2 * number), number)
        committed.append(number)
    sink.roll(BATCHES // 2 - 1, ends=True)


def numbered(first: int) -> Any:
    return frame(id=pa.array([first, first + 1], pa.int64()), odd=pa.array([False, True]))


def write_in_transactions(state: Path, committed: list[int]) -> None:
    """Batches wait for checkpoints, two of them for each."""
    sink: Any = open_sink(sinks.parquet(PLACE), context(state))
    sink.validate()
    for txid, last in enumerate((1, 3), start=1):
        for number in range(last - 1, last + 1):
            if number >= len(committed):
                sink.prepare(rows(number), number)
                committed.append(number)
        sink.publish(txid, {"a": last}, {"a": sink})


@pytest.mark.parametrize(
    "write", [write_each, write_rolled, write_in_partitions, write_rolled_partitions, write_in_transactions]
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_each_message_is_seen_once_wherever_the_process_dies(
    store: ModelStore, tmp_path: Path, write: Callable[[Path, list[int]], None], moment: str
) -> None:
    step, died = 0, True
    while died:
        state, committed = tmp_path / str(step), []
        store.objects.clear()
        died = _dies(store, moment, step, lambda: write(state, committed))  # noqa: B023 - called at once
        found = seen(store)
        assert len(set(found)) == len(found), f"twice after step {step}"
        _dies(store, moment, step // 2, lambda: write(state, committed))  # noqa: B023 - perhaps once more
        write(state, committed)
        assert sorted(seen(store)) == list(range(BATCHES)), f"step {step}"
        files = published_files(PLACE)
        assert [len(paths) for paths in files.values()] == [
            sum(n.endswith(".parquet") for n in store.objects)
        ]
        step += 1
    assert step > BATCHES


def _dies(store: ModelStore, moment: str, step: int, call: Callable[[], None]) -> bool:
    """Whether the call died at its change of that number."""
    left = step

    def hook(what: str, path: str) -> None:
        nonlocal left
        if what in CHANGES:
            if left == 0:
                raise Crash
            left -= 1

    setattr(store, moment, hook)
    try:
        call()
    except Crash:
        return True
    finally:
        store.before = store.after = lambda what, path: None
    return False


def test_a_published_file_is_never_replaced(store: ModelStore, tmp_path: Path) -> None:
    ours: Any = open_sink(sinks.parquet(PLACE), context(tmp_path))
    stopped: Any = open_sink(sinks.parquet(PLACE), context(tmp_path))
    ours.validate()
    ours.write(rows(1), 0)
    assert stopped.write(rows(2), 0) == 0  # it looks first
    stopped._last = -1  # it looked long ago, and was stopped since
    stopped.write(rows(2), 0)
    assert seen(store) == [1]


def test_a_batch_costs_one_object_and_few_requests(store: ModelStore, tmp_path: Path) -> None:
    sink: Any = open_sink(sinks.parquet(PLACE), context(tmp_path))
    sink.validate()
    sink.write(rows(1), 0)
    requests: list[str] = []
    store.before = lambda what, path: requests.append(what)
    sink.write(rows(2), 1)
    assert requests == ["create"]
    rolled: Any = open_sink(sinks.parquet("s3://lake/rolled", roll="1 h"), context(tmp_path, "b"))
    for number in range(3):
        rolled.write(rows(number), number)
        requests[:-1] = []
    assert requests == ["create"]  # it looked a moment ago
    assert not [name for name in store.objects if "/staging/" in name]


def test_of_two_applications_that_begin_in_one_place_one_is_refused(
    store: ModelStore, tmp_path: Path
) -> None:
    ours: Any = open_sink(sinks.parquet(PLACE), context(tmp_path / "ours"))
    other: Any = open_sink(sinks.parquet(PLACE), SinkContext("app-2", "a", str(tmp_path / "other")))
    same: Any = open_sink(sinks.parquet(PLACE), context(tmp_path / "same"))
    for sink in (ours, other, same):
        sink.validate()

    def overtaken(what: str, path: str) -> None:
        if what == "create" and path.endswith("owner.json"):
            store.before = lambda what, path: None
            ours._directory.claim(None)

    for late, why in ((other, "another application"), (same, "at the same time")):
        store.objects.clear()
        store.before = overtaken
        with pytest.raises(OutputError, match=why):
            late.write(rows(2), 0)
        ours.write(rows(1), 0)
        assert seen(store) == [1]
        ours.fresh()


def test_a_directory_of_others_is_refused(store: ModelStore, tmp_path: Path) -> None:
    store.objects["out/theirs.csv"] = b"x"
    sink = open_sink(sinks.parquet(PLACE), context(tmp_path))
    with pytest.raises(OutputError, match="not empty"):
        sink.validate()
    del store.objects["out/theirs.csv"]
    first: Any = open_sink(sinks.parquet(PLACE), context(tmp_path))
    first.write(rows(1), 0)
    with pytest.raises(OutputError, match="another application"):
        open_sink(sinks.parquet(PLACE), SinkContext("app-2", "a", str(tmp_path / "other"))).validate()
    first.fresh()
    assert store.objects == {}


def test_a_file_that_a_former_process_makes_after_a_start_over_is_no_result(
    store: ModelStore, tmp_path: Path
) -> None:
    def published(state: str, *ids: int) -> Any:
        sink: Any = open_sink(sinks.parquet(PLACE), context(tmp_path / state))
        if state == "second":
            sink.fresh()
        sink.validate()
        sink.prepare(frame(id=pa.array(ids, pa.int64())), 0)
        sink.publish(1, {"a": 0}, {"a": sink})
        return sink

    def whole() -> list[int]:
        paths = [path.partition("/")[2] for found in published_files(PLACE).values() for path in found]
        return [v for n in paths for v in pq.read_table(io.BytesIO(store.objects[n]))["id"].to_pylist()]

    published("first", 1, 2)
    (name,) = [n for n in store.objects if n.endswith(".parquet")]
    late = store.objects[name]
    second = published("second", 3, 4)
    assert name not in store.objects, "no file of the new state has its name"
    store.objects[name] = late  # the former process wakes
    assert whole() == [3, 4]
    second.prepare(frame(id=pa.array([5], pa.int64())), 1)
    second.publish(2, {"a": 1}, {"a": second})
    assert whole() == [3, 4, 5]
    again: Any = open_sink(sinks.parquet(PLACE), context(tmp_path / "second"))
    again.validate()
    assert sorted(seen(store)) == [3, 4, 5]
    assert whole() == [3, 4, 5]
