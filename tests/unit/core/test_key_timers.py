"""The timers of a bucket of keys, beside a sorted list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.state.key_timers import KeyTimers

KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("cancel"), KEYS, st.one_of(st.none(), st.integers(0, 20))),
        st.tuples(st.just("take"), st.just(b""), st.integers(0, 20)),
        st.tuples(st.just("save"), st.just(b""), st.none()),
    )
)


@given(STEPS)
@settings(max_examples=100)
def test_timers_are_taken_once_in_order_unless_they_are_cancelled(
    steps: list[tuple[str, bytes, int | None]],
) -> None:
    timers, wanted = KeyTimers(), list[tuple[int, bytes]]()
    for what, key, at_ms in steps:
        if what == "set":
            assert at_ms is not None
            timers.set(key, at_ms)
            wanted = sorted({*wanted, (at_ms, key)})
        elif what == "cancel":
            timers.cancel(key, at_ms)
            wanted = [t for t in wanted if t[1] != key or (at_ms is not None and t[0] != at_ms)]
        elif what == "take":
            assert at_ms is not None
            due = [t for t in wanted if t[0] <= at_ms]
            assert [timers.take(at_ms) for _ in due] == due
            assert timers.take(at_ms) is None
            wanted = wanted[len(due) :]
        else:
            timers = KeyTimers(timers.kept())
        assert timers.kept() == wanted
        assert len(timers) == len(wanted)
        assert timers.next_ms() == (wanted[0][0] if wanted else None)
