"""The stream of events: order, continuing, slow readers, many readers, lost masters."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest
from console_in_thread import SLOW_S, ConsoleInThread, scripted
from test_reading import GROWING, RECENT, running

from drivetrain.actor import Message
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import GetHistory, GetStatus, HistoryReport, Status
from drivetrain.console.access.roles import Role
from drivetrain.console.watching.board import Board

world = scripted.world

Event = tuple[str, str | None, dict]


@contextmanager
def stream(
    http: httpx.Client, path: str = "/api/v1/events", last: str | None = None
) -> Iterator[Iterator[Event]]:
    """The events of a stream as (type, id, data)."""
    headers = {} if last is None else {"Last-Event-ID": last.encode("latin-1")}
    with http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[Event]:
    kind, id, data = "", None, ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: "):
            data = line[6:]
        elif not line and kind:
            yield kind, id, json.loads(data)
            kind, id, data = "", None, ""


def until(events: Iterator[Event], kind: str, holds=lambda data: True) -> Event:
    end_s = time.monotonic() + SLOW_S
    for event in events:
        if event[0] == kind and holds(event[2]):
            return event
        assert time.monotonic() < end_s, f"waited in vain for {kind}"
    raise AssertionError(f"the stream ended before {kind}")


def test_a_stream_begins_with_all_that_is_there_and_goes_on_with_changes(console: ConsoleInThread) -> None:
    running(console)
    with stream(console.http, "/api/v1/events?app=wc") as events:
        first = next(events)
        assert (first[0], first[2]["continues"]) == ("begin", False)
        snapshot = until(events, "snapshot")
        assert snapshot[2]["application"]["app_id"] == "wc-1"
        console.world.put(world.view_of("wc-2"))
        assert until(events, "application", lambda d: d["app_id"] == "wc-2")[2]["state"] == "pending"
        console.world.change("wc-2", state=ApplicationState.KILLED)
        until(events, "application", lambda d: d["state"] == "killed")


def test_a_stream_goes_on_after_the_last_event_that_was_seen(console: ConsoleInThread) -> None:
    for number in range(1, 6):
        console.world.put(world.view_of(f"wc-{number}"))
    with stream(console.http) as events:
        until(events, "application", lambda d: d["app_id"] == "wc-1")
        last = until(events, "connection", lambda d: d["is_connected"])[1]
        assert last is not None
        console.world.change("wc-3", state=ApplicationState.KILLED)
        with stream(console.http, last=last) as again:
            assert next(again)[2]["continues"] is True
            changed = until(again, "application")
            assert (changed[2]["app_id"], changed[2]["state"]) == ("wc-3", "killed")
        for foreign in ("abcdef01-1", "x", "-", last.replace("-", "-9999999999"), "\u00e9-1"):
            with stream(console.http, last=foreign) as other:
                begin = next(other)
                assert begin[0] == "begin"
                if not foreign.startswith(last.split("-")[0]):
                    assert begin[2]["continues"] is False


def test_ids_grow_and_an_application_that_has_gone_is_told(console: ConsoleInThread) -> None:
    for number in range(1, 40):
        console.world.put(world.view_of(f"wc-{number}"))
    with stream(console.http) as events:
        numbers = []
        for kind, id, data in events:
            if id is not None:
                numbers.append(int(id.split("-")[1]))
            if kind == "connection" and data["is_connected"]:
                break
        assert numbers == sorted(set(numbers))
        del console.world.applications["wc-7"]
        assert until(events, "gone")[2]["app_id"] == "wc-7"


def test_a_watched_application_that_has_gone_is_sent_once(console: ConsoleInThread) -> None:
    running(console)
    with stream(console.http, "/api/v1/events?app=wc") as events:
        until(events, "snapshot")
        del console.world.applications["wc-1"]
        until(events, "gone")
        later = next(kind for kind, _, _ in events if kind in ("gone", "tick"))
        assert later == "tick", "nothing more happened for longer than several looks take"


def test_a_stream_that_ends_by_a_bug_is_logged(
    console: ConsoleInThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug of the board")

    monkeypatch.setattr(Board, "after", broken)
    with stream(console.http) as events, pytest.raises(httpx.RemoteProtocolError):
        list(events)
    assert "a bug of the board" in caplog.text


def test_it_tells_that_no_master_leads_and_goes_on_showing_the_application(console: ConsoleInThread) -> None:
    app_master = running(console)
    with stream(console.http, "/api/v1/events?app=wc") as events:
        until(events, "snapshot")
        console.world.lead(None)
        lost = until(events, "connection", lambda d: not d["is_connected"])
        assert lost[2]["problem"]
        assert lost[2]["remedy"]
        app_master.tell(Status(world.status_of(clock_ms=777_000)))
        seen = until(events, "snapshot", lambda d: d["job"] and d["job"]["clock_ms"] == 777_000)
        assert seen[2]["application"]["state"] == "active"
        console.world.lead(console.world.places[1])
        awaited = {
            "cluster": lambda data: data["leader"] == console.world.places[1],
            "connection": lambda data: data["is_connected"],
        }
        while awaited:  # in any order
            kind, _, data = next(events)
            if kind in awaited and awaited[kind](data):
                del awaited[kind]


def test_a_snapshot_of_a_stream_has_findings_about_trends(console: ConsoleInThread) -> None:
    running(console).tell(HistoryReport(GROWING))
    with stream(console.http, "/api/v1/events?app=wc") as events:
        seen = until(events, "snapshot", lambda d: d["diagnosis"]["findings"])
        assert "state-grows" in {finding["rule"] for finding in seen[2]["diagnosis"]["findings"]}


def test_a_restarted_application_master_is_followed(console: ConsoleInThread) -> None:
    running(console)
    with stream(console.http, "/api/v1/events?app=wc") as events:
        until(events, "snapshot", lambda d: d["job"] is not None)
        successor = console.cluster.app_master(world.status_of(epoch=2, clock_ms=9_000))
        console.world.change("wc-1", epoch=2, app_master=successor)
        seen = until(events, "snapshot", lambda d: d["job"] and d["job"]["epoch"] == 2)
        assert seen[2]["job"]["clock_ms"] == 9_000


def test_two_hundred_readers_cost_the_application_master_one_and_slow_ones_no_memory(
    console: ConsoleInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _count_questions(monkeypatch)
    app_master = running(console)
    host, port = console.address.removeprefix("http://").rstrip("/").split(":")
    request = (
        f"GET /api/v1/events?app=wc HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {console.token}\r\n\r\n"
    )
    slow = []
    for _ in range(200):
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(request.encode())  # and reads nothing of the answer
        slow.append(connection)
    try:
        with stream(console.http, "/api/v1/events?app=wc") as events:
            until(events, "snapshot")
            before = len(asked)
            blob, rounds = "x" * 400_000, 12
            held = psutil.Process().memory_info().rss
            for number in range(1, rounds + 1):
                status = world.status_of(clock_ms=number, waiting_for=blob + str(number))
                app_master.tell(Status(status))
                until(events, "snapshot", lambda d, n=number: d["job"] and d["job"]["clock_ms"] == n)
            looks = len(asked) - before
            held = psutil.Process().memory_info().rss - held
        assert rounds <= looks < 200, "one loop asks for all readers"
        # A queue for each reader would hold 960 MB: 200 times 12 snapshots of 400,000 bytes.
        assert held < 400_000_000, held
    finally:
        for connection in slow:
            connection.close()


def test_the_history_of_an_application_that_is_watched_is_not_asked_for_again(
    console: ConsoleInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _count_questions(monkeypatch, GetHistory)
    running(console).tell(HistoryReport(RECENT))
    path = "/api/v1/applications/wc/history"
    alone = console.http.get(path).json()
    assert len(alone["at_ms"]) == 60
    assert len(asked) == 1
    with stream(console.http, "/api/v1/events?app=wc") as events:
        until(events, "snapshot", lambda d: d["job"] is not None)
        before = len(asked)
        assert [console.http.get(path).json() for _ in range(10)] == [alone] * 10
    assert len(asked) - before <= 1, "it is kept for as long as nothing is added to it"


def _count_questions(monkeypatch: pytest.MonkeyPatch, question: type[Message] = GetStatus) -> list[Message]:
    seen: list[Message] = []
    receive = world.ScriptedAppMaster.receive

    def counted(self: object, message: Message) -> None:
        if isinstance(message, question):
            seen.append(message)
        receive(self, message)

    monkeypatch.setattr(world.ScriptedAppMaster, "receive", counted)
    return seen


def test_a_stream_ends_when_its_token_is_removed(console: ConsoleInThread) -> None:
    running(console)
    http = console.client_of(Role.GUEST)
    with stream(http) as events:
        until(events, "connection")
        console.access.remove("a-guest")
        ended = threading.Event()
        for _ in events:
            continue  # until the console ends it
        ended.set()
    assert ended.is_set()
    assert http.get("/api/v1/events").status_code == 401


def test_guests_have_no_logs_and_users_follow_them_to_the_end(console: ConsoleInThread) -> None:
    running(console)
    hostile = b"<img src=x>\x1b[2J\xff\n" + b"y" * 10_000_000 + b"\n"
    console.cluster.worker("w1", {"executor-1": hostile})
    console.world.change("wc-1", state=ApplicationState.SUCCEEDED)
    http = console.client_of(Role.USER)
    with stream(http, "/api/v1/applications/wc/logs/events") as events:
        text = ""
        for kind, _, data in events:
            if kind == "end":
                assert data == {"problem": None, "remedy": None}
                break
            text += data["text"]
    assert hostile.decode(errors="replace").endswith(text)
    page = http.get(
        "/api/v1/applications/wc/logs", params={"process": "executor-1", "offset": 0, "max_bytes": 18}
    ).json()["pieces"]
    assert [(piece["process"], piece["worker"], piece["next_offset"]) for piece in page] == [
        ("executor-1", "w1", 18)
    ]
    assert page[0]["text"] == "<img src=x>\x1b[2J\ufffd\ny"
    assert http.get("/api/v1/applications/wc/logs?offset=3").status_code == 400
    assert http.get("/api/v1/applications/wc/logs?process=none").json()["code"] == "no-log"
