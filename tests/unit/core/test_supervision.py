"""Supervision: every row of its table, the restart window and the backoff."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.liveness.supervision import (
    ACTIONS,
    Backoff,
    ChildName,
    Directive,
    EscalateFailure,
    RestartChild,
    ResumeChild,
    Scope,
    StopChild,
    SupervisionPolicy,
    Supervisor,
)
from drivetrain.errors import ConfigError, InternalError

A, B, C = ChildName("a"), ChildName("b"), ChildName("c")


class BrokenError(ValueError):
    """A failure more specific than the rules in these tests."""


def supervisor(seed: int = 0, **settings: object) -> Supervisor:
    return Supervisor(SupervisionPolicy(**settings), random.Random(seed))  # type: ignore[arg-type]


def test_the_table_has_a_row_for_every_scope_and_directive() -> None:
    assert set(ACTIONS) == set(product(Scope, Directive))


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("directive", Directive)
def test_each_row_of_the_table_gives_its_effects(scope: Scope, directive: Directive) -> None:
    failure = BrokenError("x")
    effects = supervisor(directives={ValueError: directive}, scope=scope).decide(failure, B, 0, [A, B, C])
    expected = {
        Directive.RESUME: [ResumeChild(B)],
        Directive.RESTART: [RestartChild(B, 0, 1)],
        Directive.STOP: [StopChild(B, False)],
        Directive.ESCALATE: [EscalateFailure(B, failure, False)],
    }[directive]
    if scope is Scope.ALL_FOR_ONE and directive is Directive.RESTART:
        expected = [RestartChild(B, 0, 1), RestartChild(A, 0, 1), RestartChild(C, 0, 1)]
    if scope is Scope.ALL_FOR_ONE and directive is Directive.STOP:
        expected = [StopChild(B, False), StopChild(A, False), StopChild(C, False)]
    assert effects == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_the_most_specific_class_wins_whatever_the_order_of_the_rules(reverse: bool) -> None:
    rules = [(Exception, Directive.STOP), (ValueError, Directive.RESUME), (LookupError, Directive.RESTART)]
    subject = supervisor(directives=dict(reversed(rules) if reverse else rules))
    assert subject.decide(BrokenError(), A, 0) == [ResumeChild(A)]
    assert subject.decide(KeyError(), A, 0) == [RestartChild(A, 0, 1)]
    assert subject.decide(OSError(), A, 0) == [StopChild(A, False)]


def test_by_default_exceptions_restart_and_interrupts_escalate() -> None:
    interrupt = KeyboardInterrupt()
    assert supervisor().decide(OSError(), A, 0) == [RestartChild(A, 0, 1)]
    assert supervisor().decide(interrupt, A, 0) == [EscalateFailure(A, interrupt, False)]


def test_a_restart_beyond_the_limit_stops_the_child() -> None:
    subject = supervisor(max_restarts=2, window_ms=100)
    assert subject.decide(OSError(), A, 0) == [RestartChild(A, 0, 1)]
    assert subject.decide(OSError(), A, 50) == [RestartChild(A, 0, 2)]
    assert subject.decide(OSError(), A, 100) == [StopChild(A, exhausted=True)], "100 ms old is within 100 ms"


def test_a_restart_that_left_the_window_frees_its_permit() -> None:
    subject = supervisor(max_restarts=2, window_ms=100)
    subject.decide(OSError(), A, 0)
    subject.decide(OSError(), A, 50)
    assert subject.decide(OSError(), A, 101) == [RestartChild(A, 0, 3)]
    assert subject.decide(OSError(), A, 102) == [StopChild(A, exhausted=True)], "the window slides"


def test_an_exhausted_child_escalates_if_asked() -> None:
    failure = OSError()
    subject = supervisor(max_restarts=0, exhausted=Directive.ESCALATE)
    assert subject.decide(failure, A, 0) == [EscalateFailure(A, failure, exhausted=True)]


def test_without_a_window_restarts_are_counted_for_life() -> None:
    subject = supervisor(max_restarts=1, window_ms=None)
    subject.decide(OSError(), A, 0)
    assert subject.decide(OSError(), A, 10**12) == [StopChild(A, exhausted=True)]


def test_without_a_limit_restarts_go_on() -> None:
    subject = supervisor(max_restarts=None)
    assert all(isinstance(subject.decide(OSError(), A, 0)[0], RestartChild) for _ in range(1000))


def test_one_for_one_counts_each_child_alone() -> None:
    subject = supervisor(max_restarts=1)
    subject.decide(OSError(), A, 0)
    assert subject.decide(OSError(), B, 0) == [RestartChild(B, 0, 1)]


def test_all_for_one_counts_the_group_and_stops_it_when_exhausted() -> None:
    subject = supervisor(scope=Scope.ALL_FOR_ONE, max_restarts=1)
    subject.decide(OSError(), A, 0, [A, B])
    assert subject.decide(OSError(), B, 0, [A, B]) == [StopChild(B, True), StopChild(A, True)]


def test_all_for_one_gives_every_member_the_same_delay() -> None:
    subject = supervisor(scope=Scope.ALL_FOR_ONE, backoff=Backoff(1000, 1000, jitter=0.5))
    effects = subject.decide(OSError(), A, 0, [A, B, C])
    assert len({effect.delay_ms for effect in effects if isinstance(effect, RestartChild)}) == 1
    assert len(effects) == 3


def test_resuming_and_escalating_use_up_no_permit() -> None:
    subject = supervisor(
        directives={ValueError: Directive.RESUME, OSError: Directive.RESTART}, max_restarts=1
    )
    for _ in range(5):
        subject.decide(ValueError(), A, 0)
        subject.decide(KeyboardInterrupt(), A, 0)
    assert subject.decide(OSError(), A, 0) == [RestartChild(A, 0, 1)]


def test_a_forgotten_child_starts_with_a_clean_record() -> None:
    subject = supervisor(max_restarts=1)
    subject.decide(OSError(), A, 0)
    subject.forget(A)
    assert subject.decide(OSError(), A, 0) == [RestartChild(A, 0, 1)]


def test_the_backoff_doubles_up_to_its_maximum_and_starts_over_after_a_quiet_time() -> None:
    backoff = Backoff(100, 350, multiplier=2.0, jitter=0.0, reset_after_ms=1000)
    subject = supervisor(max_restarts=None, backoff=backoff)

    def delay_ms(now_ms: int) -> int:
        (effect,) = subject.decide(OSError(), A, now_ms)
        assert isinstance(effect, RestartChild)
        return effect.delay_ms

    assert [delay_ms(0), delay_ms(100), delay_ms(300), delay_ms(650)] == [100, 200, 350, 350]
    assert delay_ms(650 + 350 + 999) == 350, "quiet time counts from when the restart was due"
    assert delay_ms(1999 + 350 + 1000) == 100


def test_a_backoff_survives_a_very_long_row_of_failures() -> None:
    subject = supervisor(max_restarts=None, backoff=Backoff(1, 60_000, multiplier=10.0, jitter=0.0))
    delays = [subject.decide(OSError(), A, 0)[0].delay_ms for _ in range(2000)]  # type: ignore[union-attr]
    assert delays[:6] == [1, 10, 100, 1000, 10_000, 60_000]
    assert set(delays[5:]) == {60_000}


def test_time_that_goes_back_raises_and_changes_nothing() -> None:
    subject = supervisor(max_restarts=1)
    subject.decide(ValueError(), A, 100)
    with pytest.raises(InternalError, match="went back from 100 to 99"):
        subject.decide(ValueError(), B, 99)
    assert subject.decide(ValueError(), B, 100) == [RestartChild(B, 0, 1)]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Backoff(-1), "initial_ms"),
        (lambda: Backoff(10, 5), "maximum_ms"),
        (lambda: Backoff(1, 1, multiplier=0.5), "multiplier"),
        (lambda: Backoff(1, 1, jitter=1.5), "jitter"),
        (lambda: Backoff(0, 1, multiplier=float("inf")), "multiplier"),
        (lambda: Backoff(reset_after_ms=-1), "reset_after_ms"),
        (lambda: SupervisionPolicy(max_restarts=-1), "max_restarts"),
        (lambda: SupervisionPolicy(window_ms=0), "window_ms"),
        (lambda: SupervisionPolicy(exhausted=Directive.RESTART), "exhausted"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(make: object, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        make()  # type: ignore[operator]


@given(
    limit=st.integers(0, 4),
    window_ms=st.none() | st.integers(1, 30),
    scope=st.sampled_from(Scope),
    failures=st.lists(
        st.tuples(
            st.integers(0, 12),
            st.sampled_from([A, B, C]),
            st.sampled_from([OSError(), ValueError(), KeyError(), SystemExit()]),
        ),
        max_size=40,
    ),
    seed=st.integers(0, 99),
)
def test_decisions_agree_with_a_naive_recount_of_the_whole_history(
    limit: int,
    window_ms: int | None,
    scope: Scope,
    failures: list[tuple[int, ChildName, BaseException]],
    seed: int,
) -> None:
    rules = {OSError: Directive.RESTART, ValueError: Directive.RESUME, LookupError: Directive.STOP}
    backoff = Backoff(10, 100, jitter=0.3, reset_after_ms=20)
    subject = supervisor(
        seed, directives=rules, scope=scope, max_restarts=limit, window_ms=window_ms, backoff=backoff
    )
    group = [A, B, C]
    now_ms = 0
    permits: list[tuple[int, ChildName]] = []
    for step_ms, child, failure in failures:
        now_ms += step_ms
        effects = subject.decide(failure, child, now_ms, group)
        subject.check()
        everyone = [child, *(other for other in group if other != child)]
        concerned = everyone if scope is Scope.ALL_FOR_ONE else [child]
        if isinstance(failure, OSError):
            mine = [at for at, who in permits if scope is Scope.ALL_FOR_ONE or who == child]
            if sum(window_ms is None or now_ms - at <= window_ms for at in mine) < limit:
                assert [effect.child for effect in effects] == concerned
                assert all(isinstance(e, RestartChild) and 0 <= e.delay_ms <= 100 for e in effects)
                permits.append((now_ms, child))
            else:
                assert effects == [StopChild(who, exhausted=True) for who in concerned]
        elif isinstance(failure, KeyError):
            assert effects == [StopChild(who, exhausted=False) for who in concerned]
        elif isinstance(failure, ValueError):
            assert effects == [ResumeChild(child)]
        else:
            assert effects == [EscalateFailure(child, failure, exhausted=False)]


@given(seed=st.integers(0, 10_000), base_ms=st.integers(0, 1000), jitter=st.floats(0, 1))
def test_jitter_stays_within_its_fraction_and_repeats_with_its_seed(
    seed: int, base_ms: int, jitter: float
) -> None:
    backoff = Backoff(0, 1000, jitter=jitter)
    delay_ms = backoff.jittered_ms(base_ms, random.Random(seed))
    assert delay_ms == backoff.jittered_ms(base_ms, random.Random(seed))
    assert max(0.0, base_ms * (1 - jitter) - 0.5) <= delay_ms <= min(1000.0, base_ms * (1 + jitter) + 0.5)
