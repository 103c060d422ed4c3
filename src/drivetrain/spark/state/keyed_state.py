"""Reads the typed states of a keyed Task as values.

Problem: the state of a key consists of entries in msgpack, each with the time at which it was written. Some
have expired, although the clock has not yet removed them.

Design: the same states as in a hook, at the time of the clock. When the input has ended, the clock has passed
every time, and nothing expires any more: all remaining values are shown.

Called by `state_query`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drivetrain.api.states.keyed_task import KeyedDeclaration
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.core.state.key_migration import declaration
from drivetrain.core.state.key_states import (
    KINDS,
    CurrentKey,
    KeyStates,
    ListOfKey,
    MapOfKey,
    StateOfKey,
    ValueOfKey,
)
from drivetrain.core.state.state_keys import decoded_key


def keyed_values(
    declared: KeyedDeclaration, saved: bytes, clock_ms: int, only: bytes | None = None
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The keys of a bucket, or only one, with their states by name: a value, a list or a mapping.

    A value that a key does not have is None. States of an older version are shown as `migrate` makes them.
    Raises `UserError` for states that were written with another declaration.
    """
    states = KeyStates(declaration(declared), saved)
    place = CurrentKey(states)
    place.now_us = (clock_ms if clock_ms < FINAL_CLOCK_MS else NO_CLOCK_MS) * 1000
    by_name = {s.name: KINDS[s.kind](place, s.name, s.types, s.ttl_ms) for s in declared.states}
    for key in states.keys() if only is None else [only]:
        place.key = key
        if not all(state.is_empty for state in by_name.values()):
            yield decoded_key(key), {name: _shown(state) for name, state in by_name.items()}


def _shown(state: StateOfKey) -> Any:
    """The contents of a state; a mapping whose keys Python cannot hash becomes a list of pairs."""
    if isinstance(state, ValueOfKey | ListOfKey):
        return state.get()
    assert isinstance(state, MapOfKey)
    pairs = state.items()
    try:
        return dict(pairs)
    except TypeError:
        return pairs
