"""The purgatory on one thread: each of its rules, and agreement with a naive model."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drivetrain.core.waiting.waiting_operations import DelayedOperation, Purgatory
from drivetrain.errors import ConfigError, InternalError
from nightly_run import examples


class Waiting(DelayedOperation):
    """Completes when `ready`; writes down what happens to it."""

    def __init__(self, delay_ms: int = 100, *, ready: bool = False) -> None:
        super().__init__(delay_ms)
        self.ready = ready
        self.story: list[str] = []
        self.on_try: Callable[[], object] = lambda: None

    def try_complete(self) -> bool:
        self.story.append("tried")
        self.on_try()
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.story.append("completed")

    def on_expiration(self) -> None:
        self.story.append("expired")

    @property
    def end(self) -> list[str]:
        return [event for event in self.story if event != "tried"]


@pytest.fixture
def purgatory() -> Purgatory[Waiting]:
    return Purgatory(purge_limit=3)


# ---- the operation ----------------------------------------------------------------------------------


def test_only_the_first_forced_completion_wins() -> None:
    operation = Waiting()
    assert operation.force_complete()
    assert not operation.force_complete()
    assert operation.completed
    assert operation.story == ["completed"]


def test_a_forced_completion_takes_the_operation_off_the_timer_before_it_completes(
    purgatory: Purgatory[Waiting],
) -> None:
    class Asking(Waiting):
        def on_complete(self) -> None:
            self.story.append(f"completed with {purgatory.delayed} on the timer")

    operation = Asking()
    purgatory.try_complete_else_watch(operation, ["k"], 0)
    assert purgatory.delayed == 1
    operation.force_complete()
    assert operation.end == ["completed with 0 on the timer"]


def test_an_expiry_completes_first_and_then_expires(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(100)
    purgatory.try_complete_else_watch(operation, ["k"], 0)
    assert purgatory.advance(99) == 0
    assert purgatory.advance(100) == 1
    assert operation.end == ["completed", "expired"]


def test_a_forced_completion_never_expires(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(100)
    purgatory.try_complete_else_watch(operation, ["k"], 0)
    operation.force_complete()
    assert purgatory.advance(1_000) == 0
    assert not operation.expire()
    assert operation.end == ["completed"]


def test_trying_safely_does_not_try_what_is_completed() -> None:
    operation = Waiting(ready=True)
    operation.force_complete()
    assert not operation.safe_try_complete()
    assert operation.story == ["completed"]


def test_trying_or_else_tries_again_after_the_alternative() -> None:
    operation = Waiting()
    assert not operation.safe_try_complete_or_else(lambda: operation.story.append("else"))
    assert operation.story == ["tried", "else", "tried"]

    operation = Waiting()
    assert operation.safe_try_complete_or_else(lambda: setattr(operation, "ready", True))
    assert operation.story == ["tried", "tried", "completed"]

    operation = Waiting(ready=True)
    assert operation.safe_try_complete_or_else(lambda: operation.story.append("else"))
    assert operation.story == ["tried", "completed"]


def test_claiming_to_be_complete_without_completing_is_an_error() -> None:
    class Lying(Waiting):
        def try_complete(self) -> bool:
            return True

    with pytest.raises(InternalError, match="without calling force_complete"):
        Lying().safe_try_complete()


def test_an_operation_is_tried_under_its_lock() -> None:
    class Lock:
        held = 0

        def __enter__(self) -> None:
            self.held += 1

        def __exit__(self, *_: object) -> None:
            self.held -= 1

    lock = Lock()
    held: list[int] = []
    operation = Waiting()
    operation._lock = lock
    operation.on_try = lambda: held.append(lock.held)
    operation.safe_try_complete()
    operation.safe_try_complete_or_else(lambda: held.append(lock.held))
    assert held == [1, 1, 1, 1]
    assert lock.held == 0


# ---- watching ---------------------------------------------------------------------------------------


def test_watching_without_keys_is_an_error(purgatory: Purgatory[Waiting]) -> None:
    with pytest.raises(InternalError, match="at least one key"):
        purgatory.try_complete_else_watch(Waiting(ready=True), [], 0)


def test_an_operation_that_is_ready_completes_at_once_and_is_not_watched(
    purgatory: Purgatory[Waiting],
) -> None:
    operation = Waiting(ready=True)
    assert purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
    assert (purgatory.watched, purgatory.delayed) == (0, 0)
    assert operation.story == ["tried", "completed"]


def test_an_incomplete_operation_is_watched_per_key_and_delayed_once(purgatory: Purgatory[Waiting]) -> None:
    assert not purgatory.try_complete_else_watch(Waiting(), ["a", "b"], 0)
    assert (purgatory.watched, purgatory.delayed) == (2, 1)


def test_a_condition_that_comes_true_while_watching_is_not_missed(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting()
    operation.on_try = lambda: setattr(operation, "ready", len(operation.story) > 1)
    assert purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert purgatory.delayed == 0
    assert purgatory.watched == 1, "the entry is stale now"
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.watched == 0


def test_watching_stops_at_the_key_where_the_operation_was_completed(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting()

    class CompletingKey:
        hashed = 0

        def __hash__(self) -> int:
            self.hashed += 1
            if self.hashed == 2:  # first it is told from the other keys, then watched
                operation.force_complete()
            return 7

    assert not purgatory.try_complete_else_watch(operation, ["a", CompletingKey(), "c"], 0)
    assert purgatory.watched == 2
    assert purgatory.delayed == 0


def test_an_operation_completed_by_others_meanwhile_is_not_put_on_the_timer(
    purgatory: Purgatory[Waiting],
) -> None:
    class LostRace(Waiting):
        def try_complete(self) -> bool:
            self.story.append("tried")
            if len(self.story) == 2:
                self.force_complete()
            return False

    operation = LostRace()
    assert not purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert operation.completed
    assert purgatory.delayed == 0
    purgatory.check()


def test_an_operation_completed_before_it_enters_is_neither_watched_nor_delayed(
    purgatory: Purgatory[Waiting],
) -> None:
    operation = Waiting()
    operation.force_complete()
    assert not purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_an_operation_cancelled_before_it_enters_expires_all_the_same(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(10)
    operation.cancel()
    purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert purgatory.advance(10) == 1


@pytest.mark.parametrize("ready", [True, False])
def test_nothing_is_kept_of_an_operation_that_is_over(purgatory: Purgatory[Waiting], ready: bool) -> None:
    operation = Waiting(10, ready=ready)
    purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
    purgatory.advance(10)
    purgatory.check_and_complete("a")
    if not ready:
        purgatory.purge()
    over = weakref.ref(operation)
    del operation
    assert over() is None


def test_an_operation_without_delay_expires_at_once(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(0)
    assert not purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert operation.end == ["completed", "expired"]
    assert purgatory.delayed == 0


def test_an_operation_enters_a_purgatory_only_once(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting()
    purgatory.try_complete_else_watch(operation, ["a"], 0)
    with pytest.raises(InternalError, match="only once"):
        purgatory.try_complete_else_watch(operation, ["b"], 0)
    assert (purgatory.watched, purgatory.delayed) == (1, 1)


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_operation_whose_attempt_raises_is_not_left_waiting(
    purgatory: Purgatory[Waiting], attempt: int
) -> None:
    operation = Waiting()

    def fail() -> None:
        if len(operation.story) == attempt:
            raise OSError("no disk")

    operation.on_try = fail
    with pytest.raises(OSError, match="no disk"):
        purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
    assert (purgatory.watched, purgatory.delayed) == (0, 0)
    purgatory.check()


# ---- completing by key ------------------------------------------------------------------------------


def test_checking_a_key_completes_the_ready_ones_and_keeps_the_others(purgatory: Purgatory[Waiting]) -> None:
    ready, unready, elsewhere = Waiting(), Waiting(), Waiting()
    purgatory.try_complete_else_watch(ready, ["a"], 0)
    purgatory.try_complete_else_watch(unready, ["a"], 0)
    purgatory.try_complete_else_watch(elsewhere, ["b"], 0)
    ready.ready = elsewhere.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert ready.completed
    assert not unready.completed
    assert not elsewhere.completed
    assert (purgatory.watched, purgatory.delayed) == (2, 2)


def test_checking_counts_only_what_this_call_completed_and_drops_the_rest_uncounted(
    purgatory: Purgatory[Waiting],
) -> None:
    operation = Waiting()
    purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
    operation.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert (purgatory.watched, purgatory.delayed) == (1, 0), "stale under b"
    assert purgatory.check_and_complete("b") == 0
    assert purgatory.watched == 0
    assert operation.end == ["completed"]


def test_checking_a_key_that_nobody_watches_completes_nothing(purgatory: Purgatory[Waiting]) -> None:
    assert purgatory.check_and_complete("nobody") == 0


def test_a_completion_may_check_further_keys(purgatory: Purgatory[Waiting]) -> None:
    second = Waiting()

    class First(Waiting):
        def on_complete(self) -> None:
            super().on_complete()
            second.ready = True
            purgatory.check_and_complete("b")
            purgatory.check_and_complete("a")

    first = First()
    purgatory.try_complete_else_watch(first, ["a"], 0)
    purgatory.try_complete_else_watch(second, ["b"], 0)
    first.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert first.end == second.end == ["completed"]
    assert purgatory.watched == 0


def test_an_operation_that_raises_keeps_no_other_from_completing(purgatory: Purgatory[Waiting]) -> None:
    class Failing(Waiting):
        def on_complete(self) -> None:
            raise OSError("no disk")

    for operation in (Failing(), Failing(), good := Waiting()):
        purgatory.try_complete_else_watch(operation, ["a"], 0)
        operation.ready = True
    with pytest.raises(ExceptionGroup, match="2 delayed operations failed while operations on 'a'") as caught:
        purgatory.check_and_complete("a")
    assert [str(error) for error in caught.value.exceptions] == ["no disk", "no disk"]
    assert good.completed
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_an_expiry_that_raises_keeps_no_other_from_expiring(purgatory: Purgatory[Waiting]) -> None:
    class Failing(Waiting):
        def on_expiration(self) -> None:
            raise OSError("no disk")

    operations = [Failing(10), Waiting(10), Waiting(11)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"], 0)
    with pytest.raises(ExceptionGroup, match="while operations expired"):
        purgatory.advance(11)
    assert all(operation.completed for operation in operations)
    assert operations[2].end == ["completed", "expired"]


def test_an_interrupt_during_an_expiry_forgets_no_other(purgatory: Purgatory[Waiting]) -> None:
    class Interrupted(Waiting):
        def on_expiration(self) -> None:
            raise KeyboardInterrupt

    operations = [Interrupted(10), Waiting(10), Waiting(10)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"], 0)
    operations[2].force_complete()
    with pytest.raises(KeyboardInterrupt):
        purgatory.advance(50)
    assert purgatory.delayed == 1
    assert purgatory.advance(51) == 1
    assert operations[1].end == ["completed", "expired"]
    assert operations[2].end == ["completed"]


# ---- cancelling and purging -------------------------------------------------------------------------


def test_cancelling_a_key_returns_incomplete_operations_that_stay_on_their_other_keys(
    purgatory: Purgatory[Waiting],
) -> None:
    operation, done = Waiting(100), Waiting(100)
    purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
    purgatory.try_complete_else_watch(done, ["a"], 0)
    done.force_complete()
    assert purgatory.cancel_for_key("a") == [operation]
    assert operation.end == []
    assert (purgatory.watched, purgatory.delayed) == (1, 0)
    assert purgatory.advance(10_000) == 0, "it expires no more"
    operation.ready = True
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.check_and_complete("b") == 1


def test_an_operation_that_is_cancelled_while_others_expire_does_not_expire(
    purgatory: Purgatory[Waiting],
) -> None:
    class Cancelling(Waiting):
        def on_expiration(self) -> None:
            assert purgatory.cancel_for_key("b") == [other]

    other = Waiting(10)
    purgatory.try_complete_else_watch(Cancelling(10), ["a"], 0)
    purgatory.try_complete_else_watch(other, ["b"], 0)
    assert purgatory.advance(10) == 1
    assert not other.completed


def test_cancelling_a_key_that_nobody_watches_returns_nothing(purgatory: Purgatory[Waiting]) -> None:
    assert purgatory.cancel_for_key("nobody") == []


def test_cancelling_all_returns_each_operation_once(purgatory: Purgatory[Waiting]) -> None:
    operations = [Waiting(), Waiting()]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
    assert purgatory.cancel_all() == operations
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_an_operation_cancelled_while_it_enters_is_not_put_on_the_timer(
    purgatory: Purgatory[Waiting],
) -> None:
    operation = Waiting()
    operation.on_try = lambda: len(operation.story) == 2 and purgatory.cancel_for_key("a")
    assert not purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert not operation.completed
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_stale_entries_are_purged_when_more_than_the_limit_have_completed(
    purgatory: Purgatory[Waiting],
) -> None:
    def complete_elsewhere(count: int) -> None:
        for _ in range(count):
            operation = Waiting(1_000)
            purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
            operation.force_complete()

    living = Waiting(1_000)
    purgatory.try_complete_else_watch(living, ["a"], 0)
    complete_elsewhere(3)
    purgatory.advance(1)
    assert purgatory.watched == 7, "three are not more than three"
    complete_elsewhere(1)
    purgatory.advance(2)
    assert purgatory.watched == 1
    complete_elsewhere(3)
    purgatory.advance(3)
    assert purgatory.watched == 7, "the estimate was set back to what is delayed"
    purgatory.check()


def test_what_expires_now_is_purged_now(purgatory: Purgatory[Waiting]) -> None:
    for _ in range(4):
        purgatory.try_complete_else_watch(Waiting(10), ["a", "b"], 0)
    assert purgatory.advance(10) == 4
    assert purgatory.watched == 0


@pytest.mark.parametrize("delay_ms", [500.0, float("nan"), "500", None])
def test_a_delay_that_is_no_whole_number_is_refused_before_anything_is_watched(delay_ms: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(delay_ms))) as raised:
        Waiting(delay_ms)
    assert "whole number" in str(raised.value)


def test_an_operation_that_cannot_be_timed_is_not_left_watched(purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting()
    with pytest.raises(TypeError):
        purgatory.try_complete_else_watch(operation, ["k"], 0.5)  # type: ignore[arg-type] # on purpose
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_a_negative_purge_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="purge_limit"):
        Purgatory[Waiting](purge_limit=-1)


# ---- the model --------------------------------------------------------------------------------------


class Modelled:
    """What the naive model knows of one operation: everything, by searching lists."""

    def __init__(self, operation: Waiting, keys: list[str], expires_at_ms: int) -> None:
        self.operation = operation
        self.keys = keys
        self.expires_at_ms: int | None = expires_at_ms
        self.ends: list[str] = []


class PurgatoryAgainstModel(RuleBasedStateMachine):
    """The model walks over all operations for every question."""

    def __init__(self) -> None:
        super().__init__()
        self.purgatory: Purgatory[Waiting] = Purgatory(purge_limit=4)
        self.now_ms = 0
        self.all: list[Modelled] = []
        self.estimated = 0

    def complete(self, modelled: Modelled, *ends: str) -> None:
        modelled.ends += ends
        modelled.expires_at_ms = None

    def delayed(self) -> int:
        return sum(modelled.expires_at_ms is not None for modelled in self.all)

    @rule(
        keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
        delay_ms=st.integers(0, 30) | st.integers(0, 2_000),
        ready=st.booleans(),
    )
    def enter(self, keys: list[str], delay_ms: int, ready: bool) -> None:
        operation = Waiting(delay_ms, ready=ready)
        modelled = Modelled(operation, sorted(set(keys)), self.now_ms + delay_ms)
        self.all.append(modelled)
        assert self.purgatory.try_complete_else_watch(operation, keys, self.now_ms) is ready
        if ready:
            modelled.keys = []
            self.complete(modelled, "completed")
            return
        self.estimated += 1
        if delay_ms == 0:
            # Expired at once or left to the next advance, as the wheel's time lags behind or not.
            assert operation.completed is not operation.pending
            if operation.completed:
                self.complete(modelled, "completed", "expired")

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def make_ready(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.all)).operation.ready = True

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def force(self, data: st.DataObject) -> None:
        modelled = data.draw(st.sampled_from(self.all))
        assert modelled.operation.force_complete() is (not modelled.ends)
        if not modelled.ends:
            self.complete(modelled, "completed")

    @rule(key=st.sampled_from("abcd"))
    def check_key(self, key: str) -> None:
        expected = 0
        for modelled in self.all:
            if key in modelled.keys and not modelled.ends and modelled.operation.ready:
                self.complete(modelled, "completed")
                expected += 1
            if modelled.ends:
                modelled.keys = [other for other in modelled.keys if other != key]
        assert self.purgatory.check_and_complete(key) == expected

    @rule(key=st.sampled_from("abcd"))
    def cancel_key(self, key: str) -> None:
        expected = []
        for modelled in self.all:
            if key in modelled.keys:
                if not modelled.ends:
                    expected.append(modelled.operation)
                modelled.expires_at_ms = None
                modelled.keys = [other for other in modelled.keys if other != key]
        assert self.purgatory.cancel_for_key(key) == expected

    @rule(by_ms=st.integers(0, 10) | st.integers(0, 1_000))
    def go_on(self, by_ms: int) -> None:
        self.now_ms += by_ms
        expected = 0
        for modelled in self.all:
            if modelled.expires_at_ms is not None and modelled.expires_at_ms <= self.now_ms:
                self.complete(modelled, "completed", "expired")
                expected += 1
        assert self.purgatory.advance(self.now_ms) == expected
        if self.estimated - self.delayed() > 4:
            self.estimated = self.delayed()
            for modelled in self.all:
                if modelled.ends:
                    modelled.keys = []

    @invariant()
    def figures_and_ends_agree(self) -> None:
        self.purgatory.check()
        assert self.purgatory.watched == sum(len(modelled.keys) for modelled in self.all)
        assert self.purgatory.delayed == self.delayed()
        for modelled in self.all:
            assert modelled.operation.end == modelled.ends


TestPurgatoryAgainstModel = PurgatoryAgainstModel.TestCase
TestPurgatoryAgainstModel.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
