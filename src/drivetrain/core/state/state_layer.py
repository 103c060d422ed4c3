"""States by key as bytes in pages: each is decoded when it is read, and encoded again when it was put.

Pure. Called by `two_state`, which has one layer for each window and pane.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

from drivetrain.api.states.persistent import Codec
from drivetrain.core.state.paged_state import PagedState
from drivetrain.core.state.state_rules import StateRules

S = TypeVar("S")

GONE: Final[Any] = object()
"""The state of a key that has none: states may be None themselves."""

IMMUTABLE: Final = frozenset({int, float, str, bytes, bool, type(None)})
"""The types of states that nobody can change."""


class Layer(Generic[S]):
    """States by key: a state is decoded when it is read, and encoded again when it was put."""

    def __init__(self, codec: Codec[S], saved: memoryview | None = None) -> None:
        self._codec: Final = codec
        self._paged: Final = PagedState(saved)
        self._decoded: dict[bytes, Any] = {}
        self._put: set[bytes] = set()

    def get(self, key: bytes) -> Any:
        """The state of a key in this layer, or `GONE`."""
        if key in self._decoded:
            return self._decoded[key]
        encoded = self._paged.get(key)
        state = self._decoded[key] = GONE if encoded is None else self._codec.decode(encoded)
        return state

    def own(self, key: bytes) -> Any:
        """The state of a key for a caller that may change it, or `GONE`."""
        state = self.get(key)
        if state is GONE or type(state) in IMMUTABLE:
            return state
        return self._codec.decode(self._codec.encode(state))

    def put(self, key: bytes, state: S) -> None:
        """Set the state of a key."""
        self._decoded[key] = state
        self._put.add(key)

    def encoded(self, key: bytes) -> bytes | None:
        """The state of a key as bytes; None if the key has none."""
        if key in self._put:
            return self._codec.encode(self._decoded[key])
        return self._paged.get(key)

    def keys(self) -> list[bytes]:
        """All keys with a state in this layer."""
        return list(dict.fromkeys([*self._paged.keys(), *sorted(self._put)]))

    def migrate(self, rules: StateRules[S], version: int, *, is_coded: bool) -> None:
        """Replace all states, which an older version has encoded."""
        for key, encoded in list(self._paged.items()):
            self._paged[key] = self._codec.encode(rules.decoded(key, encoded, version, is_coded=is_coded))

    def saved(self) -> bytes:
        """All of it as bytes; only changed pages are encoded again."""
        for key in sorted(self._put):
            self._paged[key] = self._codec.encode(self._decoded[key])
        self._put.clear()
        return self._paged.saved()


# -- bytes ------------------------------------------------------------------------------------------------
