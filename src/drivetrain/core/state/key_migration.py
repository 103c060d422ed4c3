"""Converts older states of a keyed Task to those of its current version.

Problem: a keyed Task changes: a number becomes a record, a list a mapping. What was stored must be read with
the types that it was written with, and those are gone from the application.

Design: values are msgpack, which can be read without the type. The Task's `migrate` gets the states of a key
as plain values, and returns those of the current version, which are encoded with their declared types. A
bucket is migrated when it is read; it is written by the batch that changes it.

An entry keeps the time at which its value was written: that of the old value of this name, of the old element
at this place if the list is as long as before, of the old value of this key of the mapping. Otherwise it has
the newest time of the key's old states.

Invariants:

1. A state is read with the declaration that it was written with, or by `migrate`.
2. What `migrate` returns is encoded completely, or nothing of the bucket is.

Pure. Called by `key_states` and by layer `spark`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from drivetrain.api.states.keyed_task import KeyedDeclaration
from drivetrain.core.state.state_keys import decoded_key
from drivetrain.core.state.stored_form import StoredForm, failed_migration

_encode = msgspec.msgpack.Encoder().encode
Migrate = Callable[[int, dict[str, Any]], Mapping[str, Any]]
"""The states of a key by name in an older version; it returns those of the present version."""


class DeclaredState(Protocol):
    """The properties of a declared state."""

    @property
    def name(self) -> str:
        """Its name in the Task."""
        ...

    @property
    def kind(self) -> str:
        """Value, list or map."""
        ...

    @property
    def types(self) -> tuple[Any, ...]:
        """The types of its parts; the last is that of values."""
        ...

    @property
    def ttl_ms(self) -> int | None:
        """How long an entry exists."""
        ...


@dataclass(frozen=True)
class Declaration:
    """The declared states of a keyed Task, described by `signature`; no migration can change the `rules`."""

    signature: str
    rules: str = ""
    version: int = 1
    states: Sequence[DeclaredState] = ()
    migrate: Migrate | None = None

    def require_readable(self, signature: str, rules: str, version: int) -> None:
        """Raise `UserError` unless states that were stored with this declaration can be read or migrated."""
        self._form.require_readable(
            StoredForm(signature, rules, version),
            migrates=self.migrate is not None,
            fixed="the key of the states, or the order of the messages,",
        )

    @property
    def _form(self) -> StoredForm:
        return StoredForm(self.signature, self.rules, self.version)

    def migrated(self, key: bytes, record: Mapping[str, Any], version: int) -> dict[str, Any]:
        """The record of a key, stored by an older version; raises `UserError` if it cannot be migrated."""
        assert self.migrate is not None
        old = {name: _plain(kept) for name, kept in record.items()}
        try:
            made = self.migrate(version, old)
            return self._record(made, record)
        except Exception as error:
            raise failed_migration(decoded_key(key), version, self._form, error) from error

    def _record(self, made: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        declared = {state.name: state for state in self.states}
        if unknown := sorted(made.keys() - declared.keys()):
            raise ValueError(f"migrate returned {unknown[0]!r}, which is no state of the Task: leave it out")
        newest_us = max(written for kept in before.values() for written in _times(kept))
        record: dict[str, Any] = {}
        for name, value in made.items():
            entries = _entries(declared[name], value, before.get(name), newest_us)
            if entries:
                record[name] = entries
        return record


def declaration(declared: KeyedDeclaration) -> Declaration:
    """The declaration of a keyed Task as its states are stored with it."""
    return Declaration(
        declared.states_text, declared.rules_text, declared.version, declared.states, declared.migrate
    )


def _entries(state: DeclaredState, value: Any, before: Any, newest_us: int) -> Any:
    """A state as it is kept."""
    if value is None:
        return None
    if state.kind == "value":
        is_value = bool(before) and isinstance(before, list) and not isinstance(before[0], list)
        return [before[0] if is_value else newest_us, _encoded(state, value)]
    if state.kind == "list":
        if not isinstance(value, list | tuple):
            raise TypeError(f"the state {state.name} is a list, not {value!r}")
        times = _times(before) if isinstance(before, list) and before and isinstance(before[0], list) else []
        times = times if len(times) == len(value) else [newest_us] * len(value)
        return [[us, _encoded(state, element)] for us, element in zip(times, value, strict=True)]
    pairs = list(value.items()) if isinstance(value, Mapping) else list(value)
    times_by_key = {key: entry[0] for key, entry in before.items()} if isinstance(before, dict) else {}
    encoded = [(_encoded(state, key, 0), _encoded(state, element)) for key, element in pairs]
    return {key: [times_by_key.get(key, newest_us), element] for key, element in encoded}


def _encoded(state: DeclaredState, value: Any, part: int = -1) -> bytes:
    """A value in msgpack; raises TypeError if it is not of the declared type."""
    kind = state.types[part]
    try:
        return _encode(_decoder(kind).decode(_encode(value)))
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        name = getattr(kind, "__name__", kind)
        raise TypeError(f"the state {state.name} has values of {name}, not {value!r}: {error}") from None


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _times(kept: Any) -> list[int]:
    """When the entries of a state were written, in µs."""
    if isinstance(kept, dict):
        return [entry[0] for entry in kept.values()]
    return [entry[0] for entry in kept] if isinstance(kept[0], list) else [kept[0]]


def _plain(kept: Any) -> Any:
    """The value, list or mapping of a state in plain types; a mapping whose keys have no hash as pairs."""
    read = msgspec.msgpack.decode
    if isinstance(kept, dict):
        pairs = [(read(key), read(entry[1])) for key, entry in kept.items()]
        try:
            return dict(pairs)
        except TypeError:
            return pairs
    return [read(entry[1]) for entry in kept] if isinstance(kept[0], list) else read(kept[1])
