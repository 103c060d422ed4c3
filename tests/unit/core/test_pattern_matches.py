"""Matches of patterns beside a naive search over all messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.state.pattern_matches import Fulfils, Match, Pattern, PatternMatches, Step
from drivetrain.errors import InputError, UserError

Message = tuple[int, int]
"""Its time, and the conditions that it fulfils as bits."""
CONDITIONS = 4


def fulfils(message: Message) -> Fulfils:
    return lambda condition, _: bool(message[1] >> condition & 1)


def alone(pattern: Pattern, messages: list[Message], first: int) -> Match | None:
    """The match that begins with a message, whatever the others begin."""
    steps, has = pattern.steps, lambda n, c: bool(messages[n][1] >> c & 1)
    if not has(first, steps[0].condition):
        return None
    end_us = messages[first][0] + pattern.within_us
    inside = [n for n in range(first + 1, len(messages)) if messages[n][0] <= end_us]
    found, last = [[first]], first
    while not (len(found) == len(steps) and len(found[-1]) >= steps[-1].at_least):
        if not inside:
            return None
        n = inside.pop(0)
        step, following = steps[len(found) - 1], None
        if len(found[-1]) >= step.at_least:
            following = steps[len(found)]
        if following and has(n, following.condition):
            found.append([n])
        elif following and any(has(n, c) for c in following.without):
            return None
        elif step.repeats and has(n, step.condition):
            found[-1].append(n)
        elif (following or step).directly:
            return None
        else:
            continue
        last = n
    if not pattern.absent:
        return Match(messages[first][0], messages[last][0], tuple(map(tuple, found)))
    if any(has(n, c) for n in inside for c in pattern.absent):
        return None
    return Match(messages[first][0], end_us, tuple(map(tuple, found)))


def naive(pattern: Pattern, messages: list[Message]) -> list[Match]:
    each = [(first, alone(pattern, messages, first)) for first in range(len(messages))]
    found = [(first, match) for first, match in each if match is not None]
    if pattern.overlapping:
        return sorted((match for _, match in found), key=repr)
    chosen, begin = [], 0
    while left := [(match.ended_us, first, match) for first, match in found if first >= begin]:
        if pattern.absent:
            ended_us, _, match = min(left, key=lambda each: each[:2])
            begin = next((n for n, m in enumerate(messages) if m[0] > ended_us), len(messages))
        else:
            match = min(left, key=lambda each: (each[2].messages[-1][-1], each[1]))[2]
            begin = match.messages[-1][-1] + 1
        chosen.append(match)
    return sorted(chosen, key=repr)


def by_parts(pattern: Pattern, messages: list[Message], size: int) -> list[Match]:
    """The same as messages come, saved and created from it after each part."""
    matches, found = PatternMatches(pattern, "p"), []
    for begin in range(0, len(messages), size):
        part = messages[begin : begin + size]
        for number, message in enumerate(part, begin):
            found += matches.take(b"k", message[0], number, fulfils(message))
        following = messages[begin + size : begin + size + 1]
        found += [match for _, match in matches.pass_time(following[0][0] if following else 10_000)]
        matches = PatternMatches(pattern, "p", matches.saved())
    assert matches.next_us is None
    assert matches.messages() == []
    return sorted(found, key=repr)


conditions = st.integers(0, CONDITIONS - 1)
steps = st.builds(
    Step,
    conditions,
    at_least=st.integers(1, 3),
    repeats=st.booleans(),
    directly=st.booleans(),
    without=st.lists(conditions, max_size=1).map(tuple),
).map(lambda step: step if step.repeats else replace(step, at_least=1))
patterns = st.builds(
    Pattern,
    st.lists(steps, min_size=1, max_size=3).map(tuple),
    within_us=st.integers(1, 20),
    absent=st.lists(conditions, max_size=1).map(tuple),
    overlapping=st.booleans(),
)
streams = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**CONDITIONS - 1)), max_size=30)


@given(patterns, streams, st.integers(1, 8))
@settings(max_examples=100)
def test_matches_are_those_of_a_search_over_all_messages(
    pattern: Pattern, gaps: list[Message], size: int
) -> None:
    messages, now = [], 0
    for gap, bits in gaps:
        now += gap
        messages.append((now, bits))
    assert by_parts(pattern, messages, size) == naive(pattern, messages)


def test_keys_do_not_share_matches() -> None:
    matches = PatternMatches(Pattern((Step(0), Step(1)), 100), "p")
    assert matches.take(b"a", 1, 0, fulfils((1, 1))) == []
    assert matches.take(b"b", 2, 1, fulfils((2, 2))) == []
    assert matches.take(b"a", 3, 2, fulfils((3, 2))) == [Match(1, 3, ((0,), (2,)))]


def test_messages_of_partial_matches_get_other_numbers() -> None:
    matches = PatternMatches(Pattern((Step(0, 2, True), Step(1)), 100), "p")
    for number in (4, 7):
        matches.take(b"a", number, number, fulfils((number, 1)))
    assert matches.messages() == [4, 7]
    assert matches.next_us == 104
    matches.renumber({4: 0, 7: 1})
    assert matches.take(b"a", 9, 2, fulfils((9, 2))) == [Match(4, 9, ((0, 1), (2,)))]


def test_damaged_state_and_that_of_another_pattern_are_refused() -> None:
    pattern = Pattern((Step(0), Step(1)), 100)
    saved = PatternMatches(pattern, "a then b").saved()
    with pytest.raises(InputError, match="damaged"):
        PatternMatches(pattern, "a then b", saved[:-3])
    with pytest.raises(UserError, match="the pattern has changed") as raised:
        PatternMatches(pattern, "a then c", saved)
    assert (raised.value.expected, raised.value.got) == ("a then c", "a then b")
