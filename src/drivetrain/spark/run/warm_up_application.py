"""A small application that exercises common features: Java then knows their classes, and has compiled some.

Called by `spark.session.class_archive`, so that Java can archive the classes, as a program whose arguments
are the archive's path and a scratch directory; and by `started_ahead`, in the process that will need them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from drivetrain.api import Application, F, agg, sinks, sources, windows
from drivetrain.config import Config
from drivetrain.spark.run import embedded
from drivetrain.spark.session import class_archive, lost_java, spark_session


def _doubled(n: int) -> int:
    return max(n * 2, -n)  # Spark's transpiler cannot lower this, so it runs in Python


def small_application(scratch: Path) -> Application:
    """The application, whose input is made in `scratch`, an empty directory; its results go there as well."""
    (scratch / "in").mkdir()
    (scratch / "in" / "lines.txt").write_text("one two\ntwo three\n" * 100)
    (scratch / "in" / "lines.jsonl").write_text(
        "".join(f'{{"at": "2024-01-01T00:{i % 60:02}:00Z", "n": {i}}}\n' for i in range(100))
    )
    app = Application("warm_up")
    lines = app.read(sources.text(scratch / "in", glob="*.txt"))
    words = lines.select(word=F.explode(F.split(F.col("value"), " "))).filter("word <> ''")
    words.group_by("word").aggregate(count=agg.count()).sink(sinks.parquet(scratch / "words"))
    events = app.read(
        sources.json(scratch / "in", glob="*.jsonl", schema="at timestamp, n bigint", event_time="at")
    )
    doubled = events.select(n=_doubled)
    doubled.window(windows.tumbling("10 min")).aggregate(n=agg.sum("n")).sink(sinks.csv(scratch / "sums"))
    return app


def run_and_write(archive: Path, scratch: Path) -> None:
    """Run it, end its Java, and wait until Java has written the archive."""
    class_archive.write_at_end(archive)
    app = small_application(scratch)
    embedded.run(app, Config.load(None, {}, {"state.dir": str(scratch / "state")}))
    java = lost_java.java_process()
    spark_session.stop()
    if java is not None and java.stdin is not None:
        java.stdin.close()  # Spark's Java ends when it does, and writes the archive then
        java.wait(class_archive.TIMEOUT_S)


if __name__ == "__main__":
    run_and_write(Path(sys.argv[1]), Path(sys.argv[2]))
