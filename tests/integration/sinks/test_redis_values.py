"""Batches of Spark in Redis: values of every type, the checks of connectors, and a whole application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from redis_batches import PASSWORD, opened

from drivetrain import Application, agg, run, sinks, sources
from drivetrain.config import Config
from drivetrain.errors import OutputError
from drivetrain.testing import check_sink
from redis_server import RedisServer

EVERY_TYPE = """
    select 'a' as k, cast(1 as byte) as tiny, 4L as large, cast(1.5 as float) as narrow, 2.5D as wide,
        cast(12.340 as decimal(10, 3)) as exact, 'naïve "quoted"' as text, '' as empty,
        unhex('00ff5c') as bytes, true as yes, timestamp '2024-02-29T23:59:59.123456Z' as instant,
        timestamp_ntz '2024-02-29T12:00:00' as wall, date '1969-12-31' as day, array(1, 2) as several,
        named_struct('a', 1, 'b', 'x') as record, interval '1' day as span, cast(null as int) as nothing
"""
PLAIN = {
    "k": "a", "tiny": "1", "large": "4", "narrow": "1.5", "wide": "2.5", "exact": "12.340",
    "text": 'naïve "quoted"', "empty": "", "yes": "true", "instant": "2024-02-29T23:59:59.123456Z",
    "wall": "2024-02-29T12:00:00.000000", "day": "1969-12-31", "several": "[1,2]",
    "record": '{"a":1,"b":"x"}', "span": "INTERVAL '1' DAY",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _empty(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, server.password)
    server.client().flushall()


def test_values_of_every_type_arrive_as_text(
    spark: SparkSession, server: RedisServer, tmp_path: Path
) -> None:
    rows = spark.sql(EVERY_TYPE)
    assert opened(server, tmp_path / "h", id="h", key="k").write(rows, 0) == 1
    assert opened(server, tmp_path / "s", id="s", stream="s").write(rows, 0) == 1
    assert opened(server, tmp_path / "j", id="j", key="k", prefix="j:", value="json").write(rows, 0) == 1
    client = server.client(decode_responses=False)
    found = {name.decode(): value for name, value in client.hgetall("a").items()}
    assert found.pop("bytes") == b"\x00\xff\\"
    assert {name: value.decode() for name, value in found.items()} == PLAIN
    entry = client.xrange("s")[0][1]
    assert {name.decode() for name in entry} == {*PLAIN, "bytes"}
    text = json.loads(client.get("j:a"))
    assert list(text) == ["k", *[n for n in rows.columns if n != "k"]]
    assert text["exact"] == 12.34
    assert text["nothing"] is None
    assert text["record"] == {"a": 1, "b": "x"}
    assert text["instant"] == "2024-02-29T23:59:59.123456Z"


def test_rows_that_do_not_suit_are_errors_before_the_batch_is_kept(
    spark: SparkSession, server: RedisServer, tmp_path: Path
) -> None:
    writer = opened(server, tmp_path / "h", key="k", value="json")
    with pytest.raises(OutputError, match="some rows have no key"):
        writer.prepare(spark.sql("select 1 as k union all select null"), 0)
    with pytest.raises(OutputError, match="the sink has no column k"):
        writer.prepare(spark.range(1), 0)
    assert writer.prepared() == []
    stream = opened(server, tmp_path / "s", stream="s")
    with pytest.raises(OutputError, match="some rows have only nulls"):
        stream.prepare(spark.sql("select cast(null as int) as a, cast(null as string) as b"), 0)
    assert stream.write(spark.range(0), 0) == 0


def test_the_sink_passes_the_checks_of_connectors(spark: SparkSession, server: RedisServer) -> None:
    client = server.client()
    url = server.url(PASSWORD)

    def of_stream() -> list[Any]:
        return [(fields["key"], int(fields["n"])) for _, fields in client.xrange("events")]

    check_sink(lambda: sinks.redis(url, stream="events"), of_stream, spark=spark)


@pytest.mark.usefixtures("spark")
@pytest.mark.nightly("test_redis_sink")
def test_an_application_writes_its_results_once_however_often_it_is_run(
    server: RedisServer, tmp_path: Path
) -> None:
    def application() -> Application:
        app = Application("words")
        words = app.read(
            sources.generate(rows=1_000, every="1 s", columns={"word": "concat('w', id % 5)", "n": "id % 7"})
        )
        counts = words.group_by("word").aggregate(step="counts", messages=agg.count(), total=agg.sum("n"))
        counts.sink(sinks.redis(server.url(PASSWORD), key="word", prefix="count:"), name="to_counts")
        words.sink(sinks.redis(server.url(PASSWORD), stream="words"), name="to_stream")
        return app

    config = Config.load(None, {}, {"state.dir": str(tmp_path / "state"), "run.max-batch-rows": "200"})
    client = server.client()
    for _ in range(2):
        run(application(), config)
        assert client.xlen("words") == 1_000
        assert len(client.keys("count:*")) == 5
        assert sum(int(client.hget(key, "messages")) for key in client.keys("count:*")) == 1_000
