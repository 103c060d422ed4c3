"""Persistent Tasks: a durable state for each key, which others can query.

Write a `PersistentTask` when a state must last as long as the application, and when others query it: with
`drivetrain state`, or from Python. Declare the key and the state:

>>> from drivetrain.api.states import monoids as agg
>>> class WordCounts(PersistentTask[str, tuple[str, int]]):
...     key = "word"
...     state = State(agg.count(), as_of="1 h")
...
...     def on_change(self, word: str, count: int) -> list[tuple[str, int]]:
...         return [(word, count)]

Drivetrain calls the hooks that you write, in this order:

1. `on_start(context)` once in each process that holds some of its keys;
2. `on_window(key, start_ms, end_ms, value)` for each key of a window that has ended;
3. `on_timer(key, at_ms)` for each timer that the clock has reached, in order; `on_next`, `on_change` and
   `on_timer` set them for their key with `self.state.set_timer(at_ms)`;
4. `on_next(message)` for each message, in which `self.state` is the state of the message's key: `update`,
   `get`. Without an `on_next`, every message is merged into the state of its key, before the shuffle if
   possible;
5. `on_change(key, value)` for each key whose state a batch has changed;
6. `on_clock(clock_ms)` when the clock has moved.

Results have the timestamp of the message, the last millisecond of the window, the time of the timer, or the
clock. A Task without hooks has no results and only serves queries.

The state does not depend on the number of cores or tasks. `as_of="1 h"` keeps the exact state as of every
full hour of application time, for the time `keep`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload

from drivetrain.api.durations import duration_text, milliseconds
from drivetrain.api.location import caller
from drivetrain.api.states.key_monoids import monoid_of, name_of_monoid
from drivetrain.api.states.monoids import Aggregation, Monoid
from drivetrain.api.task import In, Out, Results, Task
from drivetrain.api.windows import Window
from drivetrain.errors import GraphError

if TYPE_CHECKING:
    from typing import Self

S = TypeVar("S")


class Codec(Protocol[S]):
    """Encodes states as bytes and decodes them; an instance is sent to Spark's workers."""

    def encode(self, state: S) -> bytes:
        """The state as bytes, the same in every process."""
        ...

    def decode(self, encoded: bytes) -> S:
        """The state that was encoded, as a new object."""
        ...


class KeyedState(Protocol):
    """The state while a Task runs: the state of the current message's key, or of another key."""

    def update(self, message: Any, timestamp_ms: int | None = None) -> None:
        """Merge a message into the state of the current key, at its own timestamp or another (ms)."""
        ...

    def get(self, key: Any = None) -> Any:
        """The value of the current key, or of another key of the same bucket; None if the key has none.

        With a window, the value in the oldest open window that contains the current message.
        """
        ...

    def set_timer(self, at_ms: int) -> None:
        """Have `on_timer` called for the current key when the clock reaches a time (ms since the epoch)."""
        ...

    def cancel_timer(self, at_ms: int | None = None) -> None:
        """Cancel the timer of the current key at a time, or all of its timers."""
        ...


class State:
    """Declares the state of a `PersistentTask`, as its class attribute `state`.

    `monoid` is one of `agg.count`, `sum`, `min`, `max`, `mean` (of a column), or your own `Monoid`. With
    `window` (tumbling or sliding), each window has its own state, which ends with the window. `codec` encodes
    states as bytes; without it they are pickled. `as_of` is the step of application time at which exact
    states are kept, `keep` is how long they can be queried, in application time. Raises `GraphError` for an
    invalid declaration.

    >>> print(State(agg.sum("price"), as_of="1 h"))
    sum(price), as of every 1 h
    """

    def __init__(
        self,
        monoid: Monoid[Any, Any] | Aggregation,
        *,
        window: Window | None = None,
        codec: Codec[Any] | None = None,
        as_of: str | None = None,
        keep: str = "7 d",
    ) -> None:
        self.monoid = monoid_of(monoid)
        self.window = window
        self.codec = codec
        self.step_ms = None if as_of is None else milliseconds(as_of, "as_of")
        self.keep_ms = milliseconds(keep, "keep")
        if window is not None and window.kind not in ("tumbling", "sliding"):
            raise GraphError(
                f"a persistent state has no {window.kind} window",
                expected="windows.tumbling(...) or windows.sliding(...), or no window",
                got=str(window),
                remedy="group_by(...).window(...) has all windows",
            )
        if window is not None and (window.allowed_lateness_ms or window.emission != "discarding"):
            raise GraphError(
                "a window of a persistent state ends once",
                expected="neither allowed_lateness nor emission",
                got=str(window),
            )
        if self.step_ms is not None and not 0 < self.step_ms <= self.keep_ms:
            raise GraphError(
                "as_of= or keep= is not possible",
                expected="as_of greater than 0 and no longer than keep",
                got=f"as_of={as_of!r}, keep={keep!r}",
            )

    def __str__(self) -> str:
        return ", ".join([self._content_text, *self._times_text])

    @property
    def _content_text(self) -> str:
        codec = [] if self.codec is None else [f"by {type(self.codec).__name__}"]
        return ", ".join([name_of_monoid(self.monoid), *codec])

    @property
    def _times_text(self) -> list[str]:
        window = [] if self.window is None else [f"in {self.window}"]
        return window + ([] if self.step_ms is None else [f"as of every {duration_text(self.step_ms)}"])

    @overload
    def __get__(self, task: None, owner: type) -> Self: ...
    @overload
    def __get__(self, task: Task[Any, Any], owner: type) -> KeyedState: ...
    def __get__(self, task: Task[Any, Any] | None, owner: type) -> State | KeyedState:
        if task is None:
            return self
        running: KeyedState | None = task.__dict__.get(RUNNING)
        if running is None:
            raise GraphError(
                f"{owner.__name__}.state exists only while Drivetrain calls a hook",
                remedy="use it in hooks",
            )
        return running


RUNNING = "__running_state"
"""The attribute of an instance in which its runner puts the state."""


@dataclass(frozen=True)
class PersistentDeclaration:
    """A persistent Task in the graph: its state, and the columns of its key, if any."""

    state: State
    keys: tuple[str, ...]
    version: int = 1
    migrate: Callable[[int, Any], Any] | None = None

    @property
    def content_text(self) -> str:
        """What the bytes of a state are, which another version may change."""
        return self.state._content_text

    @property
    def rules_text(self) -> str:
        """The key, the window and the step, which stay."""
        return ", ".join([f"by {', '.join(self.keys) or 'its own key'}", *self.state._times_text])

    def __str__(self) -> str:
        version = "" if self.version == 1 else f", version {self.version}"
        return f"{self.state} by {', '.join(self.keys) or 'its own key'}{version}"


class PersistentTask(Task[In, Out], Generic[In, Out]):
    """Base class of Tasks with a state for each key; see the module.

    `key` names the column of the key, or several; or it is a method that computes the key of a message. Keys
    consist of types that columns can have.

    >>> class Spending(PersistentTask[Sale, tuple[str, float]]):
    ...     key = "item"
    ...     state = State(agg.sum("price"))
    ...
    ...     def on_change(self, key: str, value: float) -> list[tuple[str, float]]:
    ...         return [(key, value)]
    >>> sales.process(Spending)
    Stream('Spending')
    """

    stateful: ClassVar[bool] = True
    version: ClassVar[int] = 1
    """Raise it when the monoid or the codec of the state changes, and define `migrate`."""
    state: ClassVar[State]
    key: Any = None

    @classmethod
    def migrate(cls, version: int, state: Any) -> Any:
        """The state of one key as this version keeps it, from that of an older `version`.

        Called when states are read that an older version has stored, those of earlier times included.
        `state` is the state of the older monoid, not its result; if the older version had a codec, it is the
        bytes that this codec has made. The key, the window and `as_of` cannot change.

        >>> class Earned(PersistentTask[Sale, None]):
        ...     key = "item"
        ...     version = 2
        ...     state = State(agg.sum("cents"))
        ...
        ...     @classmethod
        ...     def migrate(cls, version: int, state: float) -> int:
        ...         return round(state * 100)  # version 1 had State(agg.sum("euros"))
        """
        raise NotImplementedError

    def on_next(self, message: In) -> Results[Out]:
        """Called with each message; yield or return results."""
        self.state.update(message)
        return None

    def on_change(self, key: Any, value: Any) -> Results[Out]:
        """Called once a batch for each key that changed, with its value."""

    def on_window(self, key: Any, start_ms: int, end_ms: int, value: Any) -> Results[Out]:
        """Called for each key of a window that has ended, with its last value."""

    def on_timer(self, key: Any, at_ms: int) -> Results[Out]:
        """Called once for each timer of a key, when the clock has reached it, or when the input has ended."""


def merges_only(kind: type) -> bool:
    """Whether a persistent Task only merges messages into its state."""
    return kind.on_next is PersistentTask.on_next  # type: ignore[attr-defined]


def persistence(kind: type[PersistentTask[Any, Any]]) -> PersistentDeclaration:
    """The declaration of a persistent Task; raises `GraphError` when it is incomplete."""
    state = getattr(kind, "state", None)
    if not isinstance(state, State):
        raise GraphError(
            f"{kind.__name__} has no state",
            expected="a class attribute such as state = State(agg.count())",
            got=repr(state),
        )
    if state.window is not None and kind.on_change is not PersistentTask.on_change:
        raise GraphError(
            f"{kind.__name__} has windows, so it cannot have on_change",
            expected="on_window, which is called when one ends, or on_next",
            got="on_change",
        )
    keys = key_columns(kind)
    return PersistentDeclaration(state, keys, kind.version, migration(kind, PersistentTask))


def written_hooks(kind: type[PersistentTask[Any, Any]]) -> list[Any]:
    """The hooks with results that a persistent Task itself defines."""
    names = ("on_next", "on_change", "on_window", "on_timer", "on_clock", "on_stop")
    return [getattr(kind, n) for n in names if getattr(kind, n) is not getattr(PersistentTask, n)]


def migration(kind: Any, base: Any) -> Any:
    """The `migrate` that a Task defines, or None; raises `GraphError` if its `version` needs one."""
    has_migrate = kind.migrate.__func__ is not base.migrate.__func__
    if not isinstance(kind.version, int) or kind.version < 1 or (kind.version > 1 and not has_migrate):
        raise GraphError(
            f"{kind.__name__} of version {kind.version} cannot read the states of older versions",
            where=str(caller()),
            expected="version, a number from 1 on, and from 2 on a class method migrate, which makes the "
            "states of this version from those of an older one",
            got=f"version = {kind.version!r}, {'with' if has_migrate else 'without'} migrate",
        )
    return kind.migrate if has_migrate else None


def key_columns(kind: Any) -> tuple[str, ...]:
    """The columns of a Task's key, none if it computes the key; raises `GraphError` without a key."""
    key = kind.key
    if callable(key):
        return ()
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise GraphError(
            f"{kind.__name__} has no key",
            expected='key = "column", key = ("one", "two"), or a method key(self, message)',
            got=repr(key),
        )
    return names
