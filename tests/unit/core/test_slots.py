"""Slots: priority, then first come; nobody starves; nothing is given twice."""

from __future__ import annotations

from random import Random

import pytest

from drivetrain.core.cluster.slot_policies import POLICIES, Preference, WorkerLoad, register_policy
from drivetrain.core.cluster.slots import Allocate, Holding, Refuse, SlotRequest, SlotScheduler, request_of
from drivetrain.errors import ConfigError


def scheduler(**workers: int) -> SlotScheduler:
    core = SlotScheduler("1", launch_within_ms=1_000)
    for name, slots in workers.items():
        core.worker_registered(name, name, f"host-{name}", slots, (), 0)
    return core


def request(name: str, slots: int = 1, **more: object) -> SlotRequest:
    return SlotRequest(name, "app", 1, slots, **more)  # type: ignore[arg-type]


def place(effects: list[object]) -> list[tuple[str, str]]:
    return [(e.request.request_id, e.worker_id) for e in effects if isinstance(e, Allocate)]


def test_spread_takes_the_least_loaded_and_pack_the_fullest() -> None:
    core = scheduler(a=4, b=4)
    assert place([*core.request(request("1"), 0)]) == [("1", "a")]
    assert place([*core.request(request("2"), 0)]) == [("2", "b")]
    core.request(request("3"), 0)
    assert place([*core.request(request("4", policy="pack"), 0)]) == [("4", "a")]


def test_locality_prefers_the_named_hosts_and_falls_back() -> None:
    core = scheduler(a=4, b=1)
    assert place([*core.request(request("1", policy="locality", hosts=("host-b",)), 0)]) == [("1", "b")]
    assert place([*core.request(request("2", policy="locality", hosts=("host-b",)), 0)]) == [("2", "a")]


def test_requests_without_slots_are_spread_too() -> None:
    core = scheduler(a=4, b=4)
    places = [place([*core.request(request(str(n), 0), 0)])[0][1] for n in range(6)]
    assert places.count("a") == places.count("b") == 3


def test_priority_comes_first_then_the_order_of_arrival() -> None:
    core = scheduler(a=1)
    core.request(request("first"), 0)
    for name, rank in (("low", 2), ("normal", 1), ("normal2", 1), ("high", 0)):
        assert core.request(request(name, rank=rank), 0) == []
    order = []
    current = "first"
    for _ in range(4):
        ((current, _),) = place([*core.cancel(current, 0)])
        order.append(current)
    assert order == ["high", "normal", "normal2", "low"]


def test_a_large_request_is_not_starved_by_small_ones_behind_it() -> None:
    core = scheduler(a=2)
    core.request(request("one"), 0)
    assert core.request(request("large", 2), 0) == []
    assert core.request(request("small", 1), 0) == []
    assert place([*core.cancel("one", 0)]) == [("large", "a")]


def test_a_request_for_another_worker_passes_one_that_waits() -> None:
    core = scheduler(a=1, b=1)
    core.request(request("x", worker="a"), 0)
    assert core.request(request("wants-a", worker="a"), 0) == []
    assert place([*core.request(request("wants-any"), 0)]) == [("wants-any", "b")]


def test_a_request_for_no_slots_passes_one_that_waits_for_its_worker() -> None:
    core = scheduler(a=4)
    core.request(request("application master", 4), 0)
    assert core.request(request("another", 4, rank=0), 0) == []
    assert place([*core.request(request("its executor", 0, worker="a"), 0)]) == [("its executor", "a")]
    core.worker_reported("a", (), 0, leaves=True)
    assert core.request(request("its next", 0, worker="a"), 0) == []


def test_what_can_never_be_met_is_refused_with_the_reason() -> None:
    core = scheduler(a=2, b=4)
    (refusal,) = core.request(request("1", 5), 0)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.why) == ("too-many-slots", "no worker has 5 slots; the most is 4")
    (refusal,) = core.request(request("2", policy="magic"), 0)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "no-policy"


def test_without_workers_a_request_waits_and_expires_with_the_reason() -> None:
    core = scheduler()
    assert core.request(request("1"), 0) == []
    (refusal,) = core.expire("1", 100)
    assert isinstance(refusal, Refuse)
    assert (refusal.code, refusal.why) == ("no-slots", "no worker is registered")
    assert core.expire("1", 200) == []


def test_the_same_request_gets_the_same_slots() -> None:
    core = scheduler(a=4)
    first, again = core.request(request("1"), 0), core.request(request("1"), 5)
    assert first == again
    assert core.free("a") == 3


def test_an_allocation_that_is_not_launched_in_time_is_free_again() -> None:
    core = scheduler(a=1)
    core.request(request("1"), 0)
    core.request(request("2"), 0)
    assert core.time_passed(999) == []
    assert place([*core.time_passed(1_000)]) == [("2", "a")]


def test_what_a_worker_holds_stays_taken_until_it_says_otherwise() -> None:
    core = scheduler(a=1)
    (allocated,) = core.request(request("1"), 0)
    assert isinstance(allocated, Allocate)
    core.worker_reported("a", [Holding(allocated.allocation_id, "app", 1)], 10)
    core.request(request("2"), 20)
    assert core.time_passed(5_000) == []
    assert place([*core.worker_reported("a", [], 6_000)]) == [("2", "a")]


def test_a_new_leader_recognises_a_request_whose_slots_a_worker_holds() -> None:
    old = scheduler(a=2)
    (allocated,) = old.request(request("r-1"), 0)
    assert isinstance(allocated, Allocate)
    held = [Holding(allocated.allocation_id, "app", 1)]
    assert request_of(allocated.allocation_id) == "r-1"
    new = SlotScheduler("2")
    assert new.request(request("r-1"), 0) == []
    (again,) = new.worker_registered("a", "a", "h", 2, held, 0)
    assert again == Allocate(request("r-1"), allocated.allocation_id, "a")
    new.check()


def test_a_lost_worker_takes_its_allocations_along() -> None:
    core = scheduler(a=1, b=1)
    core.request(request("1", worker="a"), 0)
    assert [holding.app_id for holding in core.worker_lost("a")] == ["app"]
    assert core.request(request("1"), 10) != []


def test_an_applications_older_epochs_are_forgotten() -> None:
    core = scheduler(a=1)
    core.request(SlotRequest("old", "x", 1, 1), 0)
    core.request(SlotRequest("new", "x", 2, 1), 0)
    assert place([*core.release_application("x", 0, below_epoch=2)]) == [("new", "a")]


def test_a_policy_can_be_added_once() -> None:
    def last(preference: Preference, worker: WorkerLoad) -> tuple[float, ...]:
        return (-ord(worker.name[0]),)

    register_policy("last-by-name", last)
    assert POLICIES["last-by-name"] is last
    with pytest.raises(ConfigError):
        register_policy("last-by-name", last)
    assert place([*scheduler(a=1, b=1).request(request("1", policy="last-by-name"), 0)]) == [("1", "b")]


@pytest.mark.parametrize("seed", range(60))
def test_invariants_hold_whatever_happens(seed: int) -> None:  # noqa: C901 - a table of events
    random = Random(seed)
    core = SlotScheduler("1", launch_within_ms=50)
    held: dict[str, dict[str, Holding]] = {}
    promised: dict[str, tuple[str, int]] = {}
    ids: set[str] = set()
    for now_ms in range(0, 3_000, 10):
        name = f"w{random.randrange(4)}"
        match random.randrange(7):
            case 0:
                held.setdefault(name, {})
                effects = core.worker_registered(name, name, name, 3, held[name].values(), now_ms)
            case 1:
                held.pop(name, None)
                core.worker_lost(name)
                effects = []
            case 2 if name in held:
                for allocation, (worker, slots) in list(promised.items()):
                    if worker == name:
                        held[name][allocation] = Holding(allocation, "app", slots)
                        del promised[allocation]
                for allocation in list(held[name])[:1]:
                    if random.random() < 0.5:
                        del held[name][allocation]
                used = sum(each.slots for each in held[name].values())
                while used > 3:  # a worker refuses what it has no room for
                    used -= held[name].popitem()[1].slots
                effects = core.worker_reported(name, held[name].values(), now_ms)
            case 3:
                effects = core.cancel(f"r{random.randrange(40)}", now_ms)
            case 4:
                effects = core.time_passed(now_ms)
            case _:
                number = random.randrange(40)
                wanted = SlotRequest(f"r{number}", "app", 1, number % 4, rank=number % 3)
                effects = core.request(wanted, now_ms)
        for effect in effects:
            if isinstance(effect, Allocate) and effect.allocation_id not in ids:
                ids.add(effect.allocation_id)
                promised[effect.allocation_id] = (effect.worker_id, effect.request.slots)
        core.check()


def test_a_worker_that_leaves_keeps_what_it_holds_and_gets_nothing_more() -> None:
    core = scheduler(a=4, b=1)
    core.worker_reported("a", [Holding("x-1-1", "app", 1)], 0, leaves=True)
    assert (core.free("a"), core.where("x-1-1")) == (0, "a")
    assert place([*core.request(request("1"), 0)]) == [("1", "b")]
    core.worker_reported("a", [], 1)  # a late report of before
    assert core.request(request("2", 4), 2) == []  # it waits, as such a worker may come back
    core.check()
    core.worker_lost("a")
    assert place([*core.worker_registered("a2", "a", "h", 4, (), 3)]) == [("2", "a2")]


def test_a_new_leader_learns_from_the_registration_that_a_worker_leaves() -> None:
    core = scheduler()
    core.worker_registered("a", "a", "h", 4, (), 0, leaves=True)
    assert core.request(request("1"), 0) == []
    core.check()
