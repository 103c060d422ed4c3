"""Accumulators against a plain dictionary of last words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.job.accumulators import Accumulators

reports = st.lists(
    st.tuples(
        st.sampled_from(["f", "g"]),
        st.integers(1, 3),
        st.integers(0, 6),
        st.dictionaries(st.sampled_from(["lines", "words"]), st.integers(0, 9)),
        st.booleans(),
    ),
    max_size=40,
)


@given(reports)
def test_totals_are_the_sum_of_the_last_words_of_all_attempts(script: list[tuple]) -> None:
    accumulators = Accumulators()
    newest: dict[tuple[str, int], int] = {}
    values: dict[tuple[str, int, str], int] = {}
    closed: set[tuple[str, int]] = set()
    for owner, attempt, order, counted, closes in script:
        is_late = (owner, attempt) in closed or order <= newest.get((owner, attempt), -1)
        assert accumulators.report(owner, attempt, order, counted) is not is_late
        if not is_late:
            newest[owner, attempt] = order
            values |= {(owner, attempt, name): value for name, value in counted.items()}
        if closes:
            accumulators.close(owner, attempt)
            closed.add((owner, attempt))
        accumulators.check()
    names = {name for _, _, name in values}
    assert accumulators.totals() == {n: sum(v for (*_, m), v in values.items() if m == n) for n in names}
    for who in ("f", "g"):
        own = {n: sum(v for (o, _, m), v in values.items() if (o, m) == (who, n)) for n in names}
        assert {n: v for n, v in accumulators.of(who).items() if v} == {n: v for n, v in own.items() if v}


def test_of_many_attempts_few_are_kept_and_nothing_is_lost() -> None:
    accumulators = Accumulators()
    for attempt in range(1, 1_001):
        accumulators.report("f", attempt, 1, {"lines": attempt})
        accumulators.close("f", attempt)
        accumulators.check()
    assert len(accumulators._attempts) <= 8
    assert accumulators.totals() == accumulators.of("f") == {"lines": 500_500}
    assert not accumulators.report("f", 3, 2, {"lines": 9}), "it ended long ago"
    accumulators.close("f", 3)
    assert accumulators.totals() == {"lines": 500_500}


def test_a_late_report_does_not_overwrite_final_values() -> None:
    accumulators = Accumulators()
    accumulators.report("f", 1, 1, {"lines": 5})
    accumulators.close("f", 1)
    assert not accumulators.report("f", 1, 2, {"lines": 3})
    accumulators.report("f", 2, 3, {"lines": 4})
    assert accumulators.totals() == {"lines": 9}
