"""The board of what streams carry, and the rates: pure cores, against naive models."""

from __future__ import annotations

import random

import pytest

from drivetrain.console.access.roles import Role
from drivetrain.console.access.sessions import IDLE_MS, LONGEST_MS, MOST, Sessions
from drivetrain.console.access.throttle import FORGOTTEN_MS, Throttle
from drivetrain.console.access.throttle import LONGEST_MS as LONGEST_WAIT_MS
from drivetrain.console.watching.board import MOST_GONE, Board, Topic
from drivetrain.console.watching.rates import MOST_READINGS, Rates


@pytest.mark.parametrize("seed", range(50))
def test_a_reader_of_any_speed_ends_with_the_last_state_of_everything(seed: int) -> None:
    draw = random.Random(seed)
    board, latest = Board(), dict[Topic, bytes]()
    readers: list[tuple[int, dict[Topic, bytes]]] = [(0, {}) for _ in range(4)]

    def read(index: int, most: int) -> int:
        number, seen = readers[index]
        notes = board.after(number, lambda topic: topic.event != "hidden", most)
        for note in notes:
            assert note.number > number, f"seed {seed}"
            number = note.number
            seen[note.topic] = note.data
        readers[index] = (number, seen)
        return len(notes)

    for step in range(200):
        topic = Topic(draw.choice(["line", "snapshot", "hidden"]), f"app-{draw.randrange(6)}")
        data = str(draw.randrange(3)).encode()
        changed = latest.get(topic) != data
        assert board.put(topic, data, data + b"!") is changed, f"seed {seed} step {step}"
        latest[topic] = data
        board.check()
        for index in range(3):  # the fourth only reads at the end
            if draw.random() < 0.2 * index:
                read(index, draw.randrange(1, 4))
    shown = {topic: data + b"!" for topic, data in latest.items() if topic.event != "hidden"}
    for index in range(4):
        while read(index, 5):
            continue
        assert readers[index][1] == shown, f"seed {seed}"


def test_what_is_gone_is_forgotten_and_told_for_a_while() -> None:
    board = Board()
    for number in range(MOST_GONE + 50):
        board.put(Topic("line", f"app-{number}"), b"1", b"1")
        board.gone(f"app-{number}", "gone", b"{}")
        board.check()
    notes = board.after(0, lambda topic: True, 10_000)
    assert {note.topic.event for note in notes} == {"gone"}
    assert len(notes) == MOST_GONE
    assert notes[-1].topic.app_id == f"app-{MOST_GONE + 49}"


def test_what_is_gone_is_noted_once_until_it_is_there_again() -> None:
    board = Board()
    board.put(Topic("line", "app"), b"1", b"1")
    assert board.gone("app", "gone", b"{}") is True
    number = board.newest
    assert board.gone("app", "gone", b"{}") is False
    assert board.newest == number
    board.put(Topic("line", "app"), b"1", b"1")
    assert board.gone("app", "gone", b"{}") is True
    assert [note.number for note in board.after(0, lambda topic: True, 10)] == [board.newest]
    board.check()


@pytest.mark.parametrize("seed", range(30))
def test_rates_are_the_growth_within_ten_seconds_of_one_epoch(seed: int) -> None:
    draw = random.Random(seed)
    rates, epoch, now_ms, total = Rates(), 1, 0, 0
    history: list[tuple[int, int]] = []
    for _ in range(100):
        if draw.random() < 0.05:
            epoch, total, history = epoch + 1, 0, []
        now_ms += draw.choice([0, 500, 1_000, 4_000])
        if not history or history[-1][0] != now_ms:
            total += draw.randrange(100)
            history.append((now_ms, total))
        rates.note(epoch, now_ms, {"a": (total, 2 * total, 0, 0)})
        rates.check()
        history = history[-MOST_READINGS:]
        told = rates.of("a")
        if len(history) < 2:
            assert told is None, f"seed {seed}"
            continue
        old = [at for at, _ in history[:-1] if now_ms - at >= 10_000]
        first = next(each for each in history if each[0] == (old[-1] if old else history[0][0]))
        assert told is not None
        expected = (total - first[1]) / ((now_ms - first[0]) / 1000)
        assert told == pytest.approx((expected, 2 * expected)), f"seed {seed}"
    assert rates.of("unknown") is None


def test_waiting_for_the_next_try_doubles_up_to_a_bound_and_is_forgotten() -> None:
    throttle = Throttle()
    waits = []
    for _ in range(14):
        waits.append(throttle.wait_ms("ada", "here", 0))
        throttle.failed("ada", "here", 0)
    assert waits[:6] == [0] * 6
    assert waits[6:9] == [1_000, 2_000, 4_000]
    assert max(waits) == LONGEST_WAIT_MS
    assert throttle.wait_ms("ada", "here", FORGOTTEN_MS) == 0
    throttle.succeeded("ada", "here")
    assert throttle.wait_ms("ada", "here", 0) == 0
    for number in range(20_000):
        throttle.failed(f"user-{number}", "here", 0)
    throttle.check()


def test_sessions_end_when_unused_when_old_and_when_there_are_too_many() -> None:
    sessions = Sessions()
    sessions.begin("a", "ada", Role.USER, "hash", 0)
    assert sessions.use("a", IDLE_MS - 1) is not None
    assert sessions.use("a", 2 * IDLE_MS - 2) is not None
    assert sessions.use("a", 4 * IDLE_MS) is None
    sessions.begin("b", "ada", Role.USER, "hash", 0)
    for now_ms in range(0, LONGEST_MS, IDLE_MS // 2):
        assert sessions.use("b", now_ms) is not None
    assert sessions.use("b", LONGEST_MS) is None
    for number in range(MOST + 1):
        sessions.begin(f"c{number}", "ada", Role.USER, "hash", 0)
    assert sessions.use("c0", 0) is None
    assert sessions.use("c1", 0) is not None
