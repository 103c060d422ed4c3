"""What guests see: everything but the texts of errors, which may hold messages, lines of code and of logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_in_thread import ConsoleInThread, scripted
from test_events import stream, until
from test_writing import APPLICATION, submit

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import ErrorView, FragmentView, JobState
from drivetrain.console.access.roles import Role
from drivetrain.console.event_stream import MEDIA_TYPE
from drivetrain.console.routes.table import ROUTES
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFailure, CheckpointFigures
from drivetrain.core.checkpoint.transaction import Phase
from drivetrain.core.job.fragment_execution import ExecutionState

world = scripted.world

MESSAGE = "ada@example.com"
"""A part of a message that an error is about."""
ERROR = ErrorView("application", *(f"{part} {MESSAGE}" for part in ("what", "where", "expected", "got")))
RAISED = ErrorView(
    "operator", f"cannot parse {MESSAGE}", remedy=f"skip {MESSAGE}", user_traceback=f"Traceback: {MESSAGE}"
)
STOPPED = FragmentView("hourly", ExecutionState.FAILED.value, 9, error=RAISED)


def failing(console: ConsoleInThread) -> None:
    """An application with an error in all places where there may be one."""
    failure = CheckpointFailure(3, None, 12_000, ("hourly",), f"the state of {MESSAGE} is lost")
    checkpoints = CheckpointFigures(3, Phase.COMMITTED, False, None, 0, 1, None, (failure,))
    status = world.status_of(
        state=JobState.RESTARTING,
        fragments=(STOPPED,),
        error=ERROR,
        errors=(RAISED, ERROR),
        checkpoints=checkpoints,
        checkpoints_now_ms=13_000,
    )
    app_master = console.cluster.app_master(status)
    console.world.put(world.view_of(state=ApplicationState.ACTIVE, epoch=1, app_master=app_master))


def over(console: ConsoleInThread) -> None:
    """It has failed, and another one, which ended before, waits to be started again."""
    failing(console)
    status = world.status_of(state=JobState.FAILED, error=ERROR, errors=(RAISED, ERROR), fragments=(STOPPED,))
    console.world.end("wc-1", status, ApplicationState.FAILED)
    console.world.change("wc-1", why=ERROR.what)
    why = f"its application master ended with status 1: {MESSAGE}"
    console.world.put(world.view_of("wc-2", state=ApplicationState.PENDING, why=why))


@pytest.mark.parametrize("situation", [failing, over], ids=lambda each: each.__name__)
def test_no_answer_for_guests_has_the_text_of_an_error(console: ConsoleInThread, situation) -> None:
    situation(console)
    http = console.client_of(Role.GUEST)
    asked = 0
    for route in ROUTES:
        if route.method != "GET" or route.role > Role.GUEST or route.answer == MEDIA_TYPE:
            continue
        for app in ("wc-1", "wc-2"):
            answer = http.get(route.path.replace("{app}", app))
            assert MESSAGE not in answer.text, route.name
        asked += 1
    assert asked > 10


@pytest.mark.parametrize("situation", [failing, over], ids=lambda each: each.__name__)
def test_no_event_for_guests_has_the_text_of_an_error(console: ConsoleInThread, situation) -> None:
    situation(console)
    with stream(console.client_of(Role.GUEST), "/api/v1/events?app=wc-1") as events:
        seen = []
        for event in events:
            seen.append(event)
            if {"snapshot", "application", "connection"} <= {kind for kind, _, _ in seen}:
                break
    assert MESSAGE not in str(seen)


def test_guests_see_that_there_is_an_error_and_of_which_kind(console: ConsoleInThread) -> None:
    over(console)
    snapshot = console.client_of(Role.GUEST).get("/api/v1/applications/wc-1").json()
    assert snapshot["job"]["error"]["code"] == "application"
    assert [error["code"] for error in snapshot["job"]["errors"]] == ["operator", "application"]
    assert snapshot["job"]["fragments"][0]["error"]["code"] == "operator"
    assert snapshot["diagnosis"]["severity"] == "critical"
    lines = console.client_of(Role.GUEST).get("/api/v1/applications").json()["applications"]
    assert {line["app_id"]: line["why"] for line in lines}["wc-2"] == (
        "its application master ended with status 1"
    )


def test_users_see_the_text_of_errors_in_answers_and_events(console: ConsoleInThread) -> None:
    failing(console)
    http = console.client_of(Role.USER)
    for part in ("", "/errors", "/fragments", "/diagnosis", "/checkpoints"):
        assert MESSAGE in http.get(f"/api/v1/applications/wc-1{part}").text, part
    with (
        stream(http, "/api/v1/events?app=wc-1") as events,
        stream(console.client_of(Role.GUEST), "/api/v1/events?app=wc-1") as of_guest,
    ):
        assert MESSAGE in str(until(events, "snapshot"))
        assert MESSAGE not in str(until(of_guest, "snapshot"))
        for told, texts in ((http, True), (console.client_of(Role.GUEST), False)):  # while it is watched
            assert (MESSAGE in told.get("/api/v1/applications/wc-1").text) is texts


def test_guests_see_no_line_of_a_file_whose_graph_cannot_be_made(
    console: ConsoleInThread, tmp_path: Path
) -> None:
    breaks = tmp_path / "breaks"
    lines = f"import pathlib\nassert not pathlib.Path({str(breaks)!r}).exists()  # {MESSAGE}\n"
    made = submit(console, lines.encode() + APPLICATION)
    assert made.status_code == 201, made.text
    breaks.touch()
    for role in (Role.GUEST, Role.USER):
        answer = console.client_of(role).get("/api/v1/applications/shop/graph")
        assert (answer.status_code, answer.json()["code"]) == (400, "application-file")
        assert (MESSAGE in answer.text) is (role is Role.USER)


def test_guests_do_not_read_operations_which_may_have_failed_with_an_error(
    shared_console: ConsoleInThread,
) -> None:
    http = shared_console.client_of(Role.GUEST)
    for path in ("/api/v1/operations", "/api/v1/operations/0"):
        assert http.get(path).json()["code"] == "not-allowed"
