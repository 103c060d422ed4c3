"""Nexmark: each query of `examples/nexmark.py` beside the same query in plain PySpark and Flink SQL.

PySpark's query reads the same files with Drivetrain's Spark settings, and writes Parquet: it appends what it
can append; the rest is its complete result, rewritten with each batch. Flink SQL reads them, too
(`nexmark_flink`). Every result is compared with a batch query in Polars, so a query that a peer cannot do, or
not completely, is named in `IMPOSSIBLE`.

    python -m benchmarks.nexmark [--quick] [--json] [--rounds N] [--only CONTENDER] [--query q5 ...]
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks import data, nexmark_flink, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, WrongResultError, arguments, run_job
from benchmarks.nexmark_expected import QUERIES, expected, read, sellers_at_once
from benchmarks.report import number
from benchmarks.results import read_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "nexmark.py"
WARM_EVENTS, EVENTS, QUICK_EVENTS = 20_000, 5_000_000, 100_000
QUERY = "BENCH_NEXMARK_QUERY"
"""The environment variable that tells the process of a contender which query it measures."""

IMPOSSIBLE = {
    "q4": "an aggregation without a window follows another one",
    "q5": "the last windows stay open: no message comes after the end of the input",
    "q6": "two Tasks in a row, each with state in the order of event time",
    "q7": "the best bid of a window, not its price alone, is a join of the stream with its own windows",
    "q8": "the last windows stay open, as in q5",
    "q9": "an aggregation without a window follows a join",
    "q11": "the last sessions stay open, as in q5",
    "q19": "the ten best of each key need a rank, which streams do not have",
}
"""Why plain PySpark has no complete result."""


def events(count: int) -> Path:
    """The directory with persons, auctions and bids, made the first time."""
    directory = data.root() / f"nexmark-{count}"
    if not directory.is_dir():
        data.root().mkdir(parents=True, exist_ok=True)
        _example()["prepare"](directory, count)
    return directory


@cache
def _example() -> dict[str, Any]:
    from drivetrain.api.settings import given_settings

    with given_settings({"events": "50", "data": str(data.root() / "nexmark-50")}):
        return runpy.run_path(str(EXAMPLE))


def measured(scale: Scale) -> Path:
    """The events of a run."""
    return events((QUICK_EVENTS if scale.quick else EVENTS) * scale.times)


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run
    from drivetrain.code.application_file import load_application

    def application(directory: Path, out: Path) -> Any:
        sets = {"queries": os.environ[QUERY], "data": str(directory), "output": str(out)}
        return load_application(str(EXAMPLE), sets)

    _, start_s = peers.start_drivetrain(work)
    run(application(events(WARM_EVENTS), work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(measured(scale), work / "out"), peers.config(work))
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    spark, start_s = peers.start_pyspark(peers.TUNED)
    query = os.environ[QUERY]

    def done(directory: Path, out: Path, checkpoint: Path) -> None:
        frame, mode = PYSPARK[query](partial(_stream, spark, directory))
        if mode == "complete":
            peers.overwrite_until_done(frame, out / query, checkpoint)
            return
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.format("parquet").start(str(out / query)).awaitTermination()

    done(events(WARM_EVENTS), work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        done(measured(scale), work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def run_flink(scale: Scale, work: Path) -> dict[str, float]:
    return nexmark_flink.run(os.environ[QUERY], events(WARM_EVENTS), measured(scale), work)


# -- the queries in PySpark --------------------------------------------------------------------------

Read = Callable[[str], "DataFrame"]


def _stream(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    schema = spark.read.parquet(str(directory / name)).schema
    stream = spark.readStream.schema(schema).parquet(str(directory / name))
    return stream.withWatermark("date_time", "2 seconds")


def _projected(*columns: str, where: str = "true") -> Callable[[Read], tuple[DataFrame, str]]:
    return lambda stream: (stream("bids").where(where).selectExpr(*columns), "append")


def _q3(stream: Read) -> tuple[DataFrame, str]:
    local = stream("persons").where("state IN ('OR', 'ID', 'CA')")
    local = local.selectExpr("id", "name", "city", "state", "date_time AS registered")
    selling = stream("auctions").where("category = 10").selectExpr("seller", "id AS auction", "date_time")
    near = "seller = id AND date_time BETWEEN registered - INTERVAL 1 HOUR AND registered + INTERVAL 1 HOUR"
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    pairs = selling.join(local, F.expr(near))
    return pairs.select("name", "city", "state", "auction"), "append"


def _q20(stream: Read) -> tuple[DataFrame, str]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    opened = stream("auctions").where("category = 10")
    opened = opened.selectExpr("id", "date_time AS opened", "expires")
    made = stream("bids").selectExpr("auction", "bidder", "price", "date_time AS bid_at")
    near = "auction = id AND bid_at BETWEEN opened AND opened + INTERVAL 25 SECONDS AND bid_at <= expires"
    return made.join(opened, F.expr(near)).select("auction", "bidder", "price", "bid_at"), "append"


def _statistics(*keys: str) -> Callable[[Read], tuple[DataFrame, str]]:
    def query(stream: Read) -> tuple[DataFrame, str]:
        from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

        ranks: dict[str, str] = _example()["RANKS"]
        sizes = [F.count("*").alias("bids")]
        sizes += [F.count_if(F.expr(ranks[rank])).alias(f"{rank}_bids") for rank in ranks]
        for what in ("bidder", "auction"):
            sizes.append(F.size(F.collect_set(what)).alias(f"{what}s"))
            for rank, condition in ranks.items():
                some = F.collect_set(F.when(F.expr(condition), F.col(what)))
                sizes.append(F.size(some).alias(f"{rank}_{what}s"))
        return _by_day(stream).groupBy(*keys).agg(*sizes), "complete"

    return query


def _by_day(stream: Read) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    return stream("bids").withColumn("day", F.date_format("date_time", "yyyy-MM-dd"))


def _q17(stream: Read) -> tuple[DataFrame, str]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    ranks: dict[str, str] = _example()["RANKS"]
    counts = [F.count_if(F.expr(ranks[rank])).alias(f"{rank}_bids") for rank in ranks]
    prices = [
        f("price").alias(name)
        for name, f in {"lowest": F.min, "highest": F.max, "mean": F.avg, "total": F.sum}.items()
    ]
    days = _by_day(stream).groupBy("auction", "day")
    return days.agg(F.count("*").alias("bids"), *counts, *prices), "complete"


def _q18(stream: Read) -> tuple[DataFrame, str]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    last = stream("bids").groupBy("bidder", "auction").agg(F.max(F.struct("date_time", "price")).alias("l"))
    return last.select("bidder", "auction", "l.price", "l.date_time"), "complete"


_TIME = "CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END AS time"
_C = "length(extra) - length(replace(extra, 'c', '')) AS c"

PYSPARK: dict[str, Callable[[Read], tuple[DataFrame, str]]] = {
    "q0": _projected("auction", "bidder", "price", "date_time", "extra"),
    "q1": _projected("auction", "bidder", "date_time", "extra", "price * 0.908D AS price"),
    "q2": _projected("auction", "price", where="auction % 123 = 0"),
    "q3": _q3,
    "q14": _projected(
        *("auction", "bidder", "price * 0.908D AS price", _TIME, _C),
        where="price * 0.908D > 100000 AND price * 0.908D < 5000000",
    ),
    "q15": _statistics("day"),
    "q16": _statistics("channel", "day"),
    "q17": _q17,
    "q18": _q18,
    "q20": _q20,
}


# -- comparing ---------------------------------------------------------------------------------------


def check(query: str, directory: Path, work: Path) -> None:
    """Raise `WrongResultError` unless `work` has the result of a query over the events of `directory`."""
    persons, auctions, bids = read(directory)
    if query == "q11" and (work / nexmark_flink.IN_MS).exists():
        bids = bids.with_columns(pl.col("date_time").dt.truncate("1ms"))
    wanted = expected(query, (persons, auctions, bids))
    found = pl.DataFrame(read_output(work / "out" / query, []).select(wanted.column_names))
    order = [pl.col(pl.Float64).round(6)], sorted(wanted.column_names)
    frames = [frame.with_columns(order[0]).sort(order[1]) for frame in (pl.DataFrame(wanted), found)]
    if query == "q6":  # which of two sales in the same millisecond is the last one is not determined
        several = sellers_at_once(auctions, bids)
        frames = [frame.filter(~pl.col("seller").is_in(several)) for frame in frames]
    if frames[0].shape != frames[1].shape or not frames[0].cast(frames[1].schema).equals(frames[1]):
        raise WrongResultError(f"{query}: not what Polars gives: {len(found):,} rows of {len(wanted):,}")


def prepare(scale: Scale) -> None:
    data.read_files(events(WARM_EVENTS), measured(scale))


def job(query: str) -> Job:
    """The comparison of one query."""
    others = [Contender(peers.TUNED, run_pyspark)] if query in PYSPARK else []
    if query not in nexmark_flink.IMPOSSIBLE:
        others.append(Contender(peers.FLINK, run_flink, nexmark_flink.missing, reference=True))
    return Job(
        name="nexmark",
        title=f"Nexmark {query}: {_example()['QUERIES'][query].__doc__}",
        unit="events/s",
        contenders=(Contender(OURS, run_drivetrain), *others),
        prepare=prepare,
        units=lambda scale: (QUICK_EVENTS if scale.quick else EVENTS) * scale.times,
        check=lambda scale, work: check(query, measured(scale), work),
    )


def rows(results: dict[str, dict[str, Any]]) -> str:
    """A table of all queries, in Markdown."""
    names = ["query", "events/s", "seconds", "CPU s"]
    for peer in ("PySpark", "Flink SQL"):
        names += [f"{peer}: seconds", "ours / it", "CPU, ours / it"]
    lines = [f"| {' | '.join(names)} |", "|---|" + "---:|" * (len(names) - 1)]
    for query, result in results.items():
        ours = result["median"].get(OURS)
        if ours is None:
            lines.append(f"| {query} | {result['skipped'].get(OURS, 'not run').splitlines()[0]} |" + " |" * 8)
            continue
        cells = [number(ours["per_s"]), number(ours["seconds"]), number(ours["cpu_s"])]
        for name, impossible in ((peers.TUNED, IMPOSSIBLE), (peers.FLINK, nexmark_flink.IMPOSSIBLE)):
            theirs = result["median"].get(name)
            if theirs is None:
                why = impossible.get(query) or result["skipped"].get(name, "not run").splitlines()[0]
                cells += [why, "", ""]
            else:
                cells += [number(theirs["seconds"]), f"{theirs['seconds'] / ours['seconds']:.2f}"]
                cells += [f"{ours['cpu_s'] / theirs['cpu_s']:.2f}"]
        lines.append(f"| {query} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure the queries that are asked for, or be one contender of one of them."""
    parser = arguments(__doc__)
    parser.add_argument("--query", action="append", choices=list(QUERIES), help="only these")
    parser.add_argument("--contender")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--times", type=int, default=1, help="how many times the usual events (1)")
    given = parser.parse_args()
    scale = Scale(given.quick, given.times)
    if given.contender:
        run = {OURS: run_drivetrain, peers.TUNED: run_pyspark, peers.FLINK: run_flink}[given.contender]
        print("\n" + json.dumps(run(scale, given.work)), flush=True)
        return 0
    results: dict[str, dict[str, Any]] = {}
    for query in given.query or QUERIES:
        os.environ[QUERY] = query
        say: Callable[[str], None] = partial(print, query, file=sys.stderr, flush=True)
        results[query] = run_job(job(query), scale, given.rounds or 1, 1, given.only, say)
    print(json.dumps(results) if given.json else rows(results))
    return 0 if all(OURS in result["median"] for result in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
