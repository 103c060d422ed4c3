"""Sources and sinks of Kafka as program text; the program fills its topics when it is loaded first.

The broker's address is in an environment variable. The names of topics begin with that of the program's file.
"""

from __future__ import annotations

import json
from typing import Any

from .recipe import Facts, Recipe, Row, Sink, Source, Topic
from .values import instant

KAFKA = "RANDOM_APPLICATIONS_KAFKA"
"""The environment variable with the address of a Kafka broker."""

FILL = f'''
import os

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA = os.environ["{KAFKA}"]


def fill(topic, partitions, parts, sent):
    try:
        admin = AdminClient({{"bootstrap.servers": KAFKA}})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return
    in_transactions = {{}} if sent == "plainly" else {{"transactional.id": topic}}
    producer = Producer({{"bootstrap.servers": KAFKA, **in_transactions}})
    if in_transactions:
        producer.init_transactions(60)
    for part in parts:
        for aborts in [True, False] if sent == "after aborted" else [False]:
            if in_transactions:
                producer.begin_transaction()
            for partition, ms, key, value in part:
                producer.produce(topic, value, key, partition, timestamp=ms)
            assert producer.flush(60) == 0
            if in_transactions:
                producer.abort_transaction(60) if aborts else producer.commit_transaction(60)

'''


def prelude_lines(recipe: Recipe) -> list[str]:
    """The first lines of a program with Kafka."""
    return [FILL] if recipe.needs_kafka else []


def filling_lines(i: int, source: Source) -> list[str]:
    """Create the topics of source `i` and send their messages, unless the topics exist."""
    lines, count = [""], source.topic.count
    for number, name in enumerate(_names(i, source.topic)):
        lines.append(f"PARTS{i} = [")
        for file, rows in enumerate(source.files):
            told = _messages(source, rows, bad=file < source.bad)
            here = [(place // count, *more) for place, *more in told if place % count == number]
            lines += ["    [", *(f"        {message}," for message in here), "    ],"]
        places = len(range(number, max(source.places, 1), count))
        lines += ["]", f'fill({name}, {places}, PARTS{i}, "{source.topic.sent}")', ""]
    return lines


def _names(i: int, topic: Topic) -> list[str]:
    return [f'f"{{HERE.name}}-in{i}{ending}"' for ending in ("", "b")[: topic.count]]


def _messages(source: Source, rows: tuple[Row, ...], *, bad: bool) -> list[tuple[int, int, Any, Any]]:
    """For each row: its partition, Kafka's timestamp in ms, key and value."""
    made: list[tuple[int, int, Any, Any]] = [(0, 1, None, "{")] if bad else []
    return made + [_message(source.topic, row) for row in rows]


def _message(topic: Topic, row: Row) -> tuple[int, int, Any, Any]:
    ts, key, n, place = row
    told: dict[str, Any] = {} if topic.stamped else {"ts": instant(ts)}
    if not topic.keyed:
        told["key"] = dict(key) if key and isinstance(key, tuple) and isinstance(key[0], tuple) else key
    told["n"] = n
    # A tombstone is a message with null in every column.
    value = None if all(part is None for part in told.values()) else json.dumps(told)
    ms = ts // 1_000 if topic.stamped else place + 1
    return place, ms, key if topic.keyed else None, value


def source_text(recipe: Recipe, i: int, source: Source, options: str) -> str:
    """The call that makes the source; `options` are for its event time and its bad records."""
    topic = source.topic
    names = [] if topic.stamped else ["ts timestamp"]
    names += [] if topic.keyed else [f"key {recipe.key_type}"]
    schema = ", ".join([*names, "n bigint"])
    columns = [*(["key"] if topic.keyed else []), *(["timestamp"] if topic.stamped else [])]
    options += f", columns={columns}" if columns else ""
    options += f', idle_timeout="{topic.idle_ms} ms"' if topic.idle_ms else ""
    options += "" if recipe.watched else ', end="latest"'
    names = f"topics=[{', '.join(_names(i, topic))}]" if topic.count > 1 else _names(i, topic)[0]
    return f'sources.kafka(KAFKA, {names}, format="json", schema="{schema}"{options})'


def sink_text(j: int, sink: Sink, facts: Facts) -> str:
    """The calls that send a stream's columns, to follow the name of the stream."""
    target = sink.target
    timed = ".with_columns(at=timestamp())" if facts.timed and not sink.is_narrow else ""
    sends = "" if target.how == "row" else ', key="key"'
    sends += ', value="n"' if target.how == "number with key" else ""
    topic = f'f"{{HERE.name}}-{j}", create={target.partitions}, guarantee="{target.guarantee}"'
    return f"{timed}.sink(sinks.kafka(KAFKA, {topic}{sends})"
