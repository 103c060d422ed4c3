"""What `benchmarks.cluster` submits: a few messages a second, for ever, each batch in a file of its own."""

from drivetrain import Application, sinks, sources

app = Application("steady")
output = app.setting("output", doc="a directory for the messages")
app.read(sources.generate(rate_per_s=500)).select("id", "ts").sink(sinks.parquet(output))
