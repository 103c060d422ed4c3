"""An application whose checkpoints are in an object store, and its results there and in a database.

It is killed, and its disk is deleted, or another process continues it. Its source is paced.
"""

from drivetrain import Application, agg, sinks, sources

app = Application("outlived")
rows, keys, bucket = int(app.setting("rows")), int(app.setting("keys")), app.setting("bucket")
made = app.read(
    sources.generate(rows=rows, rate_per_s=150, columns={"key": f"cast(id % {keys} as string)"}),
    name="made",
)
made.sink(sinks.parquet(f"{bucket}/each"), name="each")
made.sink(sinks.sqlite(app.setting("database"), "each_row"), name="rows")
made.sink(sinks.delta(f"{bucket}/table"), name="table")
counts = made.group_by("key").aggregate(step="count", n=agg.count())
counts.sink(sinks.parquet(f"{bucket}/counts"), name="counts")
