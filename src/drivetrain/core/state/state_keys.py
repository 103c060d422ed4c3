"""Keys: equal exactly where Spark groups them together, with bytes that never change.

Problem: Spark has one group for all NaN, one for 0.0 and -0.0, and groups by arrays, structs and maps. In
Python each NaN is a different key, and lists and dicts cannot be keys.

Design: `canonical_key` turns a value of a column or a function into one that Python compares as Spark does:
all NaN are `NAN`, a list is a tuple, a struct or a map is a `KeyMap`. `encoded_key` encodes that as bytes.

Keys consist of column values: text, numbers, booleans, bytes, timestamps, dates, intervals, decimals, null,
and tuples and mappings of them. Equal keys have equal bytes, and keys of different types different ones: 1 is
neither 1.0 nor True.

>>> decoded_key(encoded_key(("NYC", 7)))
('NYC', 7)
>>> encoded_key({"x": float("nan"), "y": [0.0]}) == encoded_key({"y": [-0.0], "x": -float("nan")})
True

Called by `spark.compile` and `spark.state.state_query`.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any, Final

import msgspec

from drivetrain.errors import InputError

_PLAIN: Final = frozenset({str, int, bool, bytes, type(None)})
_DATE: Final = 1
_DECIMAL: Final = 2
_INSTANT: Final = 3
_LARGE: Final = 4
_SPAN: Final = 5
_MAP: Final = 6
_LONG: Final = range(-(2**63), 2**63)
_MICROSECOND: Final = dt.timedelta(microseconds=1)

_encode: Final = msgspec.msgpack.Encoder().encode


class _NotANumber(float):
    """NaN as a key: equal to itself, also after pickling."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NotANumber)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, _NotANumber)

    def __hash__(self) -> int:
        return 1

    def __reduce__(self) -> str:
        return "NAN"


NAN: Final = _NotANumber("nan")
"""The one NaN of all keys."""


class KeyMap(dict[Any, Any]):
    """A struct or a map of a key: a dict that can itself be a key. It must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def canonical_key(part: Any) -> Any:
    """A value that equals another key's exactly where Spark puts both into one group."""
    if isinstance(part, float):
        return NAN if math.isnan(part) else part + 0.0  # -0.0 is 0.0
    if isinstance(part, list | tuple):
        return tuple(map(canonical_key, part))
    if isinstance(part, dict):
        entries = [(canonical_key(name), canonical_key(value)) for name, value in part.items()]
        return KeyMap(sorted(entries, key=lambda entry: repr(entry[0])))
    return part


def encoded_key(key: Any) -> bytes:
    """The bytes of a key; raises TypeError for a value that cannot be a key."""
    kind = type(key)
    if kind is str or (kind is tuple and all(type(part) is str for part in key)):
        return _encode(key)
    return _encode(_wire(key))


def decoded_key(encoded: bytes) -> Any:
    """The canonical key that `encoded_key` encoded; raises InputError for damaged bytes."""
    try:
        return _decoded(encoded)
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError) as error:
        raise InputError(
            "a key of a state is damaged", expected="bytes of a key", got=repr(encoded[:80])
        ) from error


def _wire(part: Any) -> Any:
    kind = type(part)
    if kind is int and part not in _LONG:
        return msgspec.msgpack.Ext(_LARGE, str(part).encode())
    if kind in _PLAIN:
        return part
    if isinstance(part, float):
        return math.nan if math.isnan(part) else float(part) + 0.0
    if isinstance(part, list | tuple):
        return [_wire(inner) for inner in part]
    if isinstance(part, dict):
        entries = sorted((_encode(_wire(name)), _encode(_wire(value))) for name, value in part.items())
        return msgspec.msgpack.Ext(_MAP, _encode(entries))
    if isinstance(part, dt.datetime):
        instant = part if part.tzinfo is None else part.astimezone(dt.UTC)
        return msgspec.msgpack.Ext(_INSTANT, instant.isoformat().encode())
    if isinstance(part, dt.date):
        return msgspec.msgpack.Ext(_DATE, part.isoformat().encode())
    if isinstance(part, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, _shortest(part).encode())
    if isinstance(part, dt.timedelta):
        return msgspec.msgpack.Ext(_SPAN, str(part // _MICROSECOND).encode())
    raise TypeError(
        "a key is made of text, numbers, bytes, instants, dates, and tuples and mappings of them, "
        f"not of {kind.__name__}"
    )


def _shortest(number: Decimal) -> str:
    """The same text for all decimals of one value."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _extended(code: int, content: memoryview) -> Any:
    if code == _MAP:
        return KeyMap((_decoded(name), _decoded(value)) for name, value in msgspec.msgpack.decode(content))
    text = bytes(content).decode()
    match code:
        case 1:
            return dt.date.fromisoformat(text)
        case 2:
            return Decimal(text)
        case 3:
            return dt.datetime.fromisoformat(text)
        case 4:
            return int(text)
        case 5:
            return int(text) * _MICROSECOND
        case other:
            raise ValueError(f"an extension {other}")


def _decoded(encoded: bytes | memoryview) -> Any:
    return _key(msgspec.msgpack.decode(encoded, ext_hook=_extended))


def _key(part: Any) -> Any:
    if isinstance(part, float) and math.isnan(part):
        return NAN
    return tuple(map(_key, part)) if isinstance(part, list) else part
