"""Keys and values that change by transactions, which can be prepared, committed and rolled back.

Problem: a participant of a checkpoint changes its state with every message, and learns only later whether the
transaction of these changes is committed. Until then it needs both the state to go back to and the state to
continue from. And the decision may arrive twice, or again after a crash.

Design: three layers. `committed` is the state after the last committed transaction. `prepared` holds the
changes of a prepared transaction. A third layer, the working one, holds the later puts and deletes. A read
looks from the newest layer down. Only changes are kept in the two upper layers, so that the cost of a
transaction follows what it touches.

| event | allowed when | effect |
|---|---|---|
| `prepare_commit(t)` | nothing is prepared, or t is; t is above the committed one | working joins prepared |
| `commit(t)` | t is prepared | prepared joins committed |
| `commit(t)` | t is the committed one, and no other is prepared | nothing: a repetition |
| `rollback()` | always | prepared and working are dropped |

Preparing the prepared transaction again replaces it: it then includes later puts, too.

Invariants, checked by `check()`:

1. A prepared transaction is above the committed one.
2. Without a prepared transaction there are no prepared changes.
3. No caller shares an object with the state: values are copied on their way in and out.

Called by participants and by the keeper of a `Transaction` (`core.checkpoint.transaction`). Source: Apache
Storm's KeyValueState. Unlike Storm's in-memory state it accepts a repeated commit, and a rollback creates no
alias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, overload

from drivetrain.errors import InternalError

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

NO_TRANSACTION: Final = -1
"""The committed transaction of a state that was never committed."""


class _Deleted:
    """Stands for "deleted" in a layer of changes; copies of it are compared by type."""


_DELETED: Final = _Deleted()


@dataclass(frozen=True)
class SavedState(Generic[K, V]):
    """Everything that must survive a crash, as plain data: what is committed, and what is prepared on top of
    it.

    `changes` and `deleted` are those of the prepared transaction; without one, `prepared` is None.
    """

    committed: int
    values: Mapping[K, V]
    prepared: int | None
    changes: Mapping[K, V]
    deleted: frozenset[K]


class KeyValueState(Generic[K, V]):
    """A mapping with transactions. `copy` copies a value; `lambda v: v` is enough for immutable ones.

    >>> state = KeyValueState[str, int]()
    >>> state.put("a", 1)
    >>> state.prepare_commit(0)
    >>> state.put("a", 2)
    >>> state.commit(0)
    >>> state.get("a")
    2
    >>> state.rollback()
    >>> state.get("a")
    1
    """

    def __init__(self, saved: SavedState[K, V] | None = None, copy: Callable[[V], V] = deepcopy) -> None:
        self._copy: Final = copy
        self._committed: dict[K, V] = {}
        self._prepared: dict[K, V | _Deleted] = {}
        self._working: dict[K, V | _Deleted] = {}
        self.committed = NO_TRANSACTION
        """The last committed transaction."""
        self.prepared: int | None = None
        """The transaction that is prepared and not yet decided."""
        if saved is not None:
            self.committed, self.prepared = saved.committed, saved.prepared
            self._committed = {key: copy(value) for key, value in saved.values.items()}
            self._prepared = {key: copy(value) for key, value in saved.changes.items()}
            self._prepared |= dict.fromkeys(saved.deleted, _DELETED)
            self.check()

    # -- reading and writing -------------------------------------------------------------------------

    def put(self, key: K, value: V) -> None:
        """Set a value; reads see it at once."""
        self._working[key] = self._copy(value)

    def delete(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._working[key] = _DELETED

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """A copy of the newest value, uncommitted ones included; `default` if there is none."""
        for layer in (self._working, self._prepared, self._committed):
            if key in layer:
                value = layer[key]
                return default if isinstance(value, _Deleted) else self._copy(value)
        return default

    def __iter__(self) -> Iterator[tuple[K, V]]:
        """Keys with copies of their newest values; changes during the iteration are not seen."""
        # The order is that of the first commit of each key, then of changes: stable for the same events.
        keys = dict.fromkeys([*self._committed, *self._prepared, *self._working])
        layers = {**self._committed, **self._prepared, **self._working}
        for key in keys:
            value = layers[key]
            if not isinstance(value, _Deleted):
                yield key, self._copy(value)

    # -- transactions --------------------------------------------------------------------------------

    def prepare_commit(self, txid: int) -> None:
        """Prepare all changes so far as transaction `txid`; raises InternalError as in the table."""
        if txid <= self.committed:
            raise InternalError(f"transaction {txid} is prepared, and {self.committed} is committed")
        if self.prepared not in (None, txid):
            raise InternalError(f"transaction {txid} is prepared while {self.prepared} is not decided")
        self.prepared = txid
        self._prepared |= self._working
        self._working = {}

    def commit(self, txid: int) -> None:
        """Commit the prepared transaction; raises InternalError as in the table."""
        if self.prepared is None and txid == self.committed and txid != NO_TRANSACTION:
            return
        if self.prepared is None or txid != self.prepared:
            raise InternalError(f"transaction {txid} is committed, and {self.prepared} is prepared")
        for key, value in self._prepared.items():
            if isinstance(value, _Deleted):
                self._committed.pop(key, None)
            else:
                self._committed[key] = value
        self.committed, self.prepared, self._prepared = txid, None, {}

    def rollback(self) -> None:
        """Go back to the last committed transaction."""
        self.prepared, self._prepared, self._working = None, {}, {}

    # -- as data -------------------------------------------------------------------------------------

    def saved(self) -> SavedState[K, V]:
        """The data that must survive a crash, without changes that are neither prepared nor committed."""
        changes = {k: self._copy(v) for k, v in self._prepared.items() if not isinstance(v, _Deleted)}
        deleted = frozenset(k for k, v in self._prepared.items() if isinstance(v, _Deleted))
        values = {key: self._copy(value) for key, value in self._committed.items()}
        return SavedState(self.committed, values, self.prepared, changes, deleted)

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        if self.prepared is not None and self.prepared <= self.committed:
            raise InternalError(f"state invariant 1: {self.prepared} is prepared, {self.committed} committed")
        if self.prepared is None and self._prepared:
            raise InternalError("state invariant 2: changes of no transaction")
        if any(isinstance(value, _Deleted) for value in self._committed.values()):
            raise InternalError("state invariant 2: a deletion was committed as a value")
