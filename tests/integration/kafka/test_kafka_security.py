"""A broker that asks for a login, with and without TLS: who is let in, and what nobody may read."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from broker import Broker
from kafka_runs import KafkaRun, send
from security import SECRET, Secured
from topic_reading import values
from typer.testing import CliRunner

from drivetrain import Application, sinks, sources
from drivetrain.cli.main import app as cli
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import InputError, OutputError
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.entry_points import run

WRONG = "gu3ssed-badly"
BOUND_S = 60.0
PROTOCOLS = pytest.mark.parametrize("protocol", Secured.PROTOCOLS)

APPLICATION = """
from drivetrain import Application, sinks, sources

app = Application("guarded")
at, topic = app.setting("bootstrap"), app.setting("topic")
lines = app.read(sources.kafka(at, topic, end="latest", group=topic + "-group", event_time="timestamp"))
lines.sink(sinks.kafka(at, topic + "-once", value="value"))
lines.sink(sinks.kafka(at, topic + "-least", value="value", guarantee="at least once"))
"""


@pytest.fixture(scope="module")
def guarded(broker: Broker, secured: Secured) -> Broker:
    """The broker, which knows a user by PLAIN without and by SCRAM with TLS."""
    secured.introduce(broker)
    return broker


def holds(directory: Path, secret: str) -> list[Path]:
    """The files below a directory that hold a text."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if secret.encode() in path.read_bytes()]


@pytest.mark.nightly("other tests of this module log in; the unit tests of secrets")
@pytest.mark.usefixtures("spark")
def test_source_and_sinks_are_let_in_by_tls_and_the_password_is_in_no_text_and_no_file(
    guarded: Broker,
    secured: Secured,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = (f"{topic}-once", f"{topic}-least")
    for name in (topic, *made):
        guarded.create(name)
    send(guarded, topic, [{"value": b"%d" % n} for n in range(20)])
    (tmp_path / "guarded.py").write_text(APPLICATION)
    options = {"DRIVETRAIN_KAFKA_OPTIONS": json.dumps(secured.options("SASL_SSL"))}
    sets = {"bootstrap": guarded.addresses["SASL_SSL"], "topic": topic}
    given = ["guarded.py", *(part for k, v in sets.items() for part in ("--set", f"{k}={v}"))]
    monkeypatch.chdir(tmp_path)
    config = Config.load(None, options, {"state.dir": str(tmp_path / "state")})
    result = run(load_application("guarded.py", sets), config)
    result.check()
    told = [repr(result), *capfd.readouterr()]
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    for command in (["plan", *given], ["config"]):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        told += [done.output, *capfd.readouterr()]
    for name in made:
        assert sorted(map(int, values(guarded, name))) == list(range(20))
    assert SECRET not in "".join(told)
    assert holds(tmp_path, SECRET) == []


@pytest.mark.nightly("other tests of this module reach what it reaches")
@pytest.mark.usefixtures("spark")
def test_source_and_sinks_are_let_in_by_options_of_their_own(
    guarded: Broker, secured: Secured, topic: str, tmp_path: Path
) -> None:
    made = {f"{topic}-once": "exactly once", f"{topic}-least": "at least once"}
    for name in (topic, *made):
        guarded.create(name)
    send(guarded, topic, [{"value": b"%d" % n} for n in range(20)])
    at, options = guarded.addresses["SASL_PLAINTEXT"], secured.options("SASL_PLAINTEXT")
    app = Application("guarded")
    lines = app.read(sources.kafka(at, topic, end="latest", group=f"{topic}-group", options=options))
    for name, guarantee in made.items():
        to: Any = {"value": "value", "guarantee": guarantee, "options": options}
        lines.sink(sinks.kafka(at, name, **to))
    KafkaRun(guarded, tmp_path).run(app)
    for name in made:
        assert sorted(map(int, values(guarded, name))) == list(range(20))
    assert holds(tmp_path, SECRET) == []


@pytest.mark.usefixtures("spark")
@PROTOCOLS
def test_a_wrong_password_is_told_in_time_and_not_repeated(
    guarded: Broker,
    secured: Secured,
    topic: str,
    tmp_path: Path,
    protocol: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, logger="drivetrain")  # at this level py4j tells every call into Java
    guarded.create(topic)
    address, options = guarded.addresses[protocol], secured.options(protocol, WRONG)
    runs = KafkaRun(guarded, tmp_path)
    began_s = time.monotonic()
    with pytest.raises(InputError, match="Kafka refuses this source") as refused:
        runs.run(runs.application(sources.kafka(address, topic, options=options, end="latest")))
    assert "uthentication failed" in str(refused.value)
    guarantees = ("exactly once", "at least once")
    told = [refused.value, *(refused_sink(address, topic, g, options, tmp_path) for g in guarantees)]
    assert time.monotonic() - began_s < BOUND_S
    said = "".join(f"{error}{vars(error)}{error.__cause__}" for error in told)
    out, errors = capfd.readouterr()
    assert WRONG not in said + out + errors + caplog.text
    assert holds(tmp_path, WRONG) == []


def refused_sink(
    address: str, topic: str, guarantee: Any, options: Mapping[str, str], directory: Path
) -> OutputError:
    sink = sinks.kafka(address, topic, value="v", guarantee=guarantee, options=options)
    writer = open_sink(sink, SinkContext("app", f"to-{guarantee[0]}", str(directory / "s")))
    with pytest.raises(OutputError, match="does not let this application in") as refused:
        writer.validate()
    return refused.value


@pytest.mark.usefixtures("spark")
def test_who_does_not_trust_the_brokers_certificate_stays_out(
    guarded: Broker, secured: Secured, topic: str, tmp_path: Path
) -> None:
    guarded.create(topic)
    trusting = secured.options("SASL_SSL")
    options = {name: value for name, value in trusting.items() if not name.startswith("ssl.")}
    runs = KafkaRun(guarded, tmp_path)
    address = guarded.addresses["SASL_SSL"]
    with pytest.raises(InputError, match="Kafka refuses this source") as refused:
        runs.run(runs.application(sources.kafka(address, topic, options=options, end="latest")))
    assert "certif" in str(refused.value).lower()
    error = refused_sink(address, topic, "exactly once", options, tmp_path)
    assert "certif" in str(error).lower()
