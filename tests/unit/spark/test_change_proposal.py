"""What a running application refuses of a change, and which sinks are new with it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.plan.planner import plan
from drivetrain.errors import UserError
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.spark.run.change_proposal import _new_sinks, _refuse_taken_places


def loaded(**places: str) -> Any:
    """A version with a sink of files at each place, by id."""
    app = Application("shop")
    read = app.read(sources.text("in"), name="read")
    for id, place in places.items():
        read.sink(sinks.text(place), name=id)
    made = plan(app.graph())
    record = version_of(made, lambda _: "")
    return SimpleNamespace(plan=made, record=record, sinks=dict.fromkeys(places))


def test_two_sinks_do_not_write_to_one_place_one_after_the_other(tmp_path: Path) -> None:
    before = loaded(out=f"{tmp_path}/a", more=f"{tmp_path}/b")
    with pytest.raises(UserError, match="two sinks write to") as refused:
        _refuse_taken_places(before, loaded(other=f"{tmp_path}/a"))
    assert "the other is out" in str(refused.value.got)
    _refuse_taken_places(before, loaded(out=f"{tmp_path}/a", other=f"{tmp_path}/c"))
    _refuse_taken_places(before, loaded(out=f"{tmp_path}/elsewhere"))


def test_a_sink_is_new_if_no_version_had_it_but_one_that_was_rolled_back(tmp_path: Path) -> None:
    stored = GraphVersions(tmp_path)
    stored.note(loaded(out="a", more="b").record)
    stored.note(loaded(out="a").record, "update")
    stored.note(loaded(out="a", other="c").record, "update")
    stored.note_ending(3, Outcome.ROLLED_BACK)
    versions: Any = SimpleNamespace(
        rundir=SimpleNamespace(path=tmp_path, versions=stored), in_force=loaded(out="a")
    )
    assert _new_sinks(versions, loaded(out="a", more="b", other="c")) == ("other",)
    (tmp_path / "sinks" / "other").mkdir(parents=True)
    assert _new_sinks(versions, loaded(other="c")) == (), "of a version that is not kept any more"
