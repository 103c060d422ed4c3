"""A preview has everything before a stream and nothing behind it; notebooks show pictures."""

from __future__ import annotations

import pytest

from drivetrain import Application, agg, plan, sinks, sources, windows
from drivetrain.api.graphs import views
from drivetrain.errors import InternalError
from drivetrain.testing.preview import leading_to


def shop() -> Application:
    app = Application("shop")
    orders = app.read(sources.generate(rows=10), name="orders")
    hourly = orders.window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.count())
    hourly.sink(sinks.none(), name="out")
    hourly.late.map(str, name="told", returns=str).sink(sinks.none(), name="late_out")
    return app


def test_everything_before_a_processor_is_kept_and_nothing_behind_it() -> None:
    graph = leading_to(shop().graph(), "orders")
    assert list(graph.nodes) == ["orders", "end-of-orders"]
    graph = leading_to(shop().graph(), "told")
    assert set(graph.nodes) == {"orders", "hourly", "late", "told", "end-of-told", "end-of-hourly"}
    graph.check()


def test_plans_and_applications_are_pictures_in_notebooks() -> None:
    app = shop()
    assert app._repr_svg_() == plan(app)._repr_svg_()
    assert app._repr_svg_().startswith("<svg")


def test_an_application_that_leads_nowhere_yet_is_a_name_and_can_be_looked_at_in_parts() -> None:
    app = Application("begun")
    app.read(sources.generate(rows=10), name="numbers")
    assert app._repr_svg_() is None
    assert repr(app) == "Application('begun')"
    leading_to(app.graph(unfinished=True), "numbers").check()


def test_without_the_package_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_installed", [])
    with pytest.raises(InternalError, match="no views"):
        shop().preview("orders")
