"""An application of two fragments whose state is in an object store, and its results there.

The worker that runs it is killed with its directory. Its source is paced.
"""

from drivetrain import Application, agg, sinks, sources

app = Application("moved")
rows, keys, bucket = int(app.setting("rows")), int(app.setting("keys")), app.setting("bucket")
made = app.read(
    sources.generate(rows=rows, rate_per_s=100, columns={"key": f"cast(id % {keys} as string)"}),
    name="made",
)
made.sink(sinks.parquet(f"{bucket}/each"), name="each")
if app.setting("database"):
    made.sink(sinks.sqlite(app.setting("database"), "each_row"), name="rows")
halves = made.cut().filter("id % 2 = 0")
halves.sink(sinks.parquet(f"{bucket}/even"), name="even")
counts = halves.group_by("key").aggregate(step="count", n=agg.count())
counts.sink(sinks.parquet(f"{bucket}/counts"), name="counts")
