"""Dead letters by REST: pages of what is in the state directory of an application of the cluster."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from console_in_thread import ConsoleInThread
from test_reading import HOSTILE
from test_writing import APPLICATION, QUERY

from drivetrain.console import cursors
from drivetrain.console.access.roles import Role
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.run_directory import RunDirectory

PATH = "/api/v1/applications/shop/dead-letters"


@pytest.fixture
def state(console: ConsoleInThread, place: Path) -> Path:
    """The state directory of an application that was submitted."""
    return shop_state(console, place)


def shop_state(console: ConsoleInThread, place: Path) -> Path:
    """Submit an application with its states below `place`; returns where its own state will be."""
    sets = [*QUERY["set"], f"state.dir={place / 'states'}"]
    made = console.http.post("/api/v1/applications", params={**QUERY, "set": sets}, content=APPLICATION)
    assert made.status_code == 201, made.text
    return RunDirectory(str(place / "states"), "shop", {"input": "/some/where"}).path


def store(state: Path, fragment: str, *messages: str, error: str = "ValueError: no") -> None:
    """Store dead letters as the fragment does."""
    channel = ChannelStore(str(state / "dead-letters" / fragment), fragment=fragment, durable=False)
    columns = {
        "operator": ["parse"] * len(messages),
        "message": list(messages),
        "file": ["in.jsonl"] * len(messages),
        "line": list(range(len(messages))),
        "error": [error] * len(messages),
        TS: pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * len(messages), pa.timestamp("us", "UTC")),
    }
    segment = write_segment(channel.files, fragment, pa.table(columns).to_batches())
    channel.append(channel.last_batch() + 1, [segment], 0)


def test_pages_join_to_all_dead_letters(console: ConsoleInThread, state: Path) -> None:
    for fragment in ("one", "two"):
        store(state, fragment, *(f"{fragment}-{number}" for number in range(5)))
    seen, cursor = [], None
    while True:
        params = {"limit": 3} if cursor is None else {"limit": 3, "cursor": cursor}
        page = console.http.get(PATH, params=params).json()
        assert (page["count"], page["dropped"]) == (10, 0)
        seen += [letter["message"] for letter in page["letters"]]
        cursor = page["next"]
        if cursor is None:
            break
    for fragment in ("one", "two"):
        own = [text for text in seen if text.startswith(fragment)]
        assert own == [f"{fragment}-{number}" for number in range(4, -1, -1)]
    assert len(seen) == 10


def test_a_dead_letter_is_text_whatever_is_in_it_and_cut_when_it_is_long(
    console: ConsoleInThread, state: Path
) -> None:
    store(state, "one", HOSTILE)
    store(state, "one", "m" * 100_000, error="e" * 100_000 + HOSTILE)
    answer = console.http.get(PATH)
    assert answer.headers["content-type"] == "application/json"
    long, short = answer.json()["letters"]
    assert (short["message"], short["is_cut"], short["line"]) == (HOSTILE, False, 0)
    assert short["timestamp_ms"] == 1_767_225_600_000
    assert (len(long["message"]), len(long["error"]), long["is_cut"]) == (4_000, 4_000, True)
    assert long["error"].endswith(HOSTILE)


def test_a_state_without_dead_letters_has_an_empty_page(console: ConsoleInThread, state: Path) -> None:
    state.mkdir(parents=True)
    assert console.http.get(PATH).json() == {"letters": [], "next": None, "count": 0, "dropped": 0}


def test_guests_read_no_message(console: ConsoleInThread, state: Path) -> None:
    store(state, "one", "ada@example.com")
    for role, status in ((Role.GUEST, 403), (Role.USER, 200)):
        answer = console.client_of(role).get(PATH)
        assert answer.status_code == status
        assert ("ada@example.com" in answer.text) is (role is Role.USER)
    assert console.client().get(PATH).status_code == 401


def test_a_state_that_is_not_here_is_a_problem_with_a_remedy(console: ConsoleInThread, state: Path) -> None:
    answer = console.http.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (404, "state-not-here")
    assert answer.json()["where"] == str(state)
    assert "mount it" in answer.json()["remedy"]


def test_a_state_that_is_on_a_worker_is_a_problem_with_another_remedy(console: ConsoleInThread) -> None:
    params = {**QUERY, "set": [*QUERY["set"], "state.dir=s3://states/x"]}
    made = console.http.post("/api/v1/applications", params=params, content=APPLICATION)
    assert made.status_code == 201, made.text
    answer = console.http.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (404, "state-not-here")
    assert answer.json()["where"] == "s3://states/x"
    assert "state.work-dir" in answer.json()["remedy"]


@pytest.mark.parametrize("position", ["", "x", "[1]", '{"one": "2"}', '{"one": 1e99}', "\x00"])
def test_a_position_that_is_none_is_a_problem(console: ConsoleInThread, state: Path, position: str) -> None:
    store(state, "one", "a")
    cursor = cursors.written(cursors.Cursor("dead-letters shop-1", position))
    answer = console.http.get(PATH, params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad-cursor")


def test_a_position_that_someone_made_up_gives_a_page(console: ConsoleInThread, state: Path) -> None:
    store(state, "one", "a", "b")
    for position, seen in (
        (f'{{"one": {2**70}}}', ["b", "a"]),
        ('{"one": -5}', []),
        ('{"../../one": 1}', []),
        ('{"one": 1}', ["a"]),
    ):
        cursor = cursors.written(cursors.Cursor("dead-letters shop-1", position))
        page = console.http.get(PATH, params={"cursor": cursor}).json()
        assert [letter["message"] for letter in page["letters"]] == seen, position
        assert page["next"] is None


def test_a_damaged_file_is_a_problem(console: ConsoleInThread, state: Path) -> None:
    store(state, "one", "a")
    for path in (state / "dead-letters" / "one" / "segments").iterdir():
        path.write_bytes(b"nothing of the kind")
    answer = console.http.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (503, "message-loss")
