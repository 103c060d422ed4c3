"""When a start keeps the code of the graph that it begins with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.api.graphs.graph import Graph
from drivetrain.config import Config
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.prepare.graph_code import code_if_possible
from drivetrain.spark.run import preparing


class Starts:
    """Starts of an application up to its first batch, without Spark; `pickled` counts the pickled graphs."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rundir = RunDirectory(str(directory), "shop", {})
        self.pickled = 0
        monkeypatch.setattr(preparing, "code_if_possible", self._code)
        monkeypatch.setattr(preparing, "_prepared", self._prepared)

    def start(self, least: int, *, fresh: bool = False) -> int:
        """Start the application with a filter; the number of its version."""
        app = Application("shop")
        read = app.read(sources.text("in"), name="read")
        read.filter(f"length(value) > {least}", name="long").sink(sinks.none(), name="out")
        self.rundir.acquire()
        try:
            made = preparing.prepare(plan(app.graph()), self.rundir, Config.load(None, {}, {}), fresh=fresh)
        finally:
            self.rundir.release()
        assert made.record is not None
        return made.record.number

    def _code(self, graph: Graph) -> bytes | None:
        self.pickled += 1
        return code_if_possible(graph)

    def _prepared(self, *_: object, fresh: bool, **__: object) -> Any:
        if fresh:
            self.rundir.clear()
        return SimpleNamespace(context=SimpleNamespace(transactional=False), sinks={}, rundir=self.rundir)


def test_a_graph_whose_code_is_kept_is_not_pickled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(tmp_path, monkeypatch)
    assert (starts.start(1), starts.pickled) == (1, 1)
    assert (starts.start(1), starts.pickled) == (1, 1)
    assert (starts.start(2), starts.pickled) == (2, 2)
    assert (starts.start(1), starts.pickled) == (3, 3), "the code of version 1 is that of another version"
    (starts.rundir.path / "versions" / "3.graph").unlink()
    assert (starts.start(1), starts.pickled) == (3, 4)
    assert starts.rundir.versions.code(3) is not None


def test_a_fresh_start_keeps_its_code_though_it_deletes_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(tmp_path, monkeypatch)
    starts.start(1)
    assert starts.start(1, fresh=True) == 1
    assert starts.rundir.versions.code(1) is not None
