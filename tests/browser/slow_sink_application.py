"""An application with two fragments, whose sink writes nothing until there is a file `go`."""

import time
from pathlib import Path

from drivetrain import Application, agg, sinks, sources, windows

app = Application("tills")
GO = Path(app.setting("go"))


def write_slowly(batch, number):
    while not GO.exists():
        time.sleep(0.05)


sales = app.read(
    sources.generate(
        rows=600_000, every="1 min", columns={"till": "concat('till-', cast(id % 3 as string))"}
    ),
    name="sales",
)
hourly = sales.group_by("till").window(windows.tumbling("1 h")).aggregate(step="hourly", count=agg.count())
daily = (
    hourly.group_by("till").window(windows.tumbling("1 d")).aggregate(step="daily", total=agg.sum("count"))
)
daily.sink(sinks.batches(write_slowly), name="warehouse")
