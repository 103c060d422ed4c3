"""Messages of a real MQTT broker, received into the store: none is lost, whoever is killed."""

from __future__ import annotations

import datetime as dt
import json
import logging
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain.api import sources
from drivetrain.connectors.mqtt.mqtt_connection import require_broker
from drivetrain.errors import InputError, UnavailableError
from mosquitto_broker import MosquittoBroker
from nightly_run import first_seed, is_nightly

sys.path.insert(0, str(Path(__file__).parent))
from received import Receiving, stored_in

IN_FLIGHT = 20


@pytest.fixture
def mortal() -> Iterator[MosquittoBroker]:
    """A broker that the test kills."""
    server = MosquittoBroker(keeps=True)
    yield server.start()
    server.close()


def test_a_message_comes_with_its_topic_quality_and_time(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    mosquitto.publish("columns/kept", "old", retain=True)
    before = dt.datetime.now(dt.UTC)
    topics = ["columns/+", "columns/x/#"]
    with Receiving(mosquitto.url, topics, tmp_path) as receiving:
        receiving.wait(lambda found: found == ["old"])
        mosquitto.publish("columns/a", "one")
        mosquitto.publish("columns/a/b", "not subscribed")
        mosquitto.publish("columns/x/y/z", "two", qos=2)
        mosquitto.publish("columns/b", "three", qos=0)
        receiving.wait(lambda found: len(found) == 4)
    rows = receiving.rows()
    assert [(row["topic"], row["payload"], row["qos"], row["retained"]) for row in rows] == [
        ("columns/kept", "old", 1, True),
        ("columns/a", "one", 1, False),
        ("columns/x/y/z", "two", 1, False),
        ("columns/b", "three", 0, False),
    ]
    assert all(before <= row["received"] <= dt.datetime.now(dt.UTC) for row in rows)


def test_what_comes_while_nothing_runs_is_kept_and_nothing_comes_twice_after_a_stop(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    sent: list[str] = []

    def publish() -> None:
        new = [f"{len(sent) + n}" for n in range(3 * IN_FLIGHT)]
        mosquitto.publish("stopped/a", *new)
        sent.extend(new)

    with Receiving(mosquitto.url, "stopped/#", tmp_path) as receiving:
        receiving.wait_connected()
    for _ in range(3):
        publish()
        with Receiving(mosquitto.url, "stopped/#", tmp_path) as receiving:
            receiving.wait(lambda found: len(found) == len(sent))
            publish()
            receiving.wait(lambda found: len(found) >= len(sent) - IN_FLIGHT)
    with Receiving(mosquitto.url, "stopped/#", tmp_path) as receiving:
        receiving.wait(lambda found: len(found) >= len(sent))
    assert receiving.payloads() == sent


def test_a_topic_that_is_no_longer_declared_is_no_longer_received(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    mosquitto.publish("kept/b", "old", retain=True)
    with Receiving(mosquitto.url, ["gone/a", "kept/b"], tmp_path) as receiving:
        receiving.wait(lambda found: found == ["old"])
    with Receiving(mosquitto.url, ["kept/b"], tmp_path, format="text") as receiving:
        receiving.wait_connected()
        time.sleep(0.2)  # the broker takes subscriptions away after it has connected
        mosquitto.publish("gone/a", "no")
        mosquitto.publish("kept/b", "yes")
        receiving.wait(lambda found: found == ["old", "yes"])


def test_bytes_are_read_as_they_are_and_refused_as_text(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    with Receiving(mosquitto.url, "bytes/a", tmp_path) as receiving:
        receiving.wait_connected()
        mosquitto.publish("bytes/a", "text", b"\xff\x00")
        error = receiving.wait_error()
    assert isinstance(error, InputError)
    assert "topic bytes/a" in str(error)
    assert receiving.payloads() == ["text"]
    fresh = Receiving(
        mosquitto.url, "bytes/a", tmp_path / "raw", format="raw", client_id=f"drivetrain-{tmp_path}"
    )
    with fresh:
        fresh.wait(lambda found: found == [b"\xff\x00"])


def test_a_full_store_leaves_the_rest_in_the_broker(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    sent = [f"{n:04d}{random.Random(n).randbytes(500).hex()}" for n in range(300)]
    with Receiving(mosquitto.url, "full/a", tmp_path, unread_bytes=20_000, receive_maximum=5) as receiving:
        receiving.wait_connected()
        mosquitto.publish("full/a", *sent)
        receiving.wait(lambda found: len(found) >= 5)
        time.sleep(0.5)
        first = receiving.payloads()
        assert len(first) < len(sent)
        assert len(receiving.feed._arrived) <= 5
    # What the process held without a place in the store was not acknowledged, or was stored when it stopped.
    with Receiving(mosquitto.url, "full/a", tmp_path) as receiving:
        receiving.wait(lambda found: len(found) >= len(sent))
    assert receiving.payloads() == sent


@pytest.mark.nightly("test_mqtt_under_kills; other tests of this module use a broker")
def test_the_broker_is_killed_and_started_again(mortal: MosquittoBroker, tmp_path: Path) -> None:
    sent: list[str] = []
    with Receiving(
        mortal.url, "killed/a", tmp_path, unread_bytes=3_000, receive_maximum=IN_FLIGHT
    ) as receiving:
        receiving.wait_connected()
        for round in range(3):
            new = [f"{round}-{n}" for n in range(30)]
            mortal.publish("killed/a", *new)
            sent += new
            time.sleep(1.5)  # it writes to its disk
            mortal.kill()
            time.sleep(0.2)
            mortal.start()
        receiving.wait_connected()
    with Receiving(mortal.url, "killed/a", tmp_path) as receiving:
        receiving.wait(lambda found: set(found) >= set(sent))
    count = Counter(receiving.payloads())
    assert set(count) == set(sent)
    assert max(count.values()) <= 4


@pytest.mark.nightly("test_mqtt_under_kills; other tests of this module use a broker")
def test_a_killed_process_loses_nothing(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    kills, chance = (12 if is_nightly() else 1), random.Random(first_seed(1))
    sent: list[str] = []
    is_over = threading.Event()

    def publish() -> None:
        while not is_over.is_set():
            new = [str(len(sent) + n) for n in range(50)]
            mosquitto.publish("process/a", *new)
            sent.extend(new)

    with Receiving(mosquitto.url, "process/a", tmp_path, receive_maximum=IN_FLIGHT) as receiving:
        receiving.wait_connected()
    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        for _ in range(kills):
            line = [sys.executable, str(Path(__file__).parent / "received.py"), mosquitto.url]
            known = len(stored_in(tmp_path))
            how = json.dumps({"receive_maximum": IN_FLIGHT})
            process = subprocess.Popen([*line, "process/a", str(tmp_path), how])
            while len(stored_in(tmp_path)) == known:
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(chance.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            process.wait()
    finally:
        is_over.set()
        publisher.join()
    with Receiving(mosquitto.url, "process/a", tmp_path) as receiving:
        receiving.wait(lambda found: set(found) >= set(sent))
    found = receiving.payloads()
    assert set(found) == set(sent)
    assert max(Counter(found).values()) <= kills + 1
    firsts = list(dict.fromkeys(found))
    assert firsts == sorted(firsts, key=int), "in the order in which they were published"


def test_a_session_that_the_broker_has_lost_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = MosquittoBroker().start()
    try:
        with Receiving(server.url, "a", tmp_path) as receiving:
            receiving.wait_connected()
            server.kill()
            server.start()
            error = receiving.wait_error()
        assert isinstance(error, InputError)
        assert "no longer has the session" in str(error)
        with Receiving(server.url, "a", tmp_path) as receiving:
            receiving.wait_connected()
            server.publish("a", "again")
            receiving.wait(lambda found: found == ["again"])
        server.kill()
        server.start()
        with (
            caplog.at_level(logging.WARNING),
            Receiving(server.url, "a", tmp_path, on_session_loss="continue") as receiving,
        ):
            receiving.wait_connected()
            server.publish("a", "more")
            receiving.wait(lambda found: found == ["again", "more"])
        assert "messages may be lost" in caplog.text
    finally:
        server.close()


@pytest.mark.nightly("test_mqtt_under_kills; other tests of this module use a broker")
def test_two_processes_in_one_session_and_a_broker_that_stays_away_are_errors(
    mortal: MosquittoBroker, tmp_path: Path
) -> None:
    one, two = (Receiving(mortal.url, "a", tmp_path / id, client_id="same") for id in "12")
    with one, two:
        one.wait_connected()
        error = one.wait_error(two)
        assert isinstance(error, UnavailableError)
        assert "whether another process uses the same client_id" in str(error)
    with Receiving(mortal.url, "a", tmp_path / "3", give_up_after="5 s") as left:
        left.wait_connected()
        mortal.kill()
        error = left.wait_error()
        assert isinstance(error, UnavailableError)
        assert "run the same command again" in str(error)
    with pytest.raises(UnavailableError, match="no MQTT broker answers"):
        require_broker(sources.mqtt(mortal.url, "a"))


def test_a_quality_that_the_broker_does_not_grant_is_an_error(tmp_path: Path) -> None:
    server = MosquittoBroker("allow_anonymous true", "max_qos 0").start()
    try:
        with Receiving(server.url, "a", tmp_path) as receiving:
            error = receiving.wait_error()
        assert isinstance(error, InputError)
        assert "does not grant a subscription" in str(error)
        with Receiving(server.url, "a", tmp_path, qos=0) as receiving:
            receiving.wait(lambda found: server.publish("a", "light", qos=0) or found[:1] == ["light"])
    finally:
        server.close()


def test_user_and_password_are_references_and_a_wrong_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MosquittoBroker("allow_anonymous false", "password_file {here}/passwords")
    passwords = server.directory / "passwords"
    passwords.touch()
    subprocess.run(["mosquitto_passwd", "-b", str(passwords), "shop", "right-password"], check=True)
    server.start()
    url = server.url.replace("://", "://shop:${TESTS_MQTT}@")
    try:
        monkeypatch.setenv("TESTS_MQTT", "right-password")
        with Receiving(url, "a", tmp_path) as receiving:
            receiving.wait_connected()
        monkeypatch.setenv("TESTS_MQTT", "wrong-password")
        with Receiving(url, "a", tmp_path) as receiving:
            error = receiving.wait_error()
        assert isinstance(error, InputError)
        assert "check user and password" in str(error)
        assert "wrong-password" not in str(error)
        monkeypatch.delenv("TESTS_MQTT")
        with Receiving(url, "a", tmp_path) as receiving:
            assert "TESTS_MQTT" in str(receiving.wait_error())
    finally:
        server.close()


def test_tls_with_an_authority_of_ones_own_and_a_client_certificate(tmp_path: Path) -> None:
    server = MosquittoBroker(
        "allow_anonymous true",
        "cafile {here}/ca.pem",
        "certfile {here}/server.pem",
        "keyfile {here}/server.key",
        "require_certificate true",
    )
    made = server.directory
    sign_certificates(made)
    url = server.url.replace("mqtt://127.0.0.1", "mqtts://localhost")
    server.start()
    try:
        with pytest.raises(InputError, match="TLS with the broker fails"):
            require_broker(sources.mqtt(url, "a"))
        with pytest.raises(InputError, match="certificates for the broker cannot be read"):
            require_broker(sources.mqtt(url, "a", ca="missing.pem"))
        how = {"ca": f"{made}/ca.pem", "certificate": f"{made}/client.pem", "key": f"{made}/client.key"}
        require_broker(sources.mqtt(url, "a", **how))
        with Receiving(url, "a", tmp_path, **how) as receiving:
            receiving.wait_connected()
    finally:
        server.close()


def sign_certificates(folder: Path) -> None:
    """An authority, and two certificates that it has signed."""
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    ca = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority"]
    subprocess.run([*openssl, *ca], cwd=folder, check=True, capture_output=True)
    for name in ("server", "client"):
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"]
        subprocess.run([*openssl, *signed, *subject], cwd=folder, check=True, capture_output=True)
