"""An application of two fragments that watches a place, in which its results are, too.

A test gives it messages, and kills it or its machine.
"""

from drivetrain import Application, agg, sinks, sources, windows

app = Application("watching")
place = app.setting("place")
made = app.read(
    sources.json(f"{place}/in", schema="id long, key string, at timestamp", event_time="at", watch=True),
    name="made",
)
made.sink(sinks.parquet(f"{place}/each"), name="each")
minutes = made.cut().group_by("key").window(windows.tumbling("1 min"))
minutes.aggregate(step="count", n=agg.count()).sink(sinks.parquet(f"{place}/counts"), name="counts")
