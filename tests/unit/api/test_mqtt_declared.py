from __future__ import annotations

import pickle
from typing import Any

import pytest

from drivetrain.api import sources
from drivetrain.errors import GraphError


def test_a_source_says_its_broker_and_topics_but_no_user() -> None:
    source = sources.mqtt("mqtts://shop:${MQTT_PASSWORD}@broker.example", ["a/+", "b/#"], format="raw")
    assert source.name == "a/+, b/# at mqtts://broker.example"
    address = source.address
    assert (address.host, address.port, address.tls) == ("broker.example", 8883, True)
    assert (address.user, address.password) == ("shop", "${MQTT_PASSWORD}")
    assert "payload binary" in source.columns
    assert not source.bounded
    assert pickle.loads(pickle.dumps(source)) == source
    plain = sources.mqtt("mqtt://${USER}@[::1]:1884", "a", qos=0)
    assert (plain.address.host, plain.address.port, plain.address.user) == ("::1", 1884, "${USER}")
    assert "discards messages" in plain.caveat
    assert "counts twice" in source.caveat


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"broker": "localhost:1883"}, "not the address of an MQTT broker"),
        ({"broker": "mqtt://"}, "not the address of an MQTT broker"),
        ({"broker": "mqtt://h:1883/topic"}, "not the address of an MQTT broker"),
        ({"broker": "mqtt://h:port"}, "cannot be read"),
        ({"broker": "mqtt://me:hunter2@h"}, "there is a password in the address"),
        ({"qos": 2}, "QoS 2, too, and loses none"),
        ({"topic": []}, "needs a topic"),
        ({"topic": "a/#/b"}, "not a topic filter"),
        ({"topic": "a+/b"}, "not a topic filter"),
        ({"topic": ""}, "not a topic filter"),
        ({"format": "json"}, "unknown format"),
        ({"on_session_loss": "ignore"}, "unknown on_session_loss"),
        ({"receive_maximum": 0}, "receive_maximum"),
        ({"keep_alive": "0 s"}, "keep_alive"),
        ({"session_expiry": "soon"}, "session_expiry"),
        ({"ca": "ca.pem"}, "certificates are for TLS"),
        ({"broker": "mqtts://h", "certificate": "c.pem"}, "two files"),
    ],
)
def test_settings_that_make_no_sense_are_refused_where_they_are_written(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message) as raised:
        sources.mqtt(**{"broker": "mqtt://localhost", "topic": "a", **settings})
    assert "hunter2" not in str(raised.value)
