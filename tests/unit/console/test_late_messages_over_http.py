"""Late messages by REST: pages of the samples in the state directory of an application of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_in_thread import ConsoleInThread, scripted
from test_dead_letters_over_http import shop_state
from test_reading import HOSTILE

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.console import cursors
from drivetrain.console.access.roles import Role
from drivetrain.runtime.late_samples import LateMessage, LateSamples

world = scripted.world
PATH = "/api/v1/applications/shop/late-messages"


@pytest.fixture
def state(console: ConsoleInThread, place: Path) -> Path:
    """The state directory of an application that was submitted."""
    return shop_state(console, place)


def store(state: Path, fragment: str, *messages: str, stored_ms: int = 5) -> None:
    """Store samples as the fragment does."""

    def samples(first: int) -> list[LateMessage]:
        return [
            LateMessage(
                number=first + number,
                processor="hourly",
                message=message,
                is_cut=False,
                timestamp_ms=1_000,
                clock_ms=9_000,
                batch=7,
                stored_ms=stored_ms,
            )
            for number, message in enumerate(messages)
        ]

    LateSamples(state, fragment).add(samples, 100)


def test_pages_join_to_all_samples(console: ConsoleInThread, state: Path) -> None:
    for fragment in ("one", "two"):
        store(state, fragment, *(f"{fragment}-{number}" for number in range(4)))
        store(state, fragment, f"{fragment}-4", stored_ms=6)
    seen, cursor = [], None
    while True:
        params = {"limit": 3} if cursor is None else {"limit": 3, "cursor": cursor}
        page = console.http.get(PATH, params=params).json()
        seen += [sample["message"] for sample in page["samples"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen[:2] == ["two-4", "one-4"]
    for fragment in ("one", "two"):
        own = [text for text in seen if text.startswith(fragment)]
        assert own == [f"{fragment}-{number}" for number in range(4, -1, -1)]
    assert len(seen) == 10


def test_a_sample_is_text_with_its_time_and_the_clock_then(console: ConsoleInThread, state: Path) -> None:
    store(state, "one", HOSTILE)
    answer = console.http.get(PATH)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "samples": [
            {
                "fragment": "one",
                "processor": "hourly",
                "message": HOSTILE,
                "is_cut": False,
                "timestamp_ms": 1_000,
                "clock_ms": 9_000,
                "batch": 7,
                "stored_ms": 5,
            }
        ],
        "next": None,
        "late": None,
    }


def test_late_messages_are_counted_by_processor(console: ConsoleInThread, state: Path) -> None:
    state.mkdir(parents=True)
    assert console.http.get(PATH).json() == {"samples": [], "next": None, "late": None}
    app_master = console.cluster.app_master(
        world.status_of("shop-1", counts={"hourly": (10, 5, 3, 0), HOSTILE: (1, 1, 0, 1)})
    )
    console.world.change("shop-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
    assert console.http.get(PATH).json()["late"] == {"hourly": 3}


def test_guests_read_no_message(console: ConsoleInThread, state: Path) -> None:
    store(state, "one", "ada@example.com")
    for role, status in ((Role.GUEST, 403), (Role.USER, 200)):
        answer = console.client_of(role).get(PATH)
        assert answer.status_code == status
        assert ("ada@example.com" in answer.text) is (role is Role.USER)
    assert console.client().get(PATH).status_code == 401


@pytest.mark.parametrize("position", ["", "x", "[1]", '[1, 2, "a"]', '{"one": 1e99}', "\x00"])
def test_a_position_that_is_none_is_a_problem(console: ConsoleInThread, state: Path, position: str) -> None:
    store(state, "one", "a")
    cursor = cursors.written(cursors.Cursor("late-messages shop-1", position))
    answer = console.http.get(PATH, params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad-cursor")


def test_a_damaged_file_is_a_problem_that_names_it(console: ConsoleInThread, state: Path) -> None:
    store(state, "one", "a")
    file = state / "late-messages" / "one.json"
    file.write_bytes(file.read_bytes()[:-5])
    answer = console.http.get(PATH)
    assert answer.status_code == 400
    assert answer.json()["where"] == str(file)
    store(state, "one", "b")  # the next samples replace it
    assert [sample["message"] for sample in console.http.get(PATH).json()["samples"]] == ["b"]


def test_samples_are_bounded_and_their_numbers_grow(state: Path) -> None:
    store(state, "one", *map(str, range(150)))
    store(state, "one", "last")
    kept = LateSamples(state, "one").read()
    assert [sample.number for sample in kept] == list(range(51, 151))
    assert kept[-1].message == "last"
