"""Notices of other applications that do not run while a run reads their streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drivetrain import Application, plan, sinks, sources
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.subscription_note import SubscriptionNote, write_note
from drivetrain.spark.run import stopped_producers
from drivetrain.spark.run.stopped_producers import StoppedProducers


@dataclass
class Report:
    """An application that reads two others; `running` are the homes of those that run."""

    directory: Path
    running: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)

    def producers(self) -> StoppedProducers:
        app = Application("report")
        for name, other in (("hours", "shop"), ("prices", "market")):
            app.read(sources.application(other, "x", schema="n bigint"), name=name).sink(sinks.none())
        made, rundir = plan(app), RunDirectory(str(self.directory), "report", {})
        for id, other in (("hours", "shop"), ("prices", "market")):
            note = SubscriptionNote(f"{other}-1", f"/{other}", "x", f"of-{id}", "key", "/channel", {})
            write_note(rundir.source(id), note)
        execution = cast(Any, SimpleNamespace(plan=made, rundir=rundir))
        drivers = {f.id: cast(Any, self._driver(f.inputs)) for f in made.fragments}
        return StoppedProducers(execution, drivers, lambda home: str(home) in self.running)

    def _driver(self, inputs: tuple[str, ...]) -> object:
        read = SimpleNamespace(has_read_all=lambda id: id in self.read)
        query = SimpleNamespace(trunk=SimpleNamespace(sources=dict.fromkeys(inputs)), inputs=read)
        return SimpleNamespace(is_finished=False, query=query)


def test_an_application_that_stops_and_one_that_runs_again_are_noticed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped_producers, "LOOK_S", 0.0)
    report = Report(tmp_path, {"/shop", "/market"})
    producers = report.producers()
    producers.look()
    assert (list(producers.notices), producers.waiting_for) == ([], None)
    report.running.remove("/shop")
    producers.look()
    producers.look()
    assert list(producers.notices) == ["hours waits for application shop, which does not run: start it"]
    assert producers.waiting_for == "application shop, which does not run"
    report.running.clear()
    producers.look()
    assert producers.waiting_for == "applications market, shop, which do not run"
    producers.notices.clear()
    report.running |= {"/shop", "/market"}
    producers.look()
    assert sorted(producers.notices) == [
        "hours does not wait for application shop any more",
        "prices does not wait for application market any more",
    ]
    assert producers.waiting_for is None


def test_nobody_waits_for_an_application_whose_stream_was_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped_producers, "LOOK_S", 0.0)
    report = Report(tmp_path, {"/shop"}, {"prices"})
    producers = report.producers()
    producers.look()
    assert (list(producers.notices), producers.waiting_for) == ([], None)


def test_it_looks_every_few_seconds(tmp_path: Path) -> None:
    report = Report(tmp_path, {"/shop", "/market"})
    producers = report.producers()
    producers.look()
    report.running.clear()
    producers.look()
    assert not producers.notices
