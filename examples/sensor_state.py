"""Sensors with a memory: how many readings each has sent, and its average over the last hour.

    drivetrain run examples/sensor_state.py --set input=readings/
    drivetrain state sensors counts --key north
    drivetrain state sensors averages --at 2024-05-01T10:00

Readings are CSV files with the columns at, sensor and celsius, at most a minute out of order. Both states can
be asked for while it runs, and as of every full hour; the averages of hours that are over are printed.
"""

from collections.abc import Iterable
from typing import Any

from drivetrain import Application, PersistentTask, State, agg, sinks, sources, windows


class Counts(PersistentTask[Any, Any]):
    """How many readings each sensor has sent; it emits nothing, and is there to be asked."""

    key = "sensor"
    state = State(agg.count(), as_of="1 h")


class Averages(PersistentTask[Any, tuple[str, float]]):
    """The average of each sensor over an hour, every five minutes."""

    key = "sensor"
    state = State(agg.mean("celsius"), window=windows.sliding("1 h", "5 min"), as_of="1 h")

    def on_window(
        self, sensor: str, start_ms: int, end_ms: int, average: float
    ) -> Iterable[tuple[str, float]]:
        yield sensor, average


app = Application("sensors")
readings = app.read(
    sources.csv(
        app.setting("input", doc="a directory of CSV files"),
        schema="at timestamp, sensor string, celsius double",
        event_time="at",
        max_disorder="1 min",
    ),
    name="readings",
)
readings.process(Counts, name="counts").sink(sinks.none())
readings.process(Averages, name="averages").sink(sinks.console())
