"""A Kafka source as users declare it: what is refused, and what it says of itself."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from drivetrain import sources
from drivetrain.errors import GraphError


def declared(**arguments: Any) -> sources.Kafka:
    return sources.kafka(**{"bootstrap": "b:9092", "topic": "t", **arguments})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"bootstrap": ""}, "address of a broker"),
        ({"topic": None}, "needs topics"),
        ({"pattern": "t.*"}, "needs topics"),
        ({"topic": None, "pattern": "("}, "not a regular expression"),
        ({"format": "xml"}, "unknown format"),
        ({"format": "json"}, "needs a schema"),
        ({"schema": "n long"}, "has no schema"),
        ({"format": "protobuf", "schema": "m.M"}, "its description"),
        ({"columns": ["size"]}, "unknown column"),
        ({"start": "yesterday"}, "start is no place"),
        ({"start": dt.datetime(2024, 1, 1)}, "start is no place"),  # noqa: DTZ001 - that is what is refused
        ({"end": {0: -1}}, "end has an offset that is none"),
        ({"options": {"group.id": "g"}}, "'group.id' cannot be given"),
        ({"options": {"kafka.ssl.protocol": "x"}}, "cannot be given"),
        ({"on_data_loss": "ignore"}, "unknown on_data_loss"),
        ({"wire": "avro"}, "unknown wire"),
        ({"wire": "confluent"}, "has no header of Confluent's"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_built(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        declared(**arguments)


def test_a_time_without_a_zone_is_utc_and_offsets_may_name_topics() -> None:
    assert declared(start="2024-01-01").start.ms == 1_704_067_200_000
    assert declared(start="2024-01-01T01:00:00+01:00").start.ms == 1_704_067_200_000
    assert declared(end={"a": {1: 5}, "b": {0: 7}}).end.offsets == (("a", 1, 5), ("b", 0, 7))


def test_with_an_end_it_is_bounded() -> None:
    assert not declared().bounded
    assert declared(end="latest").bounded


def test_kafkas_timestamp_as_event_time_is_a_column_without_being_asked_for() -> None:
    assert declared(event_time="timestamp").columns == ("timestamp",)


def test_options_are_not_shown_and_make_no_other_source() -> None:
    with_password = declared(options={"ssl.key.password": "hush"})
    assert "hush" not in repr(with_password)
    assert "hush" not in with_password.name
    assert with_password == declared()
