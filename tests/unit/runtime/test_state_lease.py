"""The lease on a state in a store: who renews it is left alone, who does not can be replaced."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from drivetrain.errors import UnavailableError
from drivetrain.runtime.checkpoints.state_lease import LEASE_S, RENEW_S, StateLease
from model_store import ModelStore


class Time:
    """Time that passes while somebody sleeps; then `meanwhile` is called."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def lease(store: ModelStore) -> StateLease:
    return StateLease(store, "shop-1", "s3://states/shop-1")


def test_a_process_that_renews_its_lease_is_left_alone(clock: Time) -> None:
    store = ModelStore()
    holder, renewed_s = lease(store), clock.now_s
    holder.begin("one")

    def renew() -> None:
        nonlocal renewed_s
        if clock.now_s - renewed_s >= RENEW_S:
            holder.renew()
            renewed_s = clock.now_s

    clock.meanwhile = renew
    with pytest.raises(UnavailableError, match="already running"):
        lease(store).wait_until_over("one")
    assert clock.now_s - 100 <= RENEW_S + 1


def test_a_process_that_is_gone_is_replaced_when_its_lease_is_over(clock: Time) -> None:
    store = ModelStore()
    lease(store).begin("one")
    assert not lease(store).wait_until_over("one")
    assert LEASE_S <= clock.now_s - 100 < LEASE_S + 2


def test_a_process_that_has_ended_is_replaced_at_once(clock: Time) -> None:
    store = ModelStore()
    holder = lease(store)
    holder.begin("one")
    holder.end()
    assert lease(store).wait_until_over("one")
    assert clock.now_s == 100


def test_a_process_that_writes_its_first_note_while_it_is_watched_is_left_alone(clock: Time) -> None:
    store = ModelStore()
    clock.meanwhile = lambda: lease(store).begin("one")
    with pytest.raises(UnavailableError, match="already running"):
        lease(store).wait_until_over("one")


def test_who_is_suspended_while_it_watches_looks_once_more(clock: Time) -> None:
    store = ModelStore()
    holder = lease(store)
    holder.begin("one")

    def suspend() -> None:
        clock.now_s += 10 * LEASE_S
        holder.renew()

    clock.meanwhile = suspend
    with pytest.raises(UnavailableError, match="already running"):
        lease(store).wait_until_over("one")


def test_leases_of_former_processes_are_deleted_and_a_late_renewal_replaces_nobodys(clock: Time) -> None:
    store = ModelStore()
    former, successor = lease(store), lease(store)
    former.begin("one")
    successor.begin("two")
    assert list(store.objects) == ["shop-1/leases/two.json"]
    former.renew()
    assert store.objects.keys() == {"shop-1/leases/one.json", "shop-1/leases/two.json"}
    clock.meanwhile = successor.renew
    with pytest.raises(UnavailableError, match="already running"):
        lease(store).wait_until_over("two")


def test_a_process_whose_store_does_not_answer_ends_without_waiting_for_it(clock: Time) -> None:
    store = ModelStore()
    holder = lease(store)
    holder.begin("one")

    def fail(what: str, _path: str) -> None:
        asked.append(what)
        raise UnavailableError("the store does not answer", remedy="wait")

    asked: list[str] = []
    store.before = fail
    with pytest.raises(UnavailableError):
        holder.renew()
    holder.end()
    assert asked == ["put"]
