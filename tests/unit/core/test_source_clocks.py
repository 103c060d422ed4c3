"""The clock of a source with partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.clock.source_clocks import SourceClocks
from drivetrain.errors import ConfigError, InternalError


def clocks(*partitions: str, idle_ms: int | None = 100, disorder_ms: int = 0) -> SourceClocks[str]:
    return SourceClocks(partitions, disorder_ms=disorder_ms, idle_ms=idle_ms, now_ms=0)


def test_the_smallest_partition_counts_less_its_disorder() -> None:
    source = clocks("a", "b", disorder_ms=5)
    source.observe({"a": 100, "b": 70}, 10, 11)
    assert source.clock_ms == 65
    assert source.holding == "b"


def test_a_partition_that_said_nothing_yet_holds_the_clock() -> None:
    source = clocks("a", "b")
    source.observe({"a": 100}, 10, 11)
    assert source.clock_ms is None
    assert source.holding == "b"


def test_an_idle_partition_is_left_out_and_counts_again_when_it_speaks() -> None:
    source = clocks("a", "b")
    source.observe({"a": 100, "b": 70}, 10, 10)
    source.observe({"a": 300}, 109, 109)
    assert source.clock_ms == 70
    source.observe({"a": 400}, 110, 110)
    assert source.idle == ("b",)
    assert source.clock_ms == 400
    source.observe({"b": 200}, 120, 120)
    source.observe({"a": 900}, 130, 130)
    assert source.clock_ms == 400, "b is at 200, and a clock does not go back"
    source.observe({"b": 800}, 140, 140)
    assert source.clock_ms == 800


def test_nobody_is_idle_while_nobody_looks() -> None:
    source = clocks("a", "b")
    source.observe({"a": 100, "b": 70}, 10, 10)
    source.observe({"a": 900}, 20, 5_000)  # a batch that took five seconds
    assert source.clock_ms == 70
    source.looked(5_000)
    assert source.clock_ms == 900


def test_the_clock_of_a_silent_source_stands() -> None:
    source = clocks("a", "b")
    source.observe({"a": 100, "b": 70}, 10, 10)
    source.looked(10_000)
    assert source.idle == ("a", "b")
    assert source.clock_ms == 70
    assert source.holding is None


def test_a_look_that_comes_when_all_are_idle_says_what_one_in_between_would_have_said() -> None:
    source = clocks("a", "b", "c")
    source.observe({"a": 100, "b": 70}, 10, 10)
    source.looked(10_000)
    assert source.idle == ("a", "b", "c")
    assert source.clock_ms == 70, "c, which never spoke, was idle first"


def test_without_a_timeout_nobody_is_idle() -> None:
    source = clocks("a", "b", idle_ms=None)
    source.observe({"a": 100}, 10, 10)
    source.looked(10**12)
    assert source.clock_ms is None


def test_a_clock_of_an_earlier_life_is_kept() -> None:
    source = clocks("a", "b")
    source.restore(500)
    source.observe({"a": 100, "b": 70}, 10, 10)
    assert source.clock_ms == 500


def test_an_unknown_partition_is_refused_and_nothing_changes() -> None:
    source = clocks("a")
    with pytest.raises(InternalError, match="no partition 'c'"):
        source.observe({"a": 1, "c": 1}, 10, 10)
    assert source.clock_ms is None


@pytest.mark.parametrize(
    ("partitions", "idle_ms", "disorder_ms"), [((), 1, 0), (("a",), 0, 0), (("a",), 1, -1)]
)
def test_values_that_make_no_sense_are_refused(
    partitions: tuple[str, ...], idle_ms: int, disorder_ms: int
) -> None:
    with pytest.raises(ConfigError):
        clocks(*partitions, idle_ms=idle_ms, disorder_ms=disorder_ms)


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1_000)), st.integers(0, 80)),
        max_size=40,
    ),
    st.none() | st.integers(1, 200),
)
def test_it_agrees_with_a_look_at_the_whole_story(
    batches: list[tuple[dict[str, int], int]], idle_ms: int | None
) -> None:
    source = clocks("a", "b", "c", idle_ms=idle_ms, disorder_ms=3)
    now, told = 0, None
    for number, (newest, later_ms) in enumerate(batches):
        now += later_ms
        source.observe(newest, now, now)
        source.check()
        story = batches[: number + 1]
        times = [sum(later for _, later in batches[: i + 1]) for i in range(number + 1)]
        spoke = {
            partition: max((t for (n, _), t in zip(story, times, strict=True) if partition in n), default=0)
            for partition in "abc"
        }
        counting = [p for p in "abc" if idle_ms is None or now - spoke[p] < idle_ms]
        counting = counting or [p for p in "abc" if spoke[p] == max(spoke.values())]
        active = [[n[partition] for n, _ in story if partition in n] for partition in counting]
        if all(active):
            clock = min(max(seen) for seen in active) - 3
            told = clock if told is None else max(told, clock)
        assert source.clock_ms == told
