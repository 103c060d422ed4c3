"""Versions by REST: what the state directory records of an application's graph."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from console_in_thread import ConsoleInThread
from test_dead_letters_over_http import shop_state
from test_reading import HOSTILE

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.code.fingerprint import fingerprint
from drivetrain.console.access.roles import Role
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.live_change import Outcome
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.graph_versions import GraphVersions

PATH = "/api/v1/applications/shop/versions"


def graph_of(text: str) -> GraphVersion:
    """A version whose sink has another fingerprint for each text."""
    app = Application("shop")
    orders = app.read(sources.generate(rows=10, columns={"key": "id % 3"}), name="orders")
    hourly = orders.group_by("key").window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.count())
    hourly.sink(sinks.none(), name="out")
    made = version_of(plan(app.graph()), fingerprint)
    sink = msgspec.structs.replace(made.processors["out"], fingerprint=text, described=text)
    return msgspec.structs.replace(made, processors={**made.processors, "out": sink})


@pytest.fixture
def kept(console: ConsoleInThread, tmp_path: Path) -> GraphVersions:
    """The versions of an application that was submitted: one was run, one rolled back, one is on trial."""
    state = shop_state(console, tmp_path)
    state.mkdir(parents=True)
    kept = GraphVersions(state)
    kept.note(graph_of("one"))
    kept.note(graph_of(HOSTILE), "update")
    kept.note_ending(2, Outcome.ROLLED_BACK, "out", HOSTILE)
    kept.note(graph_of("three"), "update")
    return kept


def test_versions_have_their_origin_their_changes_and_their_outcome(
    console: ConsoleInThread, kept: GraphVersions
) -> None:
    three, two, one = console.http.get(PATH).json()["versions"]
    assert (one["number"], one["made_how"], one["follows"], one["changes"]) == (1, "run", None, {})
    assert one["made_at_ms"] == kept.version(1).made_at_ms
    assert one["made_by"] == kept.version(1).made_by
    assert (two["outcome"], two["in_words"], two["is_in_force"]) == ("rolled back", "rolled back", False)
    assert (two["failed_fragment"], two["why"]) == ("out", HOSTILE)
    assert (three["is_in_force"], three["trial"], three["outcome"]) == (True, "under way", None)
    assert (three["follows"], list(three["changes"])) == (1, ["out"])
    console.world.change("shop-1", state=ApplicationState.KILLED)
    assert console.http.get(PATH).json()["versions"][0]["trial"] == "interrupted"
    kept.note_ending(3, Outcome.DONE)
    newest = console.http.get(PATH).json()["versions"][0]
    assert (newest["outcome"], newest["trial"], newest["in_words"]) == ("done", None, "in force")


def test_the_graph_of_a_version_is_text_whatever_it_says(
    console: ConsoleInThread, kept: GraphVersions
) -> None:
    answer = console.http.get(f"{PATH}/2")
    assert answer.headers["content-type"] == "application/json"
    processors = {each["processor"]: each for each in answer.json()["processors"]}
    assert HOSTILE.strip() in processors["out"]["text"]
    assert processors["hourly"]["inputs"] == ["orders"]
    assert processors["out"]["fragment"] == processors["hourly"]["fragment"]


@pytest.mark.parametrize("number", ["4", "0", "-1", "01", "x", "9" * 5_000, "1.outcome"])
def test_a_number_that_is_none_is_not_found(
    console: ConsoleInThread, kept: GraphVersions, number: str
) -> None:
    for method, path in (("GET", f"{PATH}/{number}"), ("POST", f"{PATH}/{number}/rollback")):
        answer = console.http.request(method, path)
        assert answer.status_code in (404, 405), answer.text
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_rollback_in_a_cluster_is_refused_with_the_way_to_do_it(
    console: ConsoleInThread, kept: GraphVersions
) -> None:
    answer = console.http.post(f"{PATH}/1/rollback")
    assert (answer.status_code, answer.json()["code"]) == (409, "no-rollback")
    assert "submit the file of that version" in answer.json()["remedy"]
    assert kept.numbers() == [1, 2, 3]


def test_guests_read_no_version(console: ConsoleInThread, kept: GraphVersions) -> None:
    for role, status in ((Role.GUEST, 403), (Role.USER, 200)):
        http = console.client_of(role)
        assert [http.get(path).status_code for path in (PATH, f"{PATH}/1")] == [status, status]


def test_a_damaged_version_is_a_problem(
    console: ConsoleInThread, kept: GraphVersions, tmp_path: Path
) -> None:
    [file] = tmp_path.glob("states/*/versions/1")
    file.write_bytes(b"{}")
    answer = console.http.get(PATH)
    assert answer.status_code == 400
    assert str(file) in answer.json()["where"]
