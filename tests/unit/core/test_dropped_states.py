"""States that a change may drop: what becomes of processors then, and when that does not help."""

from __future__ import annotations

import pytest

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.difference import ChangeKind, Difference, difference, live_change
from drivetrain.core.change.dropped_states import dropped_states, require_states
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.plan.planner import plan
from drivetrain.errors import UserError

DROPS = ChangeOptions(drops=("hourly",))


def version(
    hours: int = 1, *, more: bool = False, other: bool = False, eventtime: bool = True
) -> GraphVersion:
    app = Application("shop")
    at = "at" if eventtime else None
    orders = app.read(sources.json("in", schema="at timestamp, n bigint", event_time=at), name="orders")
    if not eventtime:
        orders = orders.event_time("at", max_disorder="1 min")
    if other:
        extra = app.read(sources.json("in2", schema="at timestamp, n bigint", event_time="at"), name="extra")
        orders = orders.union(extra)
    if more:
        orders = orders.filter("n > 1", name="large")
    window = windows.tumbling(f"{hours} h")
    hourly = orders.window(window).aggregate(n=agg.count(), step="hourly")
    hourly.sink(sinks.json("out"), name="out")
    return version_of(plan(app.graph()), lambda operation: type(operation).__name__)


def fates(found: Difference) -> dict[str, ChangeKind]:
    return {change.id: change.fate for change in found.changes}


def test_a_window_of_another_length_is_refused_and_the_reason_names_the_option() -> None:
    found = difference(version(1), version(2))
    assert fates(found)["hourly"] is ChangeKind.REFUSED
    assert "--drop-state hourly drops that state" in found.refused[0].why
    assert found.dropped == ()


def test_with_leave_the_state_is_dropped_and_the_query_restarts() -> None:
    found = difference(version(1), version(2, more=True), options=DROPS)
    assert not found.refused
    assert found.dropped == ("hourly",)
    assert fates(found) == {
        "orders": ChangeKind.KEPT,
        "large": ChangeKind.RESTARTED,
        "hourly": ChangeKind.DROPPED,
        "out": ChangeKind.KEPT,
    }
    assert "its state is dropped" in next(c.why for c in found.changes if c.id == "large")
    change = live_change(version(1), version(2))
    assert change.restarts in (("orders",), ("hourly",))
    assert (change.starts, change.leaves) == ((), ())


def test_a_state_that_fits_stays_even_with_leave_to_drop_it() -> None:
    found = difference(version(1), version(1, more=True), options=DROPS)
    assert found.dropped == ()
    assert "its state stays" in next(c.why for c in found.changes if c.id == "large")


@pytest.mark.parametrize(
    ("new", "has_checkpoints"),
    [(version(2, other=True), False), (version(2, eventtime=False), False), (version(2), True)],
    ids=["other inputs", "other event time", "checkpoints"],
)
def test_what_an_empty_state_does_not_help_is_refused_without_the_hint(
    new: GraphVersion, has_checkpoints: bool
) -> None:
    found = difference(version(1), new, has_checkpoints=has_checkpoints, options=DROPS)
    assert found.refused
    assert found.dropped == ()
    assert all("--drop-state" not in change.why for change in found.refused)
    assert dropped_states(version(1), new, DROPS.drops, has_checkpoints=has_checkpoints) == ()


def test_a_name_without_a_state_is_refused_with_those_that_have_one() -> None:
    require_states(version(1), ("hourly",))
    with pytest.raises(UserError, match="no processor of that name keeps a state") as refused:
        require_states(version(1), ("hourli",))
    assert refused.value.expected == "one of hourly"
