"""The rules for the states of a persistent Task: their monoid, and their encoding as bytes.

Called by `persistent`, and by readers of stored states (`spark.state.state_query`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark import cloudpickle

from drivetrain.api.operations import Process
from drivetrain.core.state.state_rules import StateRules
from drivetrain.core.state.stored_form import StoredForm


def rules_of(operation: Process) -> StateRules[Any]:
    """The rules for the states of a persistent Task."""
    assert operation.persistent is not None
    declared, state = operation.persistent, operation.persistent.state
    form = StoredForm(declared.content_text, declared.rules_text, declared.version)
    return StateRules(
        state.monoid,
        state.codec or PlainCodec(),
        form,
        state.step_ms,
        state.window,
        is_coded=state.codec is not None,
        migrate=None if declared.migrate is None else _Migration(declared.migrate),
    )


@dataclass(frozen=True)
class _Migration:
    """Calls a Task's `migrate` with a state of an older version, or with its bytes if a codec encoded it."""

    migrate: Callable[[int, Any], Any]

    def __call__(self, version: int, is_coded: bool, encoded: bytes) -> Any:
        return self.migrate(version, encoded if is_coded else PlainCodec().decode(encoded))


class PlainCodec:
    """The codec of states without a codec of their own.

    Numbers and text become msgpack, other plain data becomes a plain pickle. Everything else becomes a
    larger and slower pickle, which includes the application's own classes.
    """

    def encode(self, state: Any) -> bytes:
        """The bytes of any state that can be pickled."""
        kind = type(state)
        if kind in _PLAIN and (kind is not int or state in _LONG):
            return _to_msgpack(state)
        return pickle.dumps(state, 5) if _is_plain(state) else cloudpickle.dumps(state, 5)

    def decode(self, encoded: bytes) -> Any:
        """The state as a new object."""
        if encoded[:1] == _PICKLE:
            return pickle.loads(encoded)  # noqa: S301 - Spark's state store holds what we wrote
        return _from_msgpack(encoded)


_PICKLE: Final = b"\x80"
"""The first byte of a pickle; in msgpack that is an empty mapping, which is pickled."""
_LONG: Final = range(-(2**63), 2**63)
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_to_msgpack: Final = msgspec.msgpack.Encoder().encode
_from_msgpack: Final = msgspec.msgpack.Decoder().decode


def _is_plain(state: Any) -> bool:
    kind = type(state)
    if kind in _PLAIN:
        return True
    if kind in (tuple, list, set, frozenset):
        return all(map(_is_plain, state))
    return kind is dict and all(map(_is_plain, state)) and all(map(_is_plain, state.values()))
