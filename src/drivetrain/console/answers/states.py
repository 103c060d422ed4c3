"""The states of an application's processors.

Called by `console.planning.requests` and `console.handlers.states`.
"""

from __future__ import annotations

import msgspec


class StatefulProcessors(msgspec.Struct, frozen=True, kw_only=True):
    """The processors whose states can be asked for, by name."""

    processors: tuple[str, ...]


class StateEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A state: its key and its value as JSON, and its window [`start_ms`, `end_ms`), null without windows.

    What is no JSON is the text that Python prints. Of a long text the end is missing; then `is_cut` is true.
    All of it is data of users: show it as text.
    """

    key: str
    value: str
    start_ms: int | None
    end_ms: int | None
    is_cut: bool


class StateEntries(msgspec.Struct, frozen=True, kw_only=True):
    """The first of the `count` states of a processor, by window and key.

    They are those as of the application time `at_ms`, null: the present ones; then the processor's clock is
    at `clock_ms`. Times from `first_ms` to `last_ms` that are multiples of `step_ms` can be asked for, and
    that of the newest checkpoint; null when there are none.
    """

    processor: str
    at_ms: int | None
    clock_ms: int | None
    count: int
    states: tuple[StateEntry, ...]
    first_ms: int | None
    last_ms: int | None
    step_ms: int | None
