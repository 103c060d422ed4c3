"""Reads states, dead letters and late messages of an application through a console, for commands.

Without a console these commands read the state directory, which a user of a console cannot reach.

Called by `cli.inspection.state`, `cli.inspection.dead_letters` and `cli.inspection.late_messages`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from drivetrain.api.moments import moment_text
from drivetrain.config import Config
from drivetrain.config.catalog import client as keys
from drivetrain.core.figures import show_clock
from drivetrain.runtime.late_samples import LateMessage, Position
from drivetrain.terminal import Console, Table

if TYPE_CHECKING:
    from drivetrain.console.answers.states import StateEntries, StateEntry

_PAGE: Final = 200
_MOST_STATES: Final = 1_000

P = TypeVar("P", bound=msgspec.Struct)
T = TypeVar("T")


def is_through_console(config: Config, state_dir: str | None) -> bool:
    """Whether the configuration names a console, and no state directory was given."""
    return bool(config[keys.CONSOLE]) and state_dir is None


def read_states(
    config: Config, app: str, processor: str, key: str | None, at: str | None, limit: int
) -> StateEntries:
    """The states of a processor; raises the console's refusal."""
    from drivetrain.cluster.client.console_connection import ConsoleConnection
    from drivetrain.console.answers.states import StateEntries

    query = {"limit": str(min(limit, _MOST_STATES))}
    query |= {name: value for name, value in (("key", key), ("at", at)) if value is not None}
    return ConsoleConnection(config).get(
        f"{_of(app)}/states/{quote(processor, safe='')}", query, StateEntries
    )


def states_as_data(states: StateEntries) -> dict[str, Any]:
    """The states for `--json`, as without a console."""
    at = None if states.at_ms is None else moment_text(states.at_ms)
    listed = [_state_as_data(one) for one in states.states]
    return {"processor": states.processor, "clock_ms": states.clock_ms, "at": at, "states": listed}


def _state_as_data(one: StateEntry) -> dict[str, Any]:
    window = {} if one.start_ms is None else {"window": {"start_ms": one.start_ms, "end_ms": one.end_ms}}
    return {"key": _value(one.key), **window, "value": _value(one.value)}


def _value(text: str) -> Any:
    """The value of a JSON text; the text itself if it is not JSON, or was cut."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def show_states(states: StateEntries, console: Console) -> None:
    """Print states as a table, with the application time that they belong to."""
    table = Table()
    is_windowed = any(one.start_ms is not None for one in states.states)
    table.add_names("key", *(["window (UTC)"] if is_windowed else []), "value")
    for one in states.states:
        start_ms, end_ms = one.start_ms, one.end_ms
        window: list[str] = []
        if start_ms is not None and end_ms is not None:
            window = [f"{moment_text(start_ms)} – {moment_text(end_ms)}"]
        table.add_row(one.key, *window, one.value)
    if states.states:
        console.print(table)
    when = f"now; the clock is at {show_clock(states.clock_ms)} UTC"
    if states.at_ms is not None:
        when = f"as of {moment_text(states.at_ms)}"
    console.print(f"{len(states.states)} of {states.count} states of {states.processor}, {when}")


def read_dead_letters(config: Config, app: str, limit: int) -> tuple[list[Mapping[str, Any]], int, int]:
    """The newest dead letters, the oldest of them first; how many are kept, and how many were dropped."""
    from drivetrain.console.answers.dead_letters import DeadLetters

    counts = [0, 0]

    def items(page: DeadLetters) -> Iterator[Mapping[str, Any]]:
        counts[:] = [page.count, page.dropped]
        for letter in page.letters:
            timestamp = None if letter.timestamp_ms is None else moment_text(letter.timestamp_ms)
            yield {
                "operator": letter.processor,
                "message": letter.message,
                "file": letter.file,
                "line": letter.line,
                "error": letter.error,
                "timestamp": timestamp,
            }

    found = _newest(config, app, "dead-letters", DeadLetters, items, limit)
    return found[::-1], counts[0], counts[1]


def read_late_messages(config: Config, app: str, limit: int) -> list[tuple[Position, LateMessage]]:
    """The newest samples of late messages, the newest first."""
    from drivetrain.console.answers.late_messages import LateMessages

    def items(page: LateMessages) -> Iterator[tuple[Position, LateMessage]]:
        for sample in page.samples:
            fields = {name: getattr(sample, name) for name in sample.__struct_fields__ if name != "fragment"}
            yield (sample.stored_ms, sample.fragment, 0), LateMessage(number=0, **fields)

    return _newest(config, app, "late-messages", LateMessages, items, limit)


def _newest(
    config: Config,
    app: str,
    kind: str,
    answer: type[P],
    items: Callable[[P], Iterator[T]],
    limit: int,
) -> list[T]:
    """The first `limit` items of a list, page by page."""
    from drivetrain.cluster.client.console_connection import ConsoleConnection

    line, found = ConsoleConnection(config), list[T]()
    query: dict[str, str] = {}
    while len(found) < limit:
        query["limit"] = str(min(_PAGE, limit - len(found)))
        page = line.get(f"{_of(app)}/{kind}", query, answer)
        found += items(page)
        following: str | None = getattr(page, "next", None)
        if following is None:
            break
        query["cursor"] = following
    return found


def _of(app: str) -> str:
    return f"applications/{quote(app, safe='')}"
