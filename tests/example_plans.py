"""Applications of several shapes, as plans, for the tests of pictures and printouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from drivetrain.api import Application, Task, agg, sinks, sources, windows
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan


def describe(line: str) -> str:
    return line


class Alarm(Task[str, str]):
    stateful = True

    def on_next(self, message: str) -> Iterable[str]:
        yield message


def flights() -> Plan:
    """Two windows in a row, a stateless branch, a table that is joined, four sinks."""
    app = Application("flights")
    known = app.read(sources.parquet("/data/flights"), name="flights")
    departures = known.event_time("departed", max_disorder="6 h", name="departures")
    airlines = app.table(
        sources.csv("/data/airlines.csv", schema="carrier string, name string"), name="airlines"
    )
    late = departures.filter("delay > 180", name="very_late").map(describe, name="described")
    late.sink(sinks.json("out/very_late"), name="very_late_out")
    hourly = (
        departures.group_by("origin")
        .window(windows.tumbling("1 h"))
        .aggregate(step="by_hour", delay=agg.mean("delay"), flights=agg.count())
    )
    hourly.sink(sinks.parquet("out/hourly"), name="hourly_out")
    daily = (
        hourly.group_by("carrier")
        .window(windows.tumbling("1 d"))
        .aggregate(step="by_day", worst=agg.max("delay"))
    )
    daily.join(airlines, on="carrier", name="with_names").sink(sinks.csv("out/daily"), name="daily_out")
    daily.sink(sinks.console(), name="console")
    return plan(app.graph())


def wordcount() -> Plan:
    """The common job: one fragment."""
    app = Application("wordcount")
    lines = app.read(sources.text("/some/text"), name="lines")
    words = lines.flat_map(str.split, returns=str, name="words")
    words.group_by(word="value").count(name="counts").sink(sinks.parquet("out"), name="out")
    return plan(app.graph())


def wide() -> Plan:
    """One source that feeds seven windows, which meet again in a union."""
    app = Application("wide")
    events = app.read(sources.generate(rate_per_s=10), name="events")
    made = [
        events.group_by("value")
        .window(windows.sliding(f"{n} min", "1 min"))
        .aggregate(step=f"over_{n}_minutes", n=agg.count())
        for n in range(2, 9)
    ]
    made[0].union(*made[1:], name="together").sink(sinks.none(), name="nowhere")
    made[3].process(Alarm, name="alarm", returns=str).sink(sinks.console(), name="shown")
    return plan(app.graph())


def long_names() -> Plan:
    """Names and texts that do not fit, and characters that XML must escape."""
    app = Application("long_names")
    name = "a_processor_with_a_name_that_goes_on_for_very_much_longer_than_any_box_should_be_wide"
    source = app.read(sources.text("/data/<&>'\"/" + "deep/" * 30), name=name)
    condition = "value < 'a' and value <> '&' and " * 5 + "true"
    source.filter(condition, name="WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW").sink(sinks.none(), name="m" * 60)
    return plan(app.graph())


PLANS: dict[str, Callable[[], Plan]] = {
    "flights": flights,
    "wordcount": wordcount,
    "wide": wide,
    "long names": long_names,
}
