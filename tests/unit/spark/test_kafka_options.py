from __future__ import annotations

import pytest

from drivetrain.connectors.kafka.client_options import Secrets, for_librdkafka, for_spark, reading, sending
from drivetrain.errors import OutputError

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
    '  username="ada" password="love\\"lace=1;";'
)


def test_settings_are_given_once_and_mean_the_same_to_both_clients() -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
        "max.request.size": "5000000",
    }
    assert for_librdkafka(options, "t") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": 'love"lace=1;',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "message.max.bytes": "5000000",
    }
    assert for_spark({"max.request.size": "5"}) == {"kafka.max.request.size": "5"}


def test_what_is_sent_together_fits_the_topic() -> None:
    assert int(sending(2**20)["batch.size"]) == 256 * 2**10
    assert int(sending(1000)["batch.size"]) == 1000


def test_what_a_user_says_of_reading_counts() -> None:
    assert for_spark({**reading(), "max.poll.records": "7"})["kafka.max.poll.records"] == "7"


def test_the_end_of_a_partition_holds_up_no_micro_batch() -> None:
    assert reading()["fetch.max.wait.ms"] == "1"
    assert "fetch.max.wait.ms" not in reading(realtime=True), (
        "a task that waits for messages would ask all the time"
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ssl.truststore.location": "/trust.jks"}, "Java's key stores"),
        ({"ssl.keystore.location": "/k.p12", "ssl.keystore.type": "PKCS12"}, "Java's key stores"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "cannot be used"),
    ],
)
def test_what_has_no_counterpart_is_told(options: dict[str, str], what: str) -> None:
    with pytest.raises(OutputError, match=what):
        for_librdkafka(options, "t")


def test_no_secret_is_left_in_a_text() -> None:
    secrets = Secrets({"sasl.jaas.config": JAAS, "ssl.key.password": "sesame", "client.id": "shown"})
    text = secrets.scrubbed(f'refused: {JAAS} | sesame | shown | password love\\"lace=1;')
    assert "lace" not in text
    assert "sesame" not in text
    assert "shown" in text
