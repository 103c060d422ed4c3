"""What a fragment's state is can be read anywhere, and reading it changes nothing of who reads."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from drivetrain import Application, PersistentTask, State, agg, sinks, sources
from drivetrain.api.operations import Process
from drivetrain.api.types import returned_annotation
from drivetrain.spark.state.state_description import note_operator, noted_operator


class Sums(PersistentTask[Any, tuple[str, int]]):
    key = "key"
    state = State(agg.sum("n"), as_of="1 min")

    def on_change(self, key: str, total: int) -> Iterable[tuple[str, int]]:
        return [(key, total)]


@pytest.fixture
def _sent_by_value() -> Iterator[None]:
    """As `spark.prepare.code_shipping` has the modules of applications sent."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.usefixtures("_sent_by_value")
def test_asking_in_the_process_of_the_application_leaves_its_classes_as_they_are(tmp_path: Path) -> None:
    app = Application("kept")
    app.read(sources.generate(rows=1, columns={"key": "'a'", "n": "id"})).process(Sums, name="sums").sink(
        sinks.none()
    )
    note_operator(tmp_path, app.graph().nodes["sums"])
    method = Sums.on_change
    read = noted_operator(tmp_path)
    assert isinstance(read, Process)
    assert read.task is not Sums
    assert Sums.on_change is method
    assert returned_annotation(Sums.on_change) == Iterable[tuple[str, int]]
