"""What readers of files find who ask for whole transactions, in every way of writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from arrow_frame import rows

from drivetrain import published_files
from drivetrain.api import sinks
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import InputError
from drivetrain.spark.connector.publishing import publish_transaction
from drivetrain.spark.connector.sink import SinkContext


def opened(
    directory: Path, id: str = "a", *, together: bool = True, state: str = "state", **kwargs: Any
) -> Any:
    out = directory / "out"
    sink = sinks.parquet(out / id, together=out if together else None)
    return open_sink(sink, SinkContext("app-1", id, str(directory / state / id), **kwargs))


def names(directory: Path, id: str | None = None) -> dict[str, list[str]]:
    place = directory / "out" if id is None else directory / "out" / id
    return {Path(d).name: [Path(f).name for f in files] for d, files in published_files(place).items()}


def test_where_nobody_publishes_is_told(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match="no file sink has published here"):
            published_files(place)


def test_batches_that_are_published_one_by_one_all_count(tmp_path: Path) -> None:
    for together in (True, False):
        directory = tmp_path / str(together)
        sink = opened(directory, together=together)
        sink.write(rows(1), 0)
        sink.write(rows(2), 3)
        told = names(directory, None if together else "a")
        assert told == {"a": ["part-a-00000000.parquet", "part-a-00000003.parquet"]}


def test_a_sink_of_its_own_shows_whole_transactions_too(tmp_path: Path) -> None:
    sink = opened(tmp_path, together=False)
    sink.prepare(rows(1), 0)
    assert names(tmp_path, "a") == {"a": []}
    publish_transaction({"a": sink}, 1, {"a": 0})
    sink.prepare(rows(2), 1)
    assert names(tmp_path, "a") == {"a": ["part-a-00000000.parquet"]}


def test_checkpoints_can_be_turned_on_and_off(tmp_path: Path) -> None:
    opened(tmp_path).write(rows(1), 0)
    transactional = opened(tmp_path)
    transactional.prepare(rows(2), 1)
    assert names(tmp_path) == {"a": ["part-a-00000000.parquet"]}
    publish_transaction({"a": transactional}, 1, {"a": 1})
    opened(tmp_path).write(rows(3), 2)
    assert names(tmp_path)["a"][-1] == "part-a-00000002.parquet"
    again = opened(tmp_path)
    again.prepare(rows(4), 3)
    assert len(names(tmp_path)["a"]) == 3
    publish_transaction({"a": again}, 2, {"a": 3})
    assert len(names(tmp_path)["a"]) == 4


def test_a_batch_that_was_published_is_not_prepared_again(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.prepare(rows(1), 0)
    publish_transaction({"a": sink}, 1, {"a": 0})
    assert sink.prepare(rows(1), 0) == 0
    assert sink.prepared() == []


def test_another_life_goes_on_counting(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.prepare(rows(1), 4)
    publish_transaction({"a": first}, 1, {"a": 4})
    second = opened(tmp_path, life=2)
    second.prepare(rows(2), 5)
    publish_transaction({"a": second}, 1, {"a": 5})
    assert names(tmp_path) == {"a": ["part-a-00000004.parquet", "part-a-life2-00000005.parquet"]}


def test_what_a_state_that_is_gone_had_prepared_is_never_seen(tmp_path: Path) -> None:
    gone = opened(tmp_path)
    gone.prepare(rows(1), 0)
    gone.prepare(rows(2), 1)
    sink = opened(tmp_path, state="another")
    sink.validate()
    sink.prepare(rows(3), 0)
    assert publish_transaction({"a": sink}, 1, {"a": 1}) == {"a": 1}
    assert names(tmp_path) == {"a": ["part-a-00000000.parquet"]}


def test_a_fresh_start_forgets_one_sink_and_not_the_other(tmp_path: Path) -> None:
    both = {id: opened(tmp_path, id) for id in "ab"}
    for sink in both.values():
        sink.prepare(rows(1), 0)
    publish_transaction(both, 1, dict.fromkeys(both, 0))
    both["a"].check_fresh()
    both["a"].fresh()
    assert names(tmp_path) == {"b": ["part-b-00000000.parquet"]}
    both["a"].validate()
    both["a"].prepare(rows(2, 3), 0)
    assert publish_transaction(both, 2, dict.fromkeys(both, 0)) == {"a": 2, "b": 0}


def test_a_damaged_record_of_what_was_published_is_named(tmp_path: Path) -> None:
    opened(tmp_path).write(rows(1), 0)
    (record,) = (tmp_path / "out" / "_drivetrain").glob("published-*.json")
    record.write_bytes(record.read_bytes()[:-3])
    with pytest.raises(InputError, match="the record of what file sinks have published is damaged"):
        published_files(tmp_path / "out")
