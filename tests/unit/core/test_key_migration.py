"""States of an older version of a keyed Task become those of the present one, or none of them does."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import pytest

from drivetrain import ListState, MapState, ValueState
from drivetrain.core.state.key_migration import Declaration, Migrate
from drivetrain.core.state.key_states import KINDS, CurrentKey, KeyStates
from drivetrain.core.state.state_keys import encoded_key
from drivetrain.errors import UserError

RULES = "by key"
NAIVE = datetime(2026, 1, 2)  # noqa: DTZ001 - such values are kept, too


@dataclass
class Price:
    cents: int
    currency: str = "EUR"


def declared(version: int = 1, migrate: Migrate | None = None, **states: Any) -> Declaration:
    for name, state in states.items():
        state.name = name
    return Declaration("; ".join(map(str, states.values())), RULES, version, list(states.values()), migrate)


def states_of(made: KeyStates, key: str = "a", now_us: int = 0) -> dict[str, Any]:
    place = CurrentKey(made)
    place.key, place.now_us = encoded_key(key), now_us
    return {s.name: KINDS[s.kind](place, s.name, s.types, s.ttl_ms) for s in made.declaration.states}


def first() -> Declaration:
    return declared(
        price=ValueState(float), seen=ListState(int, ttl="10 ms"), by_day=MapState(date, Decimal, ttl="10 ms")
    )


def stored() -> bytes:
    made = KeyStates(first())
    for at_us in (1_000, 2_000, 3_000):
        states = states_of(made, now_us=at_us)
        states["price"].set(at_us / 8)
        states["seen"].append(at_us)
        states["by_day"][date(2026, 1, at_us // 1_000)] = Decimal("1.5") * at_us
    return made.saved()


def second(version: int, states: dict[str, Any]) -> dict[str, Any]:
    assert version == 1
    assert states["by_day"] == {"2026-01-01": "1500.0", "2026-01-02": "3000.0", "2026-01-03": "4500.0"}
    seen = {str(n): at for n, at in enumerate(states["seen"])}
    return {"price": {"cents": round(states["price"] * 100)}, "seen": seen, "by_day": states["by_day"]}


def test_states_become_those_that_migrate_returns_and_keep_their_times() -> None:
    newer = declared(
        2, second, price=ValueState(Price), seen=MapState(str, int), by_day=MapState(date, float, ttl="10 ms")
    )
    with pytest.raises(UserError, match="values of float"):
        KeyStates(newer, stored())  # text of a Decimal is no float: nothing of the bucket is migrated
    newer = declared(
        2,
        second,
        price=ValueState(Price),
        seen=MapState(str, int),
        by_day=MapState(date, Decimal, ttl="10 ms"),
    )
    made = KeyStates(newer, stored())
    for read in (made, KeyStates(newer, made.saved())):
        states = states_of(read, now_us=11_999)
        assert states["price"].get() == Price(37500)
        assert states["seen"].items() == [("0", 1_000), ("1", 2_000), ("2", 3_000)]
        assert list(states["by_day"]) == [date(2026, 1, 2), date(2026, 1, 3)], "the first was 10 ms old"
    assert made.next_ms(holds=False) == 11, "the clock at which the first entry can go"
    made.expire(20, {"by_day": 10_000})
    assert states_of(made)["by_day"].is_empty
    with pytest.raises(UserError, match="newer version") as caught:
        KeyStates(first(), made.saved())
    assert "version 2: price: value of Price(cents int, currency str)" in str(caught.value)


@pytest.mark.parametrize(
    ("newer", "what"),
    [
        (declared(price=ValueState(int)), "set version = 2 in the Task"),
        (Declaration("", "by other", 2, [], lambda version, states: {}), "key of the states"),
        (declared(2, lambda version, states: states, price=ValueState(float)), "'by_day', which is no state"),
        (
            declared(2, lambda version, states: 1 / 0, price=ValueState(int)),
            "'a' cannot be migrated from version 1",
        ),
        (declared(2, lambda version, states: {"seen": 5}, seen=ListState(int)), "is a list, not 5"),
        (declared(2, lambda version, states: {"seen": [""]}, seen=ListState(int)), "values of int, not ''"),
        (declared(2, cast(Any, lambda version, states: None), price=ValueState(int)), "cannot be migrated"),
    ],
)
def test_what_cannot_become_the_new_states_is_refused(newer: Declaration, what: str) -> None:
    with pytest.raises(UserError) as caught:
        KeyStates(newer, stored())
    assert what in str(caught.value)


def test_a_key_without_new_states_takes_no_space_and_timers_stay() -> None:
    made = KeyStates(first(), stored())
    made.timers.set(encoded_key("a"), 77)
    newer = KeyStates(declared(3, lambda version, states: {}, price=ValueState(Price)), made.saved())
    assert newer.keys() == []
    assert newer.next_ms(holds=False) == 77


@pytest.mark.parametrize("seed", range(20))
def test_plain_values_of_any_type_come_back_as_they_were(seed: int) -> None:
    """A migration that changes nothing changes nothing, whatever is stored, and whatever its times."""
    draw = random.Random(seed)
    values: list[tuple[Any, Any]] = [
        (int, draw.randrange(-(2**60), 2**60)), (float, draw.random()), (bytes, draw.randbytes(3)),
        (datetime, datetime(2026, 1, 1, tzinfo=UTC)), (datetime, NAIVE),
        (Decimal, Decimal(draw.randrange(1000)) / 8), (Price, Price(draw.randrange(9), "NOK")),
        (list[date], [date(2026, 1, 1)]), (dict[str, Price], {"a": Price(1)}), (str | None, "x"),
        (bool, True),
    ]  # fmt: skip

    def version(number: int) -> Declaration:
        states: dict[str, Any] = {}
        for n, (kind, _) in enumerate(values):
            states |= {
                f"v{n}": ValueState(kind),
                f"l{n}": ListState(kind, ttl="9 ms"),
                f"m{n}": MapState(int, kind),
            }
        return declared(number, lambda version, states: states, **states)

    before = KeyStates(version(1))
    for n, (_, value) in enumerate(values):
        for name in "abc":
            states = states_of(before, name, draw.randrange(20_000))
            states[f"v{n}"].set(value)
            states[f"l{n}"].append(value)
            states[f"m{n}"][draw.randrange(5)] = value
    after = KeyStates(version(2), before.saved())
    assert after.keys() == before.keys(), f"seed {seed}"
    kept = before.keys()
    for key in kept:
        assert after.record(key) == before.record(key), f"seed {seed}"
    before.expire(5, {f"l{n}": 9_000 for n in range(len(values))})
    after.expire(5, {f"l{n}": 9_000 for n in range(len(values))})
    assert after.next_ms(holds=False) == before.next_ms(holds=False), f"seed {seed}"
