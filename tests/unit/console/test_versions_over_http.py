"""Versions by REST: what the state directory records of an application's graph."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from console_in_thread import ConsoleInThread, scripted
from test_dead_letters_over_http import shop_state
from test_reading import HOSTILE
from test_writing import APPLICATION, operation

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.actor import Message
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.changing import (
    ChangeConfiguration,
    ChangeGraph,
    ChangeStatus,
    ConfigurationChanged,
    GiveUpChange,
    StoredVersion,
    Versions,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.code.application_file import load_application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.console.access.roles import Role
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.live_change import Stage
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.graph_versions import Ending, GraphVersions
from drivetrain.runtime.running_config import ChangedValue

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
def kept(console: ConsoleInThread, place: Path) -> GraphVersions:
    """The versions of an application that was submitted: one was run, one rolled back, one is on trial."""
    state = shop_state(console, place)
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


def test_what_differs_between_any_two_versions_is_one_picture(
    console: ConsoleInThread, kept: GraphVersions
) -> None:
    told = console.http.get(f"{PATH}/3/difference", params={"against": 2}).json()
    assert (told["number"], told["against"]) == (3, 2)
    marks = {each["processor"]: (each["mark"], each["why"]) for each in told["processors"]}
    assert marks["out"] == ("changed", "its arguments have changed")
    assert marks["hourly"] == ("kept", "")
    [changed] = [each for each in told["processors"] if each["mark"] == "changed"]
    assert HOSTILE.strip() in changed["before"]
    assert changed["after"].endswith("three")
    placed = {each["processor"]: each["mark"] for each in told["graph"]["processors"]}
    assert placed == {id: mark for id, (mark, _) in marks.items()}
    same = console.http.get(f"{PATH}/1/difference", params={"against": 1}).json()
    assert {each["mark"] for each in same["processors"]} == {"kept"}
    for params, status in (({"against": 9}, 404), ({}, 400), ({"against": 0}, 400)):
        assert console.http.get(f"{PATH}/3/difference", params=params).status_code == status
    assert console.client_of(Role.GUEST).get(f"{PATH}/3/difference?against=1").status_code == 403


@pytest.mark.parametrize("number", ["4", "0", "-1", "01", "x", "9" * 5_000, "1.outcome"])
def test_a_number_that_is_none_is_not_found(
    console: ConsoleInThread, kept: GraphVersions, number: str
) -> None:
    for method, path in (("GET", f"{PATH}/{number}"), ("POST", f"{PATH}/{number}/rollback")):
        answer = console.http.request(method, path)
        assert answer.status_code in (404, 405), answer.text
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.fixture
def asked(console: ConsoleInThread, kept: GraphVersions) -> list[Message]:
    """What the application master of that application is asked to change."""
    asked: list[Message] = []
    app_master = console.cluster.app_master(scripted.world.status_of("shop-1"), asked)
    console.world.change("shop-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
    for state in STATES:
        app_master.tell(ChangeStatus(state))
    return asked


DONE = ChangeState(3, Stage.IDLE, 3, 1, (), Outcome.DONE)
STATES = (DONE, ChangeState(4, Stage.ON_TRIAL, 4, 3), ChangeState(4, Stage.IDLE, 4, 3, (), Outcome.DONE))


def test_a_rollback_is_an_operation_that_ends_with_the_trial(
    console: ConsoleInThread, asked: list[Message]
) -> None:
    answer = console.http.post(f"{PATH}/1/rollback")
    told = operation(console.http, answer)
    assert (told["kind"], told["state"], told["result"]) == ("rollback", "succeeded", {"version": "4"})
    assert asked == [ChangeGraph(0, None, 1)]


def test_a_rollback_to_the_version_before_one_on_trial_gives_the_trial_up(
    console: ConsoleInThread, kept: GraphVersions
) -> None:
    asked: list[Message] = []
    app_master = console.cluster.app_master(scripted.world.status_of("shop-1"), asked)
    console.world.change("shop-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
    trial = ChangeState(3, Stage.ON_TRIAL, 3, 1)
    for state in (trial, trial, ChangeState(1, Stage.IDLE, 3, 1, (), Outcome.ROLLED_BACK)):
        app_master.tell(ChangeStatus(state))
    told = operation(console.http, console.http.post(f"{PATH}/1/rollback"))
    assert (told["state"], told["result"]) == ("succeeded", {"version": "1"})
    assert asked == [GiveUpChange(3)]


def test_a_rollback_that_is_refused_or_fails_says_why(console: ConsoleInThread, kept: GraphVersions) -> None:
    app_master = console.cluster.app_master(scripted.world.status_of("shop-1"))
    console.world.change("shop-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
    refusal = ErrorView("change-underway", "another change of the application is under way")
    failed = ChangeState(3, Stage.IDLE, 4, 3, (), Outcome.ROLLED_BACK, "out", HOSTILE)
    for stands in (ChangeStatus(DONE), ChangeStatus(DONE, refusal)):
        app_master.tell(stands)
    told = operation(console.http, console.http.post(f"{PATH}/1/rollback"))
    assert (told["state"], told["problem"]["code"]) == ("failed", "change-underway")
    assert told["problem"]["status"] == 409
    for state in (DONE, ChangeState(4, Stage.ON_TRIAL, 4, 3), failed):
        app_master.tell(ChangeStatus(state))
    told = operation(console.http, console.http.post(f"{PATH}/1/rollback"))
    assert (told["state"], told["problem"]["code"]) == ("failed", "rolled-back")
    assert told["problem"]["where"] == "fragment out"


def test_an_application_that_is_over_does_not_go_back(console: ConsoleInThread, kept: GraphVersions) -> None:
    console.world.change("shop-1", state=ApplicationState.KILLED)
    answer = console.http.post(f"{PATH}/1/rollback")
    assert (answer.status_code, answer.json()["code"]) == (409, "application-over")


def test_guests_read_no_version(console: ConsoleInThread, kept: GraphVersions) -> None:
    for role, status in ((Role.GUEST, 403), (Role.USER, 200)):
        http = console.client_of(role)
        assert [http.get(path).status_code for path in (PATH, f"{PATH}/1")] == [status, status]


def test_a_damaged_version_is_a_problem(console: ConsoleInThread, kept: GraphVersions, place: Path) -> None:
    [file] = place.glob("states/*/versions/1")
    file.write_bytes(b"{}")
    answer = console.http.get(PATH)
    assert answer.status_code == 400
    assert str(file) in answer.json()["where"]


CHANGED = APPLICATION.replace(b".sink(", b'.filter("n > 1", name="many").sink(')
CHANGES = "/api/v1/applications/shop/changes"


@pytest.fixture
def changing(console: ConsoleInThread, place: Path, tmp_path: Path) -> list[Message]:
    """What an application that runs the file of `test_writing` is asked to change."""
    shop_state(console, place)
    file = tmp_path / "shop.py"
    file.write_bytes(APPLICATION)
    record = version_of(plan(load_application(str(file), {"input": "/some/where"}).graph()), fingerprint)
    asked: list[Message] = []
    app_master = console.cluster.app_master(scripted.world.status_of("shop-1"), asked)
    console.world.change("shop-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
    stored = StoredVersion(msgspec.structs.replace(record, number=3), Ending(Outcome.DONE, 1))
    app_master.tell(Versions((stored,), 3, None, "shop", {"input": "/some/where"}))
    for state in STATES[1:]:
        app_master.tell(ChangeStatus(state))
    return asked


def test_an_upload_changes_an_application_of_the_cluster(
    console: ConsoleInThread, changing: list[Message]
) -> None:
    planned = console.http.post(f"{CHANGES}/plan", params={"file": "new.py"}, content=CHANGED)
    assert planned.status_code == 200, planned.text
    told = planned.json()
    assert (told["against"], told["can_be_made"]) == (3, True)
    fates = {each["processor"]: each["fate"] for each in told["changes"]}
    assert fates["orders"] == "kept"
    assert fates["many"] == "started"
    assert changing == []
    answer = console.http.post(CHANGES, params={"file": "new.py", "against": 3}, content=CHANGED)
    ended = operation(console.http, answer)
    assert (ended["kind"], ended["state"], ended["result"]) == ("change", "succeeded", {"version": "4"})
    [change] = changing
    assert isinstance(change, ChangeGraph)
    assert (change.against, change.number) == (3, 0)
    assert change.code is not None
    assert change.code.file == "new.py"
    assert change.code.sha256 in console.world.code[console.world.leader]


def test_an_upload_that_an_application_of_the_cluster_cannot_take_is_refused(
    console: ConsoleInThread, changing: list[Message]
) -> None:
    http, params = console.http, {"file": "new.py"}
    same = http.post(CHANGES, params=params, content=APPLICATION)
    assert (same.status_code, same.json()["got"]) == (409, "Nothing changes.")
    other = APPLICATION.replace(b'"shop"', b'"other"')
    for path in (CHANGES, f"{CHANGES}/plan"):
        answer = http.post(path, params=params, content=other)
        assert answer.status_code == 400
        assert "another application" in answer.json()["detail"]
    assert console.client_of(Role.GUEST).post(CHANGES, params=params, content=CHANGED).status_code == 403
    console.world.change("shop-1", state=ApplicationState.KILLED)
    assert http.post(CHANGES, params=params, content=CHANGED).status_code == 409
    assert changing == []


def test_keys_are_changed_by_the_application_master_and_what_is_different_is_answered(
    console: ConsoleInThread, kept: GraphVersions, asked: list[Message]
) -> None:
    path = "/api/v1/applications/shop/configuration"
    changed = (ChangedValue("run.batch-target", "1 s", "2 s"),)
    app_master = console.world.applications["shop-1"].app_master
    assert app_master is not None
    app_master.tell(ConfigurationChanged(changed))
    body = {"values": {"run.batch-target": "2 s"}, "restore": ["checkpoint.interval"]}
    answer = console.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"changed": [{"key": "run.batch-target", "before": "1 s", "after": "2 s"}]}
    assert ChangeConfiguration({"run.batch-target": "2 s"}, ("checkpoint.interval",)) in asked
    for wrong in ({}, {"values": {"state.dir": "/tmp"}}, {"restore": ["run.batch-targe"]}, {"value": {}}):
        refused = console.http.post(path, json=wrong)
        assert (refused.status_code, bool(refused.json()["remedy"])) == (400, True), refused.text
    assert console.client_of(Role.GUEST).post(path, json=body).status_code == 403
    console.world.change("shop-1", state=ApplicationState.KILLED)
    assert console.http.post(path, json=body).status_code == 409
