from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.connectors.files.timestamps import to_temporal

UTC = pa.timestamp("us", tz="UTC")
moments = st.datetimes(timezones=st.none() | st.just(dt.UTC)).filter(lambda moment: 1700 < moment.year < 2200)


@settings(deadline=None)
@given(st.lists(st.none() | moments, max_size=6))
def test_any_mix_of_zoned_and_naive_iso_timestamps_is_read(values: list[dt.datetime | None]) -> None:
    texts = pa.array([None if v is None else v.isoformat() for v in values], pa.string())
    expected = [v if v is None or v.tzinfo else v.replace(tzinfo=dt.UTC) for v in values]
    assert to_temporal(texts, UTC, None).to_pylist() == expected


@pytest.mark.parametrize("text", ["yesterday", "2024-13-01T00:00:00Z", "2024-01-01T25:00:00", "", "2024"])
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    for texts in ([text], ["2024-01-01T00:00:00Z", text, "2024-01-01 00:00:00"]):
        with pytest.raises(pa.ArrowInvalid):
            to_temporal(pa.array(texts), UTC, None)


def test_a_wall_clock_column_takes_no_zone() -> None:
    naive = pa.timestamp("us")
    assert to_temporal(pa.array(["2024-01-01 01:02:03.1234567"]), naive, None).to_pylist() == [
        dt.datetime.fromisoformat("2024-01-01 01:02:03.123456")
    ]
    with pytest.raises(pa.ArrowInvalid):
        to_temporal(pa.array(["2024-01-01T00:00:00Z"]), naive, None)


def test_a_pattern_refuses_what_does_not_follow_it() -> None:
    for pattern in ("%d.%m.%Y", "%d.%m.%Y %H:%M:%S.%f"):
        with pytest.raises(pa.ArrowInvalid):
            to_temporal(pa.array(["2024-01-01"]), UTC, pattern)
