"""The typed states of a bucket of keys: values, lists and maps by name, which expire in event time.

Problem: a keyed Task has several states for each key. What it writes must read the same after a crash, values
must expire exactly, whenever the next message comes, and keys without states must take no space.

Design: the states of a key are one **record**: for each name an entry, a list of entries, or a mapping to
entries. An entry is the value in msgpack and the time at which it was written. A value is decoded with its
type when it is written, too, so that a wrong one is refused there. Records are in a `PagedState`, of which
only the touched pages are decoded.

An entry with a time to live is **visible** to a message or timer at a time before `written + ttl`. It is
removed when the clock has reached that time. Each key with such entries has one time at which it is looked
at (`expiries`).

Messages of a Task that takes them in order are **held** here until the clock has passed them.

Times of entries and messages are microseconds since the epoch; those of timers and the clock are
milliseconds.

Invariants:

1. An entry is visible exactly to times before it expires, whenever `expire` is called with a clock up to
   them.
2. A key without entries has no record.
3. Values are decoded only with the types that they were encoded with: states of another declaration are
   migrated (`key_migration`) or refused.

Called by `spark.compile.keyed_tasks` for each bucket of keys, and by `spark.state.keyed_state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from drivetrain.core.state.key_migration import Declaration
from drivetrain.core.state.key_timers import KeyTimers
from drivetrain.core.state.paged_state import PagedState
from drivetrain.errors import InputError, UserError

_VERSION: Final = 1
_records: Final = msgspec.msgpack.Decoder(dict[str, Any])
_encode: Final = msgspec.msgpack.Encoder().encode
Held = tuple[int, bytes, bytes]
"""The time (µs), key and content of a message that waits."""


class _Saved(msgspec.Struct, array_like=True):
    version: int
    signature: str
    timers: list[tuple[int, bytes]]
    expiries: list[tuple[int, bytes]]
    held: list[Held]
    records: bytes
    rules: str
    task_version: int


class KeyStates:
    """The records, timers and held messages; `saved` gives the bytes from which the next one is created."""

    def __init__(self, declaration: Declaration, saved: bytes | None = None) -> None:
        self.declaration: Final = declaration
        self.timers = KeyTimers()
        self.held: list[Held] = []
        """The messages that wait for the clock, in no order."""
        self._due: dict[bytes, int] = {}
        self._expiries = KeyTimers()
        self._paged = PagedState()
        self._open: dict[bytes, dict[str, Any]] = {}
        self._changed: set[bytes] = set()
        if saved is not None:
            self._take(saved)

    def record(self, key: bytes) -> dict[str, Any]:
        """The entries of a key by the names of states; changes are kept after `touch`."""
        if key not in self._open:
            kept = self._paged.get(key)
            self._open[key] = {} if kept is None else _records.decode(kept)
        return self._open[key]

    def touch(self, key: bytes, expires_us: int | None = None) -> None:
        """The record of a key has changed; a new entry expires at a time."""
        self._changed.add(key)
        if expires_us is not None:
            self._look_at(key, expires_us)

    def expire(self, clock_ms: int, ttls_us: dict[str, int]) -> None:
        """Remove the entries that no time from the clock on can see."""
        while (due := self._expiries.take(clock_ms)) is not None:
            key = due[1]
            del self._due[key]
            record, left = self.record(key), []
            for name, ttl_us in ttls_us.items():
                kept = [e for e in entries_of(record.get(name)) if e[0] + ttl_us > clock_ms * 1000]
                left += [entry[0] + ttl_us for entry in kept]
                _keep_only(record, name, kept)
            self.touch(key, min(left, default=None))

    def next_ms(self, *, holds: bool) -> int | None:
        """The clock at which the bucket must be called next, even without messages; None: never."""
        waiting = min(self.held)[0] // 1000 + 1 if holds and self.held else None
        times = (self.timers.next_ms(), self._expiries.next_ms(), waiting)
        return min((ms for ms in times if ms is not None), default=None)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        self._write()
        return not len(self._paged) and not self.timers and not self.held

    def keys(self) -> list[bytes]:
        """The keys that have states."""
        self._write()
        return list(self._paged.keys())

    def saved(self) -> bytes:
        """All of it as bytes; only changed pages are encoded again."""
        self._write()
        return msgspec.msgpack.encode(
            _Saved(
                _VERSION,
                self.declaration.signature,
                self.timers.kept(),
                self._expiries.kept(),
                sorted(self.held),
                self._paged.saved(),
                self.declaration.rules,
                self.declaration.version,
            )
        )

    def _look_at(self, key: bytes, expires_us: int) -> None:
        at_ms = -(-expires_us // 1000)
        if key in self._due:
            if self._due[key] <= at_ms:
                return
            self._expiries.cancel(key, self._due[key])
        self._due[key] = at_ms
        self._expiries.set(key, at_ms)

    def _write(self) -> None:
        for key in sorted(self._changed):
            record = {name: kept for name, kept in self._open[key].items() if kept}
            if record:
                self._paged[key] = _encode(record)
            else:
                self._paged.discard(key)
        self._changed.clear()

    def _take(self, saved: bytes) -> None:
        try:
            kept = msgspec.msgpack.decode(saved, type=_Saved)
        except msgspec.MsgspecError as error:
            raise InputError(
                "the state of a bucket of keys is damaged",
                expected="states by key",
                got=f"{len(saved)} bytes: {error}",
                remedy="go back to a checkpoint or a savepoint, or start over with --fresh",
            ) from error
        if kept.version != _VERSION:
            raise UserError(
                "the states were written by another version of Drivetrain",
                expected=f"form {_VERSION}",
                got=f"form {kept.version}",
                remedy="run that version, or start over with --fresh",
            )
        self.declaration.require_readable(kept.signature, kept.rules, kept.task_version)
        self.timers, self._expiries = KeyTimers(kept.timers), KeyTimers(kept.expiries)
        self._due = {key: at_ms for at_ms, key in kept.expiries}
        self.held = kept.held
        self._paged = PagedState(kept.records)
        if kept.task_version != self.declaration.version:
            self._migrate(kept.task_version)

    def _migrate(self, version: int) -> None:
        """Have the records of an older version replaced; all of them, or an error is raised."""
        self._expiries, self._due = KeyTimers(), {}
        ttls_us = {s.name: s.ttl_ms * 1000 for s in self.declaration.states if s.ttl_ms is not None}
        for key in list(self._paged.keys()):
            made = self.declaration.migrated(key, self.record(key), version)
            self._open[key] = made
            times = [entry[0] + ttl for name, ttl in ttls_us.items() for entry in entries_of(made.get(name))]
            self.touch(key, min(times, default=None))


def entries_of(kept: Any) -> Sequence[Any]:
    """The entries, each `[written µs, value]`, of a value, a list or a map; none for None."""
    if not kept:
        return []
    if isinstance(kept, dict):
        return list(kept.values())
    return kept if isinstance(kept[0], list) else [kept]


def _keep_only(record: dict[str, Any], name: str, entries: Sequence[Any]) -> None:
    """Leave only these entries of a state."""
    kept = record.get(name)
    if isinstance(kept, dict):
        alive = {id(entry) for entry in entries}
        record[name] = {key: entry for key, entry in kept.items() if id(entry) in alive}
    elif kept and isinstance(kept[0], list):
        record[name] = list(entries)
    elif not entries:
        record.pop(name, None)


class StateOfKey:
    """A named state of the current key of `place`: the base of values, lists and maps."""

    def __init__(self, place: CurrentKey, name: str, types: Sequence[Any], ttl_ms: int | None) -> None:
        self.name: Final = name
        self._place: Final = place
        self._types: Final = types
        self._decoders: Final = [msgspec.msgpack.Decoder(type) for type in types]
        self._ttl_us: Final = None if ttl_ms is None else ttl_ms * 1000

    def _entry(self, value: Any, n: int = -1) -> list[Any]:
        return [self._place.now_us, self._encoded(value, n)]

    def _encoded(self, value: Any, n: int) -> bytes:
        """A value in msgpack; raises TypeError if it is not of the declared type."""
        try:
            return _encode(self._decoders[n].decode(_encode(value)))
        except (msgspec.MsgspecError, TypeError, OverflowError) as error:
            kind = getattr(self._types[n], "__name__", self._types[n])
            raise TypeError(f"the state {self.name} has values of {kind}, not {value!r}: {error}") from None

    def _read(self, entry: Any) -> Any:
        return self._decoders[-1].decode(entry[1])

    def _sees(self, entry: Any) -> bool:
        return self._ttl_us is None or entry[0] + self._ttl_us > self._place.now_us

    def _record(self) -> dict[str, Any]:
        return self._place.states.record(self._place.required_key())

    def _wrote(self) -> None:
        expires = None if self._ttl_us is None else self._place.now_us + self._ttl_us
        self._place.states.touch(self._place.required_key(), expires)

    @property
    def is_empty(self) -> bool:
        """Whether the key has no entry of this state that is visible now."""
        return not any(map(self._sees, entries_of(self._record().get(self.name))))

    def clear(self) -> None:
        """Remove the state of the key."""
        self._record().pop(self.name, None)
        self._place.states.touch(self._place.required_key())


class CurrentKey:
    """The key and time of the message or timer that a Task processes."""

    def __init__(self, states: KeyStates) -> None:
        self.states: Final = states
        self.key: bytes | None = None
        self.now_us = 0

    def required_key(self) -> bytes:
        """The current key; raises RuntimeError outside of hooks that have one."""
        if self.key is None:
            raise RuntimeError("states belong to a key: use them in on_next or on_timer")
        return self.key


class ValueOfKey(StateOfKey):
    """A value; see `drivetrain.api.states.keyed_task.KeyedValue`."""

    def get(self, default: Any = None) -> Any:
        """The value, or `default`."""
        entry = self._record().get(self.name)
        return self._read(entry) if entry and self._sees(entry) else default

    def set(self, value: Any) -> None:
        """Replace the value."""
        self._record()[self.name] = self._entry(value)
        self._wrote()


class ListOfKey(StateOfKey):
    """A list; see `drivetrain.api.states.keyed_task.KeyedList`."""

    def append(self, value: Any) -> None:
        """Add a value at the end."""
        self._record().setdefault(self.name, []).append(self._entry(value))
        self._wrote()

    def get(self) -> list[Any]:
        """The values."""
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        return iter([self._read(e) for e in self._record().get(self.name, ()) if self._sees(e)])

    def __len__(self) -> int:
        return sum(map(self._sees, self._record().get(self.name, ())))


class MapOfKey(StateOfKey):
    """A mapping; see `drivetrain.api.states.keyed_task.KeyedMap`."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key of the mapping, or `default`."""
        entry = self._entries().get(self._encoded(key, 0))
        return default if entry is None else self._read(entry)

    def items(self) -> list[tuple[Any, Any]]:
        """The keys and values."""
        return [(self._decoders[0].decode(key), self._read(e)) for key, e in self._entries().items()]

    def __getitem__(self, key: Any) -> Any:
        entry = self._entries().get(self._encoded(key, 0))
        if entry is None:
            raise KeyError(key)
        return self._read(entry)

    def __setitem__(self, key: Any, value: Any) -> None:
        encoded = self._encoded(key, 0)
        self._record().setdefault(self.name, {})[encoded] = self._entry(value)
        self._wrote()

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        del self._record()[self.name][self._encoded(key, 0)]
        self._place.states.touch(self._place.required_key())

    def __contains__(self, key: Any) -> bool:
        return self._encoded(key, 0) in self._entries()

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self.items()])

    def __len__(self) -> int:
        return len(self._entries())

    def _entries(self) -> dict[bytes, Any]:
        return {key: e for key, e in self._record().get(self.name, {}).items() if self._sees(e)}


KINDS: Final[dict[str, type[StateOfKey]]] = {"value": ValueOfKey, "list": ListOfKey, "map": MapOfKey}
"""The states of a running Task, by the kind of their declaration."""
