from __future__ import annotations

import pickle
from typing import Any

import pytest

from drivetrain.api import sinks
from drivetrain.errors import GraphError


def test_a_sink_says_its_table_its_guarantee_and_why() -> None:
    sink = sinks.iceberg("shop.sales", catalog="lake", options={"uri": "x"}, partition_by="day(at)")
    assert (sink.name, sink.guarantee, sink.partition_by) == (
        "lake: shop.sales",
        "exactly once",
        ("day(at)",),
    )
    assert "one commit of the table" in sink.why
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert not sinks.needs_transactions(sink)
    sinks.iceberg("a.b", options={"token": "${TOKEN}"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table": "sales"}, "not a table of a catalog"),
        ({"table": "shop."}, "not a table of a catalog"),
        ({"catalog": ""}, "a catalog needs a name"),
        ({"options": {"token": "abcdef"}}, "token has a secret in it"),
        ({"options": {"s3.secret-access-key": "abcdef"}}, "has a secret in it"),
        ({"partition_by": "bucket(id)"}, "unknown partition"),
        ({"mode": "upsert"}, "upsert needs a key"),
    ],
)
def test_settings_that_make_no_sense_are_refused_where_they_are_written(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        sinks.iceberg(**{"table": "a.b", **settings})
