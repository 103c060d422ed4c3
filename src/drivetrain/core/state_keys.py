"""Keys of states as bytes, the same in every process and version, and back.

Keys are what columns hold: text, numbers, truth values, bytes, instants, dates, decimals, null, and tuples of
them. Equal keys have equal bytes, and keys of different types different ones: 1 is neither 1.0 nor True.

>>> decoded_key(encoded_key(("NYC", 7)))
('NYC', 7)

Called by `spark.compile` and `spark.state_query`.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import msgspec

from drivetrain.errors import InputError

_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
_DATE: Final = 1
_DECIMAL: Final = 2
_INSTANT: Final = 3
_LARGE: Final = 4
_LONG: Final = range(-(2**63), 2**63)

_encode: Final = msgspec.msgpack.Encoder().encode


def encoded_key(key: Any) -> bytes:
    """The bytes of a key; raises TypeError for what no key can be."""
    kind = type(key)
    if kind is str or (kind is tuple and all(type(part) is str for part in key)):
        return _encode(key)
    return _encode(_wire(key))


def decoded_key(encoded: bytes) -> Any:
    """The key that `encoded_key` was given, a list as a tuple; raises InputError when it is damaged."""
    try:
        return _key(msgspec.msgpack.decode(encoded, ext_hook=_extended))
    except (msgspec.MsgspecError, ValueError, ArithmeticError) as error:
        raise InputError(
            "a key of a state is damaged", expected="bytes of a key", got=repr(encoded[:80])
        ) from error


def _wire(part: Any) -> Any:
    kind = type(part)
    if kind is int and part not in _LONG:
        return msgspec.msgpack.Ext(_LARGE, str(part).encode())
    if kind in _PLAIN:
        return part
    if isinstance(part, list | tuple):
        return [_wire(inner) for inner in part]
    if isinstance(part, dt.datetime):
        instant = part if part.tzinfo is None else part.astimezone(dt.UTC)
        return msgspec.msgpack.Ext(_INSTANT, instant.isoformat().encode())
    if isinstance(part, dt.date):
        return msgspec.msgpack.Ext(_DATE, part.isoformat().encode())
    if isinstance(part, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(part).encode())
    raise TypeError(
        f"a key is made of text, numbers, bytes, instants, dates and tuples of them, not of {kind.__name__}"
    )


def _extended(code: int, content: memoryview) -> Any:
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
        case other:
            raise ValueError(f"an extension {other}")


def _key(part: Any) -> Any:
    return tuple(map(_key, part)) if isinstance(part, list) else part
