"""The contents of a Kafka sink's topic: messages of committed transactions, as rows.

They are read by a client that is independent of Spark. Called by `checking`, also while an application runs.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from functools import cache
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from topic_reading import messages

from .program_kafka import KAFKA
from .recipe import WINDOW, KeyType, Target

TIMES = ("at", *WINDOW)


class Address:
    """A broker that was started elsewhere; `admin` is a client for its topics."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@cache
def _address(bootstrap: str) -> Address:
    return Address(bootstrap)  # kept, since an endless application is checked many times a minute


def rows_of_topic(topic: str, target: Target, key_type: KeyType) -> list[dict[str, Any]]:
    """The rows that were sent to a topic; none if there is no such topic yet."""
    address = _address(os.environ[KAFKA])
    if topic not in address.admin.list_topics(timeout=30).topics:
        return []
    return [row_of(m, target, key_type) for m in messages(address, topic)]


def row_of(message: Message, target: Target, key_type: KeyType) -> dict[str, Any]:
    """A message's columns. If its Kafka key differs from the row's, it replaces that, so the row equals no
    other."""
    key, value = message.key(), message.value()
    text = None if key is None else key.decode()
    told = None if value is None else json.loads(value)
    if target.how == "number with key":
        return {"key": int(text) if text is not None and key_type == "bigint" else text, "n": told}
    assert isinstance(told, dict), f"not a row: {value!r}"
    row = {name: _moment(part) if name in TIMES else part for name, part in told.items()}
    wanted = None if target.how == "row" or row["key"] is None else str(row["key"])
    return row if text == wanted else {**row, "key": ("of the message", text)}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
