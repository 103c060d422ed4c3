"""Converts text to timestamps and dates, a column at a time.

The problem: Arrow's native conversion accepts timestamps *with* a zone for one type and *without* for
another, at most six decimals, and nothing else; files mix them.

The design: try the conversion that fits most columns first (it runs at tens of millions per second),
then the other, and only a mixed column is split by a pattern. A missing zone means
UTC. Decimals past the microsecond are truncated, as in Spark.

Called by the JSON and CSV decoders, which read temporal columns as text first.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

_ZONE = r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$"
_NAIVE = pa.timestamp("us")
_UTC = pa.timestamp("us", tz="UTC")


def is_temporal(target: pa.DataType) -> bool:
    """Whether columns of this type are read as text and converted here."""
    return pa.types.is_timestamp(target) or pa.types.is_date32(target)


def to_temporal(texts: pa.Array, target: pa.DataType, pattern: str | None) -> pa.Array:
    """Convert strings to dates or timestamps; raises ArrowInvalid when one of them is neither.

    `target` is date32, or timestamp in microseconds with the zone UTC (an instant) or without (the
    wall clock as written, which must then have no zone). `pattern` is a `strptime` pattern for
    timestamps, or None for ISO 8601.
    """
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), target)
    if pa.types.is_date32(target):
        return pc.cast(texts, target)
    if pattern is not None:
        naive_or_utc = _by_pattern(texts, pattern)
        return naive_or_utc.cast(target)
    if target.tz is None:
        return _with_fallback(texts, _NAIVE)
    try:
        return pc.cast(texts, _UTC)
    except pa.ArrowInvalid:
        zoned = pc.match_substring_regex(texts, _ZONE)
        with_zone = _with_fallback(pc.if_else(zoned, texts, pa.scalar(None, pa.string())), _UTC)
        without = _with_fallback(pc.if_else(zoned, pa.scalar(None, pa.string()), texts), _NAIVE)
        return pc.coalesce(with_zone, without.cast(_UTC))


def _with_fallback(texts: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return pc.cast(texts, target)
    except pa.ArrowInvalid:
        cut = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
        return pc.cast(cut, target)


def _by_pattern(texts: pa.Array, pattern: str) -> pa.Array:
    if "%f" not in pattern and "%z" not in pattern:
        return pc.strptime(texts, format=pattern, unit="us", error_is_null=False).cast(_UTC)
    return pa.array([_parsed(text, pattern) for text in texts.to_pylist()], _UTC)


def _parsed(text: str | None, pattern: str) -> dt.datetime | None:
    if text is None:
        return None
    try:
        moment = dt.datetime.strptime(text, pattern)  # noqa: DTZ007 - a missing zone means UTC, below
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
