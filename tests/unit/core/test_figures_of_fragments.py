"""Counters of fragments, latencies, partitions and the history: exact, bounded, never falling."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.job.fragment_figures import (
    LARGEST,
    MOST_NAMED,
    Counters,
    FragmentFigures,
    Phases,
    counters_of,
    flat,
)
from drivetrain.core.job.history import (
    MOST_FIGURES,
    SPAN_MS,
    STEP_MS,
    FragmentMoment,
    HistoryKeeper,
    Moment,
)
from drivetrain.core.job.latencies import KEPT, Latencies
from drivetrain.core.job.recent_partitions import SPAN_MS as PARTITIONS_MS
from drivetrain.core.job.recent_partitions import RecentPartitions
from drivetrain.errors import InternalError
from nightly_run import examples

WHOLE = st.integers(0, 2**40)
COUNTERS = st.builds(
    Counters,
    WHOLE,
    st.builds(Phases, *[WHOLE] * len(Phases.__struct_fields__)),
    WHOLE,
    WHOLE,
    WHOLE,
    st.dictionaries(st.text(max_size=5), WHOLE, max_size=3),
)


@given(COUNTERS)
def test_counters_are_the_same_after_they_were_added_up_by_name(counters: Counters) -> None:
    assert counters_of(dict(flat(counters))) == counters


def test_sums_that_nobody_can_have_counted_still_travel() -> None:
    absurd = dict.fromkeys(flat(Counters(blocked_ms={"a--b": 1})), 2**60)
    told = msgspec.msgpack.encode(FragmentFigures(counters_of(absurd)))
    assert msgspec.msgpack.decode(told, type=FragmentFigures).counters.batches == LARGEST


def test_a_counter_that_falls_and_a_negative_figure_are_found() -> None:
    before = FragmentFigures(Counters(2, Phases(sink_ms=5)))
    FragmentFigures(Counters(2, Phases(sink_ms=5))).check(before)
    with pytest.raises(InternalError, match="phase:sink_ms fell from 5"):
        FragmentFigures(Counters(3, Phases(sink_ms=4))).check(before)
    with pytest.raises(InternalError, match="invariant 1"):
        FragmentFigures(state_rows=-1).check()


@given(st.lists(st.integers(-(10**6), 10**6), max_size=3 * KEPT))
def test_quantiles_are_those_of_the_sorted_last_latencies(given_ms: list[int]) -> None:
    seen = Latencies()
    for ms in given_ms:
        seen.add(ms)
    kept = sorted(given_ms[-KEPT:])
    assert len(seen) == len(kept)
    for share in (0.5, 0.99, 1.0):
        expected = kept[math.ceil(share * len(kept)) - 1] if kept else None
        assert seen.share(share) == expected


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2 * PARTITIONS_MS), st.dictionaries(st.sampled_from("abc"), st.integers(-5, 9))
        ),
        max_size=20,
    )
)
def test_partitions_keep_one_to_two_spans(batches: list[tuple[int, dict[str, int]]]) -> None:
    recent, now_ms, given_rows = RecentPartitions(), 0, []
    for later_ms, rows in batches:
        now_ms += later_ms
        recent.record_rows(rows, now_ms)
        recent.check()
        given_rows.append((now_ms, rows))
    for name, count in recent.rows().items():
        of_all = sum(max(0, rows.get(name, 0)) for _, rows in given_rows)
        of_last = max(0, given_rows[-1][1].get(name, 0))
        assert of_last <= count <= of_all


def test_more_partitions_than_can_be_named_are_left_out() -> None:
    recent = RecentPartitions()
    recent.record_rows({f"read/{n}": 1 for n in range(MOST_NAMED + 7)}, 0)
    recent.check()
    assert len(recent.rows()) == MOST_NAMED


def moment(at_ms: int, fragments: int = 1) -> Moment:
    return Moment(at_ms, fragments={f"f{n}": FragmentMoment(rows_total=at_ms) for n in range(fragments)})


@given(
    st.lists(st.integers(-20 * STEP_MS, 20 * STEP_MS), max_size=60),
    st.sampled_from([0, 1, 50, 400, MOST_FIGURES + 1]),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_history_is_bounded_and_its_times_grow_also_when_the_clock_is_set_back(
    steps_ms: list[int], fragments: int
) -> None:
    keeper, now_ms = HistoryKeeper(), 10**12
    for step_ms in steps_ms:
        now_ms += step_ms
        keeper.note(moment(now_ms, fragments))
        keeper.check()
    if steps_ms:
        newest = keeper.history().moments[-1].at_ms
        assert abs(now_ms - newest) < max(STEP_MS, SPAN_MS * max(1, fragments) // MOST_FIGURES)


def test_a_quarter_of_an_hour_is_kept_and_found_by_fragment() -> None:
    keeper = HistoryKeeper()
    for second in range(3_600):
        keeper.note(moment(1_000 * second, 2))
    history = keeper.history()
    assert len(history.moments) == SPAN_MS // STEP_MS + 1
    assert [at_ms for at_ms, _ in history.of("f1")][-1] == 3_590_000
    assert history.of("other") == []
    assert not keeper.is_due(3_599_000)
    assert keeper.is_due(3_600_000)


def test_very_many_fragments_are_noted_less_often() -> None:
    keeper = HistoryKeeper()
    for second in range(0, 3_600, 5):
        keeper.note(moment(1_000 * second, 1_000))
        keeper.check()
    assert len(keeper.history().moments) == MOST_FIGURES // 1_000
