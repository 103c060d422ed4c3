"""The places of sinks, and the refusal of two sinks with one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from drivetrain import Application, plan, sinks, sources
from drivetrain.api.sinks import CustomSink
from drivetrain.errors import GraphError
from drivetrain.runtime.sink_places import sink_place


@dataclass(frozen=True)
class _Device(CustomSink):
    @property
    def place(self) -> str:
        return "device:1"


def test_two_names_of_one_place_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    paths = [tmp_path / "out", f"{tmp_path}/x/../out/", f"file://{tmp_path}/out", tmp_path / "link"]
    assert len({sink_place(sinks.csv(path)) for path in paths}) == 1
    assert sink_place(sinks.memory("a")) == sink_place(sinks.memory("a"))
    uris = ["s3://lake/out", "s3a://lake/out/", "s3://lake/o%75t"]
    assert {sink_place(sinks.csv(uri)) for uri in uris} == {"s3://lake/out"}
    uris = ["abfs://lake/out", "abfss://lake/out/", "az://lake/out"]
    assert {sink_place(sinks.csv(uri)) for uri in uris} == {"abfs://lake/out"}


def test_other_places_and_those_that_may_be_shared_are_distinct(tmp_path: Path) -> None:
    places = [tmp_path / "out", "s3://lake/out", "s3://pond/out", "gs://lake/out"]
    assert len({sink_place(sinks.csv(place)) for place in places}) == 4
    assert sink_place(sinks.console()) is None
    assert sink_place(sinks.none()) is None
    assert sink_place(CustomSink()) is None


@pytest.mark.parametrize(
    "target", [sinks.csv("out"), sinks.memory("rows"), _Device()], ids=lambda s: type(s).__name__
)
def test_the_plan_refuses_two_sinks_that_write_to_one_place(target: sinks.Sink) -> None:
    app = Application("doubled")
    rows = app.read(sources.text("in/"), name="rows")
    rows.sink(target, name="first")
    rows.filter("length(value) > 3").sink(target, name="second")
    with pytest.raises(GraphError, match="two sinks write to") as refused:
        plan(app)
    assert "second" in str(refused.value.where)
    assert "first" in str(refused.value.got)


def test_sinks_that_may_share_a_place_are_planned() -> None:
    app = Application("shared")
    rows = app.read(sources.text("in/"), name="rows")
    rows.sink(sinks.console(), name="first")
    rows.sink(sinks.console(), name="second")
    assert len(plan(app).sinks) == 2
