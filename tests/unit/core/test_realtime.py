from __future__ import annotations

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.api.expressions.columns import col
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.core.plan.realtime import require_realtime, with_how
from drivetrain.errors import GraphError

AT = "localhost:9092"


def kafka_source(**given: object):
    return sources.kafka(bootstrap=AT, topic="lines", **given)


def kafka_sink(**given: object):
    return sinks.kafka(AT, "upper", **{"value": "value", "guarantee": "at least once", **given})


def planned(build, latency: str = "realtime") -> Plan:
    application = Application("fast", latency=latency)
    build(application)
    return plan(application.graph())


def require(made: Plan) -> None:
    for fragment in made.fragments:
        require_realtime(made, fragment)


def stopped_by(build) -> dict[str, str]:
    return {o.processor: o.why for found in planned(build).obstacles.values() for o in found}


def test_kafka_to_kafka_by_expressions_has_no_obstacle() -> None:
    def build(app: Application) -> None:
        app.read(kafka_source()).filter(col("value") != "").select(value="upper(value)").sink(kafka_sink())

    made = planned(build)
    require_realtime(made, made.fragments[0])
    assert [made.is_realtime(f.id) for f in made.fragments] == [True]
    assert made.as_dict()["fragments"][0]["realtime"]


def test_micro_batches_are_the_default() -> None:
    made = planned(lambda app: app.read(kafka_source()).sink(kafka_sink()), "micro-batch")
    assert not made.is_realtime(made.fragments[0].id)
    require_realtime(made, made.fragments[0])


def upper(value: str) -> str:
    return value.upper()


@pytest.mark.parametrize(
    ("build", "processor", "word"),
    [
        (
            lambda a: a.read(sources.generate(rate_per_s=1)).sink(kafka_sink(value="id")),
            "read",
            "not a Kafka source",
        ),
        (lambda a: a.read(kafka_source(end="latest")).sink(kafka_sink()), "read", "has an end"),
        (
            lambda a: a.read(kafka_source(on_bad_record="dead_letter")).sink(kafka_sink()),
            "read",
            "malformed messages aside",
        ),
        (
            lambda a: a.read(kafka_source()).sink(kafka_sink(guarantee="exactly once")),
            "sink",
            "one transaction",
        ),
        (
            lambda a: a.read(kafka_source(format="avro", schema="{}")).sink(kafka_sink()),
            "read",
            "reads avro in Python",
        ),
        (
            lambda a: a.read(kafka_source()).sink(kafka_sink(format="avro", schema="{}")),
            "sink",
            "writes avro in Python",
        ),
        (lambda a: a.read(kafka_source()).sink(sinks.none()), "sink", "not a Kafka sink"),
        (lambda a: a.read(kafka_source()).map(upper).sink(kafka_sink()), "map", "runs in Python"),
        (lambda a: a.read(kafka_source()).log().sink(kafka_sink()), "log", "log"),
        (
            lambda a: a.read(kafka_source()).group_by("value").count().sink(kafka_sink()),
            "aggregate",
            "keeps state",
        ),
    ],
)
def test_each_obstacle_names_its_processor(build, processor: str, word: str) -> None:
    found = stopped_by(build)
    assert any(id.startswith(processor) and word in why for id, why in found.items()), found


def test_channels_and_second_sinks_are_obstacles() -> None:
    def build(app: Application) -> None:
        lines = app.read(kafka_source())
        lines.sink(kafka_sink(), name="first")
        lines.sink(kafka_sink(), name="second")
        lines.cut().filter(col("value") != "").sink(kafka_sink(), name="third")

    found = stopped_by(build)
    assert "beside first" in found["second"]
    assert any("writes the channel" in why for why in found.values())
    assert any("reads the channel" in why for why in found.values())


def test_what_cannot_run_so_is_refused_unless_allowed() -> None:
    def build(app: Application) -> None:
        app.read(kafka_source()).map(upper).sink(kafka_sink())

    with pytest.raises(GraphError, match="real-time mode") as raised:
        require(planned(build))
    assert "map" in str(raised.value.got)
    allowed = planned(build, "realtime where possible")
    require(allowed)
    assert not allowed.is_realtime(allowed.fragments[0].id)


def test_an_unknown_latency_is_refused() -> None:
    with pytest.raises(GraphError, match="unknown latency"):
        Application("fast", latency="soon")  # type: ignore[arg-type]


def test_the_configuration_overrides_the_declaration() -> None:
    application = Application("fast")
    application.read(kafka_source()).sink(kafka_sink())
    assert plan(application.graph(), "realtime").latency == "realtime"


def test_at_most_once_is_an_obstacle() -> None:
    application = Application("fast", latency="realtime", delivery="at most once")
    application.read(kafka_source()).sink(kafka_sink())
    made = plan(application.graph())
    assert "at most once" in made.obstacles[made.fragments[0].id][0].why


def test_what_spark_says_of_a_function_counts() -> None:
    made = planned(lambda app: app.read(kafka_source()).map(upper).sink(kafka_sink()))
    found = with_how(made, {"map-upper": "lowered"})
    assert made.obstacles != found.obstacles
    assert found.is_realtime(found.fragments[0].id)
