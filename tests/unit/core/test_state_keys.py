"""Keys that are equal where Spark groups them together, and their bytes."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.state.state_keys import NAN, KeyMap, canonical_key, decoded_key, encoded_key
from drivetrain.errors import InputError

UTC = dt.UTC
NOON = dt.datetime(2020, 1, 1, 12, tzinfo=UTC)
PLAIN = st.one_of(
    st.text(max_size=3), st.integers(), st.floats(), st.booleans(), st.none(), st.binary(max_size=3),
    st.dates(), st.datetimes(timezones=st.just(UTC)),
    st.decimals(allow_nan=False, allow_infinity=False), st.timedeltas(),
)  # fmt: skip
KEYS = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(KEYS)
def test_a_key_comes_back_as_the_canonical_one_by_bytes_and_by_pickling(key: Any) -> None:
    canonical = canonical_key(key)
    assert decoded_key(encoded_key(key)) == canonical
    assert encoded_key(canonical) == encoded_key(key)
    assert encoded_key(decoded_key(encoded_key(key))) == encoded_key(key)
    again = pickle.loads(pickle.dumps(canonical))
    assert (again, hash(again)) == (canonical, hash(canonical))
    assert {canonical: 1}[again] == 1


@pytest.mark.parametrize(
    "alike",
    [
        [math.nan, -math.nan, float("nan"), NAN],
        [0.0, -0.0],
        [(1.0, [math.nan]), [1.0, (float("nan"),)]],
        [{"x": -0.0, "y": [math.nan]}, {"y": (float("nan"),), "x": 0.0}, KeyMap(x=0.0, y=(NAN,))],
        [Decimal("1.50"), Decimal("1.5")],
        [Decimal("100"), Decimal("1E+2"), Decimal("100.000000000000000000")],
        [Decimal("0"), Decimal("-0.00")],
        [NOON, NOON.astimezone(dt.timezone(dt.timedelta(hours=1)))],
    ],
    ids=repr,
)  # fmt: skip
def test_keys_that_are_one_group_of_spark_are_one_key(alike: list[Any]) -> None:
    assert len({canonical_key(key) for key in alike}) == 1
    assert len({encoded_key(key) for key in alike}) == 1


def test_a_map_is_one_key_in_whatever_order_its_entries_come() -> None:
    entries = [(name, i) for i, name in enumerate("abcdefgh")]
    shuffled = random.Random(1).sample(entries, len(entries))
    assert repr(canonical_key(dict(entries))) == repr(canonical_key(dict(shuffled)))
    assert encoded_key(dict(entries)) == encoded_key(dict(shuffled))


def test_keys_that_differ_have_bytes_that_differ() -> None:
    differ = [
        1, 1.0, True, "1", (1,), b"1", {"a": 1}, (("a", 1),), dt.date(2013, 3, 1), "2013-03-01", Decimal(1),
        None, (), {}, math.nan, math.inf, dt.timedelta(1), 2**80,
    ]  # fmt: skip
    assert len({encoded_key(key) for key in differ}) == len(differ)


def test_what_no_key_can_be_and_damaged_bytes_are_refused() -> None:
    with pytest.raises(TypeError, match="not of object"):
        encoded_key((1, object()))
    with pytest.raises(InputError, match="damaged"):
        decoded_key(b"\xc1")
    with pytest.raises(InputError, match="damaged"):
        decoded_key(encoded_key({"a": 1})[:-1])
