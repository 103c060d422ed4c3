from __future__ import annotations

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.core.plan.planner import plan
from drivetrain.errors import GraphError

SECRET = "hunter2-and-more"


def test_the_plan_prints_the_guarantee_its_reason_and_the_target_but_no_secret() -> None:
    app = Application("told")
    rows = app.read(sources.generate(rows=3))
    options = {"sasl.jaas.config": SECRET, "security.protocol": "SASL_SSL"}
    rows.sink(sinks.kafka("broker:9092", "all", options=options))
    rows.sink(sinks.kafka("broker:9092", "fast", guarantee="at least once", options=options))
    made = plan(app.graph())
    said = {sink.target: (sink.guarantee, sink.why) for sink in made.sinks}
    assert said["KafkaSink all at broker:9092"][0] == "exactly once"
    assert "transaction" in said["KafkaSink all at broker:9092"][1]
    assert said["KafkaSink fast at broker:9092"][0] == "at least once"
    assert made.guarantee == "at least once"
    assert SECRET not in repr([node.operation for node in app.graph().nodes.values()])
    assert SECRET not in str(made.as_dict())


def test_rows_may_name_their_topic_when_there_is_one_for_the_others() -> None:
    assert sinks.kafka("b:1", "rest", topic_column="to").name == "by to or rest at b:1"
    assert sinks.kafka("b:1", topic_column="to", guarantee="at least once").name == "by to at b:1"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"bootstrap": ""}, "address of a broker"),
        ({"topic": None}, "needs a topic"),
        ({"topic": None, "topic_column": "to"}, "known in advance"),
        ({"topic": None, "topic_column": "to", "create": 2, "guarantee": "at least once"}, "created"),
        ({"format": "xml"}, "unknown format"),
        ({"format": "avro"}, "schema= do not go together"),
        ({"schema": "{}"}, "schema= do not go together"),
        ({"format": "protobuf", "schema": "p.M"}, "descriptors= do not go together"),
        ({"guarantee": "sometimes"}, "unknown guarantee"),
        ({"partition": "p", "partitioner": "round robin"}, "given twice"),
        ({"create": 0}, "at least one partition"),
        ({"options": {"transactional.id": SECRET}}, "'transactional.id' cannot be given"),
        ({"options": {"kafka.sasl.jaas.config": SECRET}}, "cannot be given"),
        ({"timeout": "soon"}, "cannot read timeout"),
    ],
)
def test_arguments_that_cannot_be_meant_are_told_at_once(arguments: dict[str, object], what: str) -> None:
    given = {"bootstrap": "b:1", "topic": "t", **arguments}
    with pytest.raises(GraphError, match=what) as caught:
        sinks.kafka(**given)  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)
