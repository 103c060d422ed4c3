"""The Kafka examples, from topic to topic."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import Broker
from kafka_runs import send
from topic_reading import messages

from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.spark.entry_points import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
LINES = ["to be or not", "to be", "", "  that is the question ", "to"]


@pytest.mark.nightly("test_kafka_sink_once and test_kafka_source")
def test_words_are_counted_from_topic_to_topic(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    lines = broker.create(f"{topic}-lines")
    counts = broker.create(f"{topic}-counts", 2, cleanup_policy="compact")
    send(broker, lines, [{"value": line.encode()} for line in LINES])
    settings = {"bootstrap": broker.bootstrap, "input": lines, "output": counts, "until": "latest"}
    application = load_application(str(EXAMPLES / "kafka_wordcount.py"), settings)
    result = run(application, Config.load(None, {}, {"state.dir": str(tmp_path / "state")}))
    result.check()
    assert result.outcome is RunOutcome.FINISHED
    newest = {(m.key() or b"").decode(): json.loads(m.value() or b"") for m in messages(broker, counts)}
    wanted = Counter(word for line in LINES for word in line.split())
    assert {word: row["count"] for word, row in newest.items()} == dict(wanted)


@pytest.mark.nightly("random applications copy topics")
def test_a_topic_is_copied_with_its_keys_and_each_copy_says_where_it_came_from(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    lines, copies = broker.create(f"{topic}-lines", 2), broker.create(f"{topic}-copies", 3)
    sent = [{"key": b"k%d" % n, "value": b"\xff%d" % n, "partition": n % 2} for n in range(10)]
    send(broker, lines, [*sent, {"key": b"gone", "value": None, "partition": 0}])
    settings = {"bootstrap": broker.bootstrap, "input": lines, "output": copies, "until": "latest"}
    application = load_application(str(EXAMPLES / "kafka_readwrite.py"), settings)
    run(application, Config.load(None, {}, {"state.dir": str(tmp_path / "state")})).check()
    found = {message.key(): message for message in messages(broker, copies)}
    assert {key: m.value() for key, m in found.items()} == {
        **{message["key"]: message["value"] for message in sent},
        b"gone": None,
    }
    assert dict(found[b"k3"].headers() or []) == {"came-from": f"{lines}/1/1".encode()}
    assert len(messages(broker, copies)) == 11
