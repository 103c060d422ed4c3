"""The process in which the console reads states, which are Spark's files and objects of users' classes.

Design: the same query as `drivetrain state`. It is a module of the command line because the console knows
nothing of Spark.

Called by `console.state_reading`, which starts it; see `console.planning.processes`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from drivetrain.api.moments import moment_ms
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.config.catalog import spark as spark_keys
from drivetrain.console.answers.states import StateEntries, StateEntry
from drivetrain.console.planning.processes import serve
from drivetrain.console.planning.requests import Outcome, ReadStates

if TYPE_CHECKING:
    from drivetrain.spark.state import state_query

_SPARK: Final = {spark_keys.MASTER.name: "local[1]", spark_keys.DRIVER_MEMORY.name: "1 GiB"}


def main() -> None:
    """Carry out the request in the directory that the command line names."""
    serve(_answer, too_large="the state of the application")


def _answer(_directory: Path, request: bytes) -> Outcome:
    asked = msgspec.json.decode(request, type=ReadStates)
    sets = {run_keys.STATE_DIR.name: asked.state_dir, run_keys.WRITERS.name: asked.writers, **_SPARK}
    from drivetrain.cli.inspection.state import found_states
    from drivetrain.spark.entry_points import state

    states = state(asked.app_id, asked.processor, Config.load(None, {}, sets))
    found, at = found_states(states, asked.key, asked.at)
    times = states.times()
    return Outcome(
        states=StateEntries(
            processor=states.processor,
            at_ms=None if at is None else moment_ms(at, "at"),
            clock_ms=states.clock_ms(),
            count=len(found),
            states=tuple(_kept(one, asked.longest) for one in found[: asked.limit]),
            first_ms=None if times is None or times.newest_ms is None else times.first_ms,
            last_ms=None if times is None or times.newest_ms is None else times.last_ms,
            step_ms=None if times is None else times.step_ms,
        )
    )


def _kept(one: state_query.StateEntry, longest: int) -> StateEntry:
    start_ms, end_ms = one.window or (None, None)
    key, value = _text(one.key), _text(one.value)
    return StateEntry(
        key=key[:longest],
        value=value[:longest],
        start_ms=start_ms,
        end_ms=end_ms,
        is_cut=max(len(key), len(value)) > longest,
    )


def _text(value: Any) -> str:
    """A value as JSON, or as Python prints it; what is no Unicode is replaced."""
    from drivetrain.cli.inspection.state import plain

    try:
        text = json.dumps(plain(value), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # a value that contains itself
        text = repr(value)
    return text.encode(errors="replace").decode()


if __name__ == "__main__":
    main()
