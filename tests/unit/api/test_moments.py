"""Moments as users write them."""

from __future__ import annotations

import datetime as dt

import pytest

from drivetrain.api.moments import moment_ms, moment_text
from drivetrain.errors import UserError

MARCH_MS = 1_362_096_000_000


@pytest.mark.parametrize(
    "moment",
    [
        "2013-03-01",
        "20130301",
        "2013-03-01T00:00",
        "2013-03-01 01:00:00+01:00",
        "1362096000000",
        MARCH_MS,
        dt.datetime.fromisoformat("2013-03-01T00:00"),
        dt.datetime(2013, 3, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ],
)
def test_one_moment_in_many_ways(moment: str | int | dt.datetime) -> None:
    assert moment_ms(moment, "from") == MARCH_MS


def test_parts_of_a_millisecond_are_cut_off_towards_the_past() -> None:
    assert moment_ms("1969-12-31T23:59:59.999999", "from") == -1
    assert moment_ms("1970-01-01T00:00:00.001999", "from") == 1


@pytest.mark.parametrize("text", ["", "yesterday", "2013-13-01", "1e3", "-5"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError) as refused:
        moment_ms(text, "--from")
    assert "2013-03-01T00:00" in str(refused.value)
    assert refused.value.where == "--from"


@pytest.mark.parametrize("ms", [0, -1, 1, MARCH_MS, MARCH_MS + 7])
def test_what_is_told_can_be_read(ms: int) -> None:
    assert moment_ms(moment_text(ms), "from") == ms
