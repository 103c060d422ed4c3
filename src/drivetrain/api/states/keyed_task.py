"""Keyed Tasks: several typed states for each key, and timers.

Write a `KeyedTask` for logic that aggregations and joins cannot express. Declare the key, and the states with
the types of their values:

>>> class Rises(KeyedTask[Sale, tuple[str, float]]):
...     key = "item"
...     last = ValueState(float, ttl="7 d")
...     in_order = True
...
...     def on_next(self, sale: Sale) -> list[tuple[str, float]]:
...         before = self.last.get()
...         self.last.set(sale.price)
...         return [] if before is None or sale.price <= before else [(sale.item, sale.price - before)]
>>> sales.process(Rises)
Stream('Rises')

Drivetrain calls `on_start` once in each process, `on_next` for each message and `on_timer` for each timer
that the clock has reached; the states are always those of the current key. With `in_order = True` messages
wait until the clock has passed their timestamps: then messages and timers of a key come in the order of event
time, whatever the order of arrival.

Values are converted to the declared type and checked as soon as they are written, so that a value reads the
same now and after a crash.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar, overload

import msgspec

from drivetrain.api.durations import duration_text, milliseconds
from drivetrain.api.location import caller
from drivetrain.api.states.persistent import key_columns, migration
from drivetrain.api.task import In, Out, Results, Task
from drivetrain.errors import GraphError

if TYPE_CHECKING:
    from typing import Literal, Self

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

RUNNING: Final = "__running_keys"
"""The attribute of an instance in which its runner puts the states of a key."""


class KeyedValue(Protocol[V]):
    """A value of the current key."""

    @overload
    def get(self) -> V | None: ...
    @overload
    def get(self, default: D) -> V | D: ...
    def get(self, default: Any = None) -> Any:
        """The value, or `default` if there is none, or if it has expired."""
        ...

    def set(self, value: V) -> None:
        """Replace the value; raises TypeError if it has another type."""
        ...

    def clear(self) -> None:
        """Remove the value."""
        ...


class KeyedList(Protocol[V]):
    """A list of the current key, in the order in which values were appended."""

    def append(self, value: V) -> None:
        """Add a value at the end; raises TypeError if it has another type."""
        ...

    def get(self) -> list[V]:
        """The values that have not expired."""
        ...

    def clear(self) -> None:
        """Remove all values."""
        ...

    def __iter__(self) -> Iterator[V]: ...
    def __len__(self) -> int: ...


class KeyedMap(Protocol[K, V]):
    """A mapping of the current key."""

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key of the mapping, or `default` if there is none."""
        ...

    def items(self) -> list[tuple[K, V]]:
        """The keys and values that have not expired, in the order in which keys were added."""
        ...

    def clear(self) -> None:
        """Remove everything."""
        ...

    def __getitem__(self, key: K) -> V: ...
    def __setitem__(self, key: K, value: V) -> None: ...
    def __delitem__(self, key: K) -> None: ...
    def __contains__(self, key: object) -> bool: ...
    def __iter__(self) -> Iterator[K]: ...
    def __len__(self) -> int: ...


class _StateDeclaration:
    """A state of a keyed Task, as a class attribute; on an instance, it is the state of the current key."""

    kind: ClassVar[Literal["value", "list", "map"]]

    def __init__(self, types: tuple[Any, ...], ttl: str | None) -> None:
        self.types: Final = types
        self.ttl_ms: Final = None if ttl is None else milliseconds(ttl, "ttl")
        self.name = ""
        if self.ttl_ms == 0:
            raise GraphError("a ttl needs a length", where=str(caller()), expected="more than 0", got="0")
        for type in types:
            _require_type(type)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        """Its description; values that were kept under another description are not read."""
        of = " to ".join(_type_text(type) for type in self.types)
        ttl = "" if self.ttl_ms is None else f" for {duration_text(self.ttl_ms)}"
        return f"{self.name}: {self.kind} of {of}{ttl}"

    def _of(self, task: Any) -> Any:
        running = task.__dict__.get(RUNNING)
        if running is None:
            raise GraphError(
                f"{type(task).__name__}.{self.name} exists only while Drivetrain calls a hook",
                remedy="use it in on_next or on_timer",
            )
        return running.states_by_name[self.name]


class ValueState(_StateDeclaration, Generic[V]):
    """One value for each key. With `ttl`, it expires that long after it was written, in event time.

    Raises `GraphError` for a type that cannot be kept: use those that columns can have, and dataclasses.

    >>> print(ValueState(int, ttl="1 h"))
    : value of int for 1 h
    """

    kind = "value"

    def __init__(self, type: type[V], *, ttl: str | None = None) -> None:
        super().__init__((type,), ttl)

    @overload
    def __get__(self, task: None, owner: type) -> Self: ...
    @overload
    def __get__(self, task: Task[Any, Any], owner: type) -> KeyedValue[V]: ...
    def __get__(self, task: Task[Any, Any] | None, owner: type) -> Self | KeyedValue[V]:
        if task is None:
            return self
        found: KeyedValue[V] = self._of(task)
        return found


class ListState(_StateDeclaration, Generic[V]):
    """A list for each key. With `ttl`, each value expires that long after it was appended, in event time.

    >>> print(ListState(str))
    : list of str
    """

    kind = "list"

    def __init__(self, type: type[V], *, ttl: str | None = None) -> None:
        super().__init__((type,), ttl)

    @overload
    def __get__(self, task: None, owner: type) -> Self: ...
    @overload
    def __get__(self, task: Task[Any, Any], owner: type) -> KeyedList[V]: ...
    def __get__(self, task: Task[Any, Any] | None, owner: type) -> Self | KeyedList[V]:
        if task is None:
            return self
        found: KeyedList[V] = self._of(task)
        return found


class MapState(_StateDeclaration, Generic[K, V]):
    """A mapping for each key. With `ttl`, each entry expires that long after it was written, in event time.

    >>> print(MapState(str, int, ttl="30 d"))
    : map of str to int for 30 d
    """

    kind = "map"

    def __init__(self, key: type[K], value: type[V], *, ttl: str | None = None) -> None:
        super().__init__((key, value), ttl)

    @overload
    def __get__(self, task: None, owner: type) -> Self: ...
    @overload
    def __get__(self, task: Task[Any, Any], owner: type) -> KeyedMap[K, V]: ...
    def __get__(self, task: Task[Any, Any] | None, owner: type) -> Self | KeyedMap[K, V]:
        if task is None:
            return self
        found: KeyedMap[K, V] = self._of(task)
        return found


class KeyedTask(Task[In, Out], Generic[In, Out]):
    """Base class of Tasks with several typed states for each key; see the module.

    `key` names the column of the key, or several; or it is a method that computes the key of a message.

    >>> class Seen(KeyedTask[Sale, str]):
    ...     key = "item"
    ...     days = MapState(str, int)
    ...
    ...     def on_next(self, sale: Sale) -> None:
    ...         day = str(sale.sold.date())
    ...         self.days[day] = self.days.get(day, 0) + 1
    ...         self.set_timer(60_000)
    ...
    ...     def on_timer(self, key: str, at_ms: int) -> list[str]:
    ...         return [f"{key} on {len(self.days)} days"]
    """

    stateful: ClassVar[bool] = True
    version: ClassVar[int] = 1
    """Raise it when the states change, and define `migrate`."""
    in_order: ClassVar[bool] = False
    key: Any = None

    @classmethod
    def migrate(cls, version: int, states: dict[str, Any]) -> dict[str, Any]:
        """The states of one key as this version declares them, from those of an older `version`.

        Called when states are read that an older version has stored. `states` has those that the key has, by
        name: a value, a list or a mapping, in plain types: a dataclass is a dict; a date, a Decimal, or a
        datetime without a zone is text. What is returned must have the declared types, and a state that is
        not returned is empty. Times of writing stay, for the `ttl`.

        >>> class Spent(KeyedTask[Sale, str]):
        ...     key = "item"
        ...     version = 2
        ...     cents = ValueState(int)
        ...
        ...     @classmethod
        ...     def migrate(cls, version: int, states: dict[str, Any]) -> dict[str, Any]:
        ...         return {"cents": round(states["euros"] * 100)}  # version 1 had euros = ValueState(float)
        """
        raise NotImplementedError

    def on_timer(self, key: Any, at_ms: int) -> Results[Out]:
        """Called once for each timer of a key, when the clock has reached it, or when the input has ended."""

    def set_timer(self, at_ms: int) -> None:
        """Have `on_timer` called for the current key when the clock reaches a time (ms since the epoch)."""
        self.__dict__[RUNNING].set_timer(at_ms)

    def cancel_timer(self, at_ms: int | None = None) -> None:
        """Cancel the timer of the current key at a time, or all of its timers."""
        self.__dict__[RUNNING].cancel_timer(at_ms)


@dataclass(frozen=True)
class KeyedDeclaration:
    """A keyed Task in the graph: its states, and the columns of its key, if any."""

    states: tuple[_StateDeclaration, ...]
    keys: tuple[str, ...]
    in_order: bool
    version: int = 1
    migrate: Callable[[int, dict[str, Any]], dict[str, Any]] | None = None

    @property
    def states_text(self) -> str:
        """The states, which another version may change."""
        return "; ".join(map(str, self.states))

    @property
    def rules_text(self) -> str:
        """The key and the order, which stay."""
        order = ", in the order of event time" if self.in_order else ""
        return f"by {', '.join(self.keys) or 'its own key'}{order}"

    def __str__(self) -> str:
        version = "" if self.version == 1 else f", version {self.version}"
        return f"{self.states_text} {self.rules_text}{version}"


def keyed(kind: type[KeyedTask[Any, Any]]) -> KeyedDeclaration:
    """The declaration of a keyed Task; raises `GraphError` when it is incomplete."""
    found = {
        n: v
        for base in reversed(kind.__mro__)
        for n, v in vars(base).items()
        if isinstance(v, _StateDeclaration)
    }
    if not found:
        raise GraphError(
            f"{kind.__name__} has no states",
            expected="class attributes such as count = ValueState(int), ListState(str), MapState(str, int)",
            got="none",
        )
    for hook in ("on_clock", "on_stop"):
        if getattr(kind, hook) is not getattr(Task, hook):
            raise GraphError(
                f"{kind.__name__} has keys, so it cannot have {hook}",
                expected="on_timer, which is called for a key",
                got=hook,
            )
    migrate = migration(kind, KeyedTask)
    return KeyedDeclaration(tuple(found.values()), key_columns(kind), kind.in_order, kind.version, migrate)


def hooks_of(kind: type[KeyedTask[Any, Any]]) -> list[Any]:
    """The hooks with results that a keyed Task itself defines."""
    return [kind.on_next, *([kind.on_timer] if kind.on_timer is not KeyedTask.on_timer else [])]


def _require_type(type: Any) -> None:
    """Raise `GraphError` for a type whose values cannot be kept."""
    try:
        info = msgspec.inspect.type_info(type)
    except (TypeError, NameError):
        info = msgspec.inspect.AnyType()
    if isinstance(info, msgspec.inspect.AnyType | msgspec.inspect.CustomType | msgspec.inspect.RawType):
        raise GraphError(
            "a state cannot have this type",
            where=str(caller()),
            expected="int, float, str, bool, bytes, datetime, date, Decimal, "
            "or a list, dict or dataclass of these",
            got=repr(type),
        )


def _type_text(type: Any) -> str:
    """A type as text, with the fields of a dataclass or a NamedTuple."""
    if dataclasses.is_dataclass(type) or hasattr(type, "_fields"):
        fields = typing.get_type_hints(type).items()
        return f"{type.__name__}({', '.join(f'{name} {_type_text(of)}' for name, of in fields)})"
    arguments = typing.get_args(type)
    name: str = getattr(typing.get_origin(type) or type, "__name__", None) or str(type)
    return f"{name}[{', '.join(map(_type_text, arguments))}]" if arguments else name
