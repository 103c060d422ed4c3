"""An application with file sinks of every kind in an object store, whose process is suspended and wakes."""

from drivetrain import Application, sinks, sources

app = Application("suspended")
rows, bucket = int(app.setting("rows")), app.setting("bucket")
made = app.read(
    sources.generate(rows=rows, rate_per_s=60, columns={"key": "cast(id % 3 as string)"}), name="made"
)
made.sink(sinks.parquet(f"{bucket}/plain"), name="plain")
made.sink(sinks.parquet(f"{bucket}/rolled", roll=("8 KiB", "1 h")), name="rolled")
made.sink(sinks.parquet(f"{bucket}/parted", partition_by="key"), name="parted")
