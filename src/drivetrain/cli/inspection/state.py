"""`drivetrain state`: shows the states of an application, whether or not it runs.

Called by `cli.main`, and by `cli.inspection.state_process` for the console. Reads the state directory; in a
cluster that is the shared one. Starts its own small Spark, because only Spark can read its state files.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drivetrain.api.moments import moment_text
from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.cluster_access import ConsoleOption, with_masters
from drivetrain.cli.inspection.console_queries import (
    is_through_console,
    read_states,
    show_states,
    states_as_data,
)
from drivetrain.cli.json_output import print_json
from drivetrain.cli.standard_output import standard_output_reserved
from drivetrain.config import split_sets
from drivetrain.core.figures import show_clock
from drivetrain.errors import UserError
from drivetrain.terminal import Console, Table

if TYPE_CHECKING:
    from drivetrain.spark.state.state_query import StateEntry, States


def state_command(
    app: Annotated[str, typer.Argument(metavar="APP", help="The application: its name, or its id.")],
    processor: Annotated[str, typer.Argument(metavar="PROCESSOR", help="Id of the processor, as in `plan`.")],
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="K", help="Show only this key; for several columns, a JSON list."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help='Exactly as of this application time (UTC); "checkpoint": of the newest checkpoint.',
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of states to show.")] = 50,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    console: ConsoleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the states of a processor: current, or exactly as of an application time."""
    with standard_output_reserved() as output:
        given = parse_sets(sets, state_dir)
        split_sets(given, ())
        config = load_config(config_file, with_masters(given, None, console))
        if is_through_console(config, state_dir):
            read = read_states(config, app, processor, key, at, limit)
            if as_json:
                output.write(json.dumps(states_as_data(read)) + "\n")
            else:
                show_states(read, Console(file=output))
            return
        from drivetrain.spark.entry_points import state

        states = state(app, processor, config)
        found, at = found_states(states, key, at)
        if as_json:
            print_json(as_data(states, found, at), output, default=str)
            return
    show(states, found, at, limit, Console(file=sys.stdout))


def found_states(states: States, key: str | None, at: str | None) -> tuple[list[StateEntry], str | None]:
    """The states that the options `--key` and `--at` ask for, and the time that "checkpoint" stands for."""
    at = moment_text(states.checkpoint_ms()) if at == "checkpoint" else at
    return (states.items(at) if key is None else of_key(states, key, at)), at


def of_key(states: States, written: str, at: str | None) -> list[StateEntry]:
    """The states of a key given as text; raises `UserError` when no interpretation of it has any."""
    from drivetrain.spark.state.state_query import StateEntry

    for key in readings(written):
        value = states.get(key, at)
        if isinstance(value, dict) and all(isinstance(window, tuple) for window in value):
            return [StateEntry(key, inner, window) for window, inner in sorted(value.items())]
        if value is not None:
            return [StateEntry(key, value)]
    raise UserError(
        f"no state has the key {written!r}",
        where=states.processor,
        expected="a key that has a state; without --key all are shown",
        got=written,
    )


def readings(written: str) -> list[Any]:
    """The possible values of a key given as text: the text itself, then its value as JSON."""
    try:
        read = json.loads(written)
    except json.JSONDecodeError:
        return [written]
    return [written, tuple(read) if isinstance(read, list) else read]


def as_data(states: States, found: list[StateEntry], at: str | None) -> dict[str, Any]:
    """The states for `--json`."""
    listed = []
    for one in found:
        window = None if one.window is None else {"start_ms": one.window[0], "end_ms": one.window[1]}
        key, value = plain(one.key), plain(one.value)
        listed.append({"key": key, **({} if window is None else {"window": window}), "value": value})
    return {"processor": states.processor, "clock_ms": states.clock_ms(), "at": at, "states": listed}


def plain(value: Any) -> Any:
    """A key or value as JSON has it: dataclasses as objects, keys of mappings as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _text(key): plain(inner) for key, inner in value.items()}
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def _text(key: Any) -> str:
    """A key of a mapping, as JSON unless its type has a text of its own."""
    return json.dumps(plain(key), default=str, ensure_ascii=False).strip('"')


def show(states: States, found: list[StateEntry], at: str | None, limit: int, console: Console) -> None:
    """Print states as a table, with the application time that they belong to."""
    table = Table()
    is_windowed = any(one.window is not None for one in found)
    table.add_names("key", *(["window (UTC)"] if is_windowed else []), "value")
    for one in found[:limit]:
        key = ", ".join(map(str, one.key)) if isinstance(one.key, tuple) else str(one.key)
        window = (
            [] if one.window is None else [f"{moment_text(one.window[0])} – {moment_text(one.window[1])}"]
        )
        table.add_row(key, *window, str(one.value))
    if found:
        console.print(table)
    when = f"as of {at}" if at is not None else f"now; the clock is at {show_clock(states.clock_ms())} UTC"
    of = f"{min(limit, len(found))} of {len(found)}" if len(found) > limit else str(len(found))
    console.print(f"{of} states of {states.processor}, {when}")
