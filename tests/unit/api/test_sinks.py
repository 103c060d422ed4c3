from __future__ import annotations

import pickle

import pytest

from drivetrain.api import sinks
from drivetrain.errors import GraphError


def test_every_sink_says_its_guarantee() -> None:
    said = {
        sinks.parquet("out"): "exactly once",
        sinks.csv("out"): "exactly once",
        sinks.memory("m"): "exactly once",
        sinks.none(): "exactly once",
        sinks.console(): "at least once",
        sinks.batches(print): "at least once",
    }
    assert {sink: sink.guarantee for sink in said} == said


def test_shorthands_are_files_of_a_format() -> None:
    for make, kind in (
        (sinks.parquet, "parquet"),
        (sinks.csv, "csv"),
        (sinks.json, "json"),
        (sinks.text, "text"),
    ):
        assert make("out") == sinks.files("out", kind)  # type: ignore[arg-type]
        assert pickle.loads(pickle.dumps(make("out"))) == make("out")


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: sinks.files("out", "xml"), "unknown file format"),  # type: ignore[arg-type]
        (lambda: sinks.csv("out", compression="snappy"), "unknown compression"),
        (lambda: sinks.files("", "csv"), "path"),
    ],
)
def test_a_wrong_argument_is_told_when_the_sink_is_written(build, what: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(GraphError, match=what) as caught:
        build()
    assert caught.value.where == "sinks.files"
