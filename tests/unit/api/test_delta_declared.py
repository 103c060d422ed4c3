from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from drivetrain.api import sinks
from drivetrain.errors import GraphError


def test_a_sink_says_its_table_its_guarantee_and_why() -> None:
    appending = sinks.delta(Path("tables/sales"), partition_by="country", timeout="2 s")
    assert (appending.name, appending.guarantee) == ("tables/sales", "exactly once")
    assert (appending.partition_by, appending.timeout_ms) == (("country",), 2000)
    assert "one commit of the table" in appending.why
    upserting = sinks.delta("t", mode="upsert", key=["a", "b"], newest="at")
    assert "by key (a, b)" in upserting.why
    assert pickle.loads(pickle.dumps(upserting)) == upserting
    assert not sinks.needs_transactions(appending)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": ""}, "not a place"),
        ({"path": "ftp://bucket/t"}, "not a place"),
        ({"partition_by": "day(at)"}, "divided by columns"),
        ({"mode": "overwrite"}, "unknown mode"),
        ({"mode": "upsert"}, "upsert needs a key"),
        ({"key": "id"}, "key and newest are for replacing rows"),
        ({"newest": "at"}, "key and newest are for replacing rows"),
        ({"mode": "upsert", "key": ["a", "a"]}, "a key has each column once"),
        ({"partition_by": ["a", "a"]}, "partition_by has each column once"),
        ({"on_fresh": "delete"}, "unknown on_fresh"),
        ({"timeout": "soon"}, "timeout"),
    ],
)
def test_settings_that_make_no_sense_are_refused_where_they_are_written(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        sinks.delta(**{"path": "t", **settings})
