"""An application that runs only as far as the test has opened gates, so that faults hit it at known places.

There is one message per minute of event time, in stages of `STAGE` messages. A function holds those of
stage n until there is a file `gates/n`, and creates `passed/n` when it lets one through. At the first
message of stage `raises_at` it raises, once. Two windows in a row make it two fragments with a channel
between them.
"""

import time
from pathlib import Path

from drivetrain import Application, accumulator, agg, sinks, sources, windows

STAGE = 500

app = Application("gated")
ROWS = int(app.setting("rows", "5000"))
PLACE = app.setting("place", ".")
OUTPUT = app.setting("output", "out")
RAISES_AT = int(app.setting("raises_at", "-1"))

let_through = accumulator("let_through")


def open_gate(number: int) -> bool:
    stage = number // STAGE
    gate = Path(PLACE, "gates", str(stage))
    while not gate.exists():
        time.sleep(0.05)
    if stage == RAISES_AT and not Path(PLACE, "raised").exists():
        Path(PLACE, "raised").touch()
        raise ValueError("only the first attempt raises")
    Path(PLACE, "passed", str(stage)).touch()
    let_through.add(1)
    return True


numbers = app.read(
    sources.generate(
        rows=ROWS, every="1 min", columns={"number": "id", "word": "concat('w', cast(id % 3 as string))"}
    ),
    name="numbers",
)
passing = numbers.with_columns(is_open=open_gate).filter("is_open")
hourly = passing.group_by("word").window(windows.tumbling("1 h")).aggregate(step="hourly", count=agg.count())
daily = (
    hourly.group_by("word").window(windows.tumbling("1 d")).aggregate(step="daily", total=agg.sum("count"))
)
hourly.sink(sinks.csv(f"{OUTPUT}/hourly"), name="hours")
daily.sink(sinks.csv(f"{OUTPUT}/daily"), name="days")
