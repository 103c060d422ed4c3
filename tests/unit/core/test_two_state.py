"""States as of an application time, against one pass over all messages."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.api.states.monoids import Monoid
from drivetrain.api.windows import Window, sliding, tumbling
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.state.state_keys import encoded_key
from drivetrain.core.state.state_rules import EVER, EndedWindow, Span, StateRules
from drivetrain.core.state.stored_form import StoredForm
from drivetrain.core.state.two_state import Picture, TwoStates, decoded_picture, encoded_picture
from drivetrain.errors import InputError, InternalError, UserError
from nightly_run import examples

STEP = 10


class Held(Monoid[int, list[int]]):
    """All messages, in place where it can: nothing that is lost, doubled or shared can hide."""

    def zero(self) -> list[int]:
        return []

    def add(self, state: list[int], message: int) -> list[int]:
        state.append(message)
        return state

    def plus(self, left: list[int], right: list[int]) -> list[int]:
        left.extend(right)
        return left

    def result(self, state: list[int]) -> list[int]:
        return sorted(state)


class Pickled:
    def encode(self, state: Any) -> bytes:
        return pickle.dumps(state)

    def decode(self, encoded: bytes) -> Any:
        return pickle.loads(encoded)


def rules(
    step_ms: int | None = STEP, window: Window | None = None, form: StoredForm | None = None, **more: Any
) -> StateRules[Any]:
    return StateRules(Held(), Pickled(), form or StoredForm("held", "by key"), step_ms, window, **more)


# -- without windows and steps: a state is kept at hand ------------------------------------------------


class Odd(Monoid[int, int]):
    """A sum that refuses even numbers."""

    def zero(self) -> int:
        return 0

    def add(self, state: int, message: int) -> int:
        if message % 2 == 0:
            raise ValueError(message)
        return state + message

    def plus(self, left: int, right: int) -> int:
        return left + right

    def result(self, state: int) -> int:
        return state


class Plain:
    """States beside the messages of each key."""

    def __init__(self, monoid: Monoid[int, Any]) -> None:
        self.rules = StateRules(monoid, Pickled(), StoredForm("held", "by key"))
        self.states: TwoStates[Any] = TwoStates(self.rules)
        self.messages: dict[bytes, list[int]] = {}
        self.changed: dict[bytes, None] = {}

    def results(self) -> dict[bytes, Any]:
        is_list = isinstance(self.rules.monoid, Held)
        return {key: sorted(ns) if is_list else sum(ns) for key, ns in self.messages.items()}

    def update(self, key: bytes, n: int) -> None:
        try:
            self.states.update(key, 0, n)
        except ValueError:
            return  # the state is as it was: also that a key has none
        self.add(key, n)

    def merge(self, key: bytes, n: int) -> None:
        self.states.merge(key, EVER, 0, [n] if isinstance(self.rules.monoid, Held) else n, 1)
        self.add(key, n)

    def add(self, key: bytes, n: int) -> None:
        self.messages.setdefault(key, []).append(n)
        self.changed[key] = None

    def get(self, key: bytes, _n: int) -> None:
        found = self.states.get(key)
        assert (found if found is None else self.rules.monoid.result(found)) == self.results().get(key)
        assert self.states.spans_of(key) == ([EVER] if key in self.messages else [])

    def items(self, _key: bytes, _n: int) -> None:
        found = {key: self.rules.monoid.result(state) for _, key, state in self.states.items()}
        assert found == self.results()
        assert [key for _, key in self.states.changed] == list(self.changed)

    def save(self, _key: bytes, _n: int) -> None:
        assert not (self.states.is_empty and self.messages)
        self.states, self.changed = TwoStates(self.rules, self.states.saved()), {}

    def as_of(self, _key: bytes, _n: int) -> None:
        found = {key: self.rules.monoid.result(state) for (_, key), state in self.states.as_of([]).items()}
        assert found == self.results()

    def clock(self, _key: bytes, _n: int) -> None:
        assert self.states.advance(0) == ([], [])
        assert self.states.next_ms() is None


KEYS = st.sampled_from([b"a", b"b", b"c"])
CALLS = ["update", "update", "update", "merge", "get", "items", "save", "as_of", "clock"]


@settings(max_examples=examples(400))
@given(st.lists(st.tuples(st.sampled_from(CALLS), KEYS, st.integers(0, 9)), max_size=40))
def test_a_state_at_hand_is_seen_by_whatever_looks_next(calls: list[tuple[str, bytes, int]]) -> None:
    for monoid in (Held(), Odd()):
        plain = Plain(monoid)
        for name, key, n in [*calls, ("items", b"a", 0)]:
            getattr(plain, name)(key, n)


# -- the rules of the reference ----------------------------------------------------------------------------


def test_the_checkpoint_state_takes_only_what_is_older_and_the_current_state_takes_all() -> None:
    states = TwoStates(rules())
    states.advance(12)
    for ts in (15, 19, 20, 31):
        states.update(b"a", ts, ts)
    assert sorted(states.get(b"a")) == [15, 19, 20, 31]
    assert states.advance(19) == ([], [])
    assert states.as_of([]) == {}
    assert states.advance(20) == ([], [Picture(20, {EVER: {b"a": None}})])
    assert states.as_of([]) == {(EVER, b"a"): [15, 19]}
    assert sorted(states.get(b"a")) == [15, 19, 20, 31]


def test_when_the_clock_passes_a_time_its_pane_is_merged_and_nothing_is_counted_twice() -> None:
    states = TwoStates(rules())
    for ts in (5, 19, 20, 31):
        states.update(b"a", ts, ts)
    states.advance(20)
    states.update(b"b", 39, 39)
    states.update(b"a", 40, 40)
    states.advance(44)
    held = {key: sorted(state) for (_, key), state in states.as_of([]).items()}
    assert held == {b"a": [5, 19, 20, 31], b"b": [39]}
    assert sorted(states.get(b"a")) == [5, 19, 20, 31, 40]


def test_states_do_not_hold_the_clock_when_no_message_comes() -> None:
    states = TwoStates(rules())
    for clock in (7, 20, 1_000, 1_001, 5_000):
        assert states.advance(clock) == ([], [])
        assert states.clock_ms == clock
    assert states.checkpoint_ms == 5_000


def test_a_late_message_changes_the_current_state_at_once_and_no_picture_that_is_there() -> None:
    states = TwoStates(rules())
    states.update(b"a", 5, 5)
    states.advance(20)
    states.update(b"a", 7, 7)
    assert states.late == 1
    assert states.get(b"a") == [5, 7]
    assert states.as_of([]) == {(EVER, b"a"): [5]}
    _, pictures = states.advance(30)
    assert [p.at_ms for p in pictures] == [30]
    assert states.as_of([]) == {(EVER, b"a"): [5, 7]}
    assert states.as_of(pictures) == {(EVER, b"a"): [5]}


def test_a_window_is_told_once_and_what_comes_for_it_later_is_left_out_and_counted() -> None:
    states = TwoStates(rules(None, tumbling("10 ms")))
    states.update(b"a", 3, 3)
    states.update(b"a", 12, 12)
    ended, _ = states.advance(10)
    assert ended == [EndedWindow((0, 10), b"a", [3])]
    states.update(b"a", 4, 4)
    states.merge(b"a", (0, 10), 4, [4, 4], 2)
    assert states.late == 3
    assert states.advance(15) == ([], [])
    assert list(states.items()) == [((10, 20), b"a", [12])]
    assert states.advance(20)[0] == [EndedWindow((10, 20), b"a", [12])]
    assert states.is_empty


def test_the_state_of_a_window_is_that_of_the_last_messages_of_its_size() -> None:
    states = TwoStates(rules(None, sliding("10 ms", "5 ms")))
    for ts in (1, 6, 8, 11):
        states.update(b"a", ts, ts)
    states.advance(10)
    assert states.get(b"a", (0, 10)) is None
    assert states.get(b"a", (5, 15)) == [6, 8, 11]
    assert states.spans_of(b"a") == [(5, 15), (10, 20)]


def test_the_clock_does_not_go_back() -> None:
    states = TwoStates(rules())
    states.advance(20)
    with pytest.raises(InternalError, match="went back"):
        states.advance(19)


# -- as bytes ---------------------------------------------------------------------------------------------


def test_states_of_another_kind_are_refused() -> None:
    states = TwoStates(rules())
    states.update(b"a", 5, 5)
    with pytest.raises(UserError, match="declaration of the states has changed"):
        TwoStates(rules(form=StoredForm("count()", "by key")), states.saved())
    with pytest.raises(UserError, match="as_of of the states has changed"):
        TwoStates(second(form=StoredForm("held", "by another", 2)), states.saved())
    with pytest.raises(UserError, match="define migrate"):
        TwoStates(rules(form=StoredForm("held", "by key", 2)), states.saved())
    later = TwoStates(second())
    later.update(b"a", 5, 5)
    with pytest.raises(UserError, match="newer version"):
        TwoStates(rules(), later.saved())


def second(form: StoredForm | None = None) -> StateRules[Any]:
    """The rules of a version that negates what the first one has held."""

    def migrate(version: int, is_coded: bool, encoded: bytes) -> list[int]:
        assert (version, is_coded) == (1, False)
        held: list[int] = pickle.loads(encoded)
        if 13 in held:
            raise ValueError("unlucky")
        return [-message for message in held]

    return rules(form=form or StoredForm("held, negated", "by key", 2), migrate=migrate, is_coded=True)


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from([b"a", b"b", b"c"])), max_size=40), st.data())
def test_states_of_an_older_version_are_migrated_also_those_of_earlier_times(
    messages: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    """Each time is one pass over the messages; those that the older version took are negated."""
    taken = data.draw(st.integers(0, len(messages)))
    clocks = sorted(data.draw(st.lists(st.integers(0, 70), min_size=2, max_size=2)))
    states, pictures = TwoStates(rules()), list[Picture]()
    expected: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for number, (ts, key) in enumerate(messages):
        if number == taken:
            pictures += states.advance(clocks[0])[1]
            states = TwoStates(second(), states.saved())
        ts = ts if number < taken else max(ts, clocks[0])  # none of them is late
        message = 1_000 + number
        states.update(key, ts, message)
        expected[key].append((ts, -message if number < taken else message))
    if taken == len(messages):
        states = TwoStates(second(), states.saved())
    pictures += states.advance(clocks[1])[1]
    pictures = [decoded_picture(encoded_picture(picture)) for picture in pictures]
    current = {key: states.rules.monoid.result(state) for _, key, state in states.items()}
    assert current == {key: sorted(m for _, m in held) for key, held in expected.items()}
    for at_ms in range(0, states.checkpoint_ms + 1, STEP):
        found = states.as_of([picture for picture in pictures if picture.at_ms > at_ms])
        held = {key: [m for ts, m in all_of if ts < at_ms] for key, all_of in expected.items()}
        assert {k: sorted(s) for (_, k), s in found.items()} == {k: sorted(m) for k, m in held.items() if m}


def test_a_state_that_cannot_be_migrated_is_named() -> None:
    states = TwoStates(rules())
    for message, key in ((12, "here"), (13, "there")):
        states.update(encoded_key(key), 5, message)
    with pytest.raises(UserError, match=r"key 'there' cannot be migrated from version 1(.|\n)*unlucky"):
        TwoStates(second(), states.saved())


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    states = TwoStates(rules())
    for ts in range(40):
        states.update(b"%d" % (ts % 7), ts, ts)
    _, pictures = states.advance(25)
    for saved, read in (
        (states.saved(), lambda b: TwoStates(rules(), b)),
        (encoded_picture(pictures[0]), decoded_picture),
    ):
        damaged = bytearray(saved)
        damaged[data.draw(st.integers(0, len(saved) - 1))] ^= data.draw(st.integers(1, 255))
        with pytest.raises(InputError, match="damaged"):
            read(bytes(damaged))
        with pytest.raises(InputError, match="damaged"):
            read(saved[: data.draw(st.integers(0, len(saved) - 1))])


# -- against one pass over all messages ------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.integers(0, 120), st.sampled_from([b"a", b"b", b"c"])),
        st.tuples(st.just("clock"), st.integers(0, 25), st.just(b"")),
    ),
    max_size=60,
)


class Oracle:
    """All that was taken, by the end of the pane that it counts in."""

    def __init__(self, of: StateRules[Any]) -> None:
        self.rules = of
        self.taken: list[tuple[int, int, bytes, Span]] = []
        self.late = 0

    def take(self, key: bytes, ts: int, clock_ms: int, checkpoint_ms: int) -> list[Span]:
        spans = list(self.rules.spans(ts))
        open_spans = [s for s in spans if s == EVER or s[1] > clock_ms]
        pane = max(ts - ts % STEP, checkpoint_ms)
        self.taken += [(pane + STEP, ts, key, span) for span in open_spans]
        self.late += len(open_spans) < len(spans) or ts < checkpoint_ms
        return spans

    def states(self, time_ms: int, clock_ms: int) -> dict[tuple[Span, bytes], list[int]]:
        """What was taken in panes that end by a time, of windows that are open as of a clock."""
        found: dict[tuple[Span, bytes], list[int]] = defaultdict(list)
        for end, ts, key, span in self.taken:
            if end <= time_ms and (span == EVER or span[1] > clock_ms):
                found[span, key].append(ts)
        return ordered(found)


def ordered(states: Any) -> dict[tuple[Span, bytes], list[int]]:
    return {group: sorted(state) for group, state in states.items()}


class Run:
    """States that are saved and made anew after every step, and what they told."""

    def __init__(self, of: StateRules[Any], *, merged: bool) -> None:
        self.rules = of
        self.merged = merged
        self.states: TwoStates[Any] = TwoStates(of)
        self.oracle = Oracle(of)
        self.told: dict[tuple[Span, bytes], list[int]] = {}
        self.pictures: list[Picture] = []
        self.late = 0

    def message(self, ts: int, key: bytes) -> None:
        spans = self.oracle.take(key, ts, self.states.clock_ms, self.states.checkpoint_ms)
        if not self.merged:
            self.states.update(key, ts, ts)
            return
        for span in spans:
            self.states.merge(key, span, self.rules.pane(ts), [ts], 1)

    def clock(self, ms: int) -> None:
        ended, pictures = self.states.advance(min(self.states.clock_ms + ms, FINAL_CLOCK_MS))
        assert not self.told.keys() & {(end.span, end.key) for end in ended}
        self.told |= {(end.span, end.key): sorted(end.state) for end in ended}
        self.pictures += [decoded_picture(encoded_picture(picture)) for picture in pictures]

    def save(self) -> None:
        self.states.check()
        self.late += self.states.late
        self.states = TwoStates(self.rules, self.states.saved())
        self.states.check()


@settings(max_examples=examples(200))
@given(STEPS, st.booleans(), st.sampled_from([None, tumbling("7 ms"), sliding("20 ms", "10 ms")]))
def test_every_time_that_is_a_multiple_of_the_step_is_exact(
    steps: list[tuple[str, int, bytes]], merged: bool, window: Window | None
) -> None:
    run = Run(rules(STEP, window), merged=merged)
    oracle = run.oracle
    for what, number, key in [*steps, ("clock", FINAL_CLOCK_MS, b"")]:
        if what == "message":
            run.message(number, key)
        else:
            run.clock(number)
        run.save()
        current = {(span, key): state for span, key, state in run.states.items()}
        assert ordered(current) == oracle.states(FINAL_CLOCK_MS, run.states.clock_ms)
    assert merged or run.late == oracle.late
    for time_ms in range(0, 150, STEP):
        later = [picture for picture in run.pictures if picture.at_ms > time_ms]
        exact = oracle.states(time_ms, time_ms)
        assert ordered(run.states.as_of(later)) == exact
        assert ordered(run.states.as_of(later, b"a")) == {g: s for g, s in exact.items() if g[1] == b"a"}
    if window is not None:
        assert run.told == oracle.states(FINAL_CLOCK_MS, -1)


def test_a_picture_knows_only_what_changed() -> None:
    states = TwoStates(rules())
    for key in (b"a", b"b"):
        states.update(key, 5, 5)
    states.advance(10)
    states.update(b"a", 15, 15)
    _, pictures = states.advance(20)
    assert pictures == [Picture(20, {EVER: {b"a": pickle.dumps([5])}})]


def test_the_next_call_is_for_the_end_of_a_window_or_of_a_pane() -> None:
    states = TwoStates(rules())
    assert states.next_ms() is None
    states.update(b"a", 25, 25)
    assert states.next_ms() == 30
    states.advance(30)
    assert states.next_ms() is None
    windowed = TwoStates(rules(STEP, tumbling("7 ms")))
    windowed.update(b"a", 15, 15)
    assert windowed.next_ms() == 20
    windowed.advance(20)
    assert windowed.next_ms() == 21
    windowed.advance(21)
    assert windowed.next_ms() == 30
    windowed.advance(30)
    assert (windowed.next_ms(), windowed.is_empty) == (None, True)


def test_timers_are_kept_with_the_states_and_ask_for_the_next_call() -> None:
    states = TwoStates(rules(None))
    assert states.is_empty
    states.timers.set(b"a", 30)
    states.timers.set(b"b", 10)
    again = TwoStates(rules(None), states.saved())
    assert not again.is_empty
    assert (again.timers.kept(), again.next_ms()) == ([(10, b"b"), (30, b"a")], 10)
    again.timers.take(10)
    again.timers.cancel(b"a")
    assert TwoStates(rules(None), again.saved()).is_empty
