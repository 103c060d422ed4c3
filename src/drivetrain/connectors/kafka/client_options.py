"""One set of Kafka settings for two clients, better defaults, and no secrets in messages.

The problem: users know Kafka's settings by the names of Kafka's own (Java) clients, and Spark's connector
and the transactional producer take these. What is asked of the brokers before Spark is started is asked by
librdkafka, which has other names for some of them, and other forms for keys and certificates.

The design: settings are given only in Kafka's names. Those with the same name in librdkafka are passed on
unchanged; a table translates the others; user and password are extracted from the login module's line. A
setting without a counterpart (Java's key stores) is an error that names the alternative.

Invariants:

1. Both clients get the same settings, or an error names the one that is not supported.
2. `Secrets.scrubbed` leaves no value of a secret setting in a text.

Called by the Kafka sink and source. Source: Kafka's producer configuration, and librdkafka's
CONFIGURATION.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from drivetrain.config.references import is_hidden, scrubbed
from drivetrain.errors import OutputError

_JAAS = re.compile(
    r"^\s*\S*(?:PlainLoginModule|ScramLoginModule)\s+required\s+(?P<fields>.*?);\s*$", re.DOTALL
)
_FIELD = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""")
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "buffer.memory": None,  # of producers only
    "max.block.ms": None,
    "delivery.timeout.ms": None,
    "send.buffer.bytes": None,
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.type": None,
    "ssl.keystore.type": None,
}
_READING = {
    "max.poll.records": "20000",
    "max.partition.fetch.bytes": str(4 * 2**20),
    "receive.buffer.bytes": "-1",
}
_ANSWERED_AT_ONCE = {"fetch.max.wait.ms": "1"}
_SENT_TOGETHER_BYTES = 256 * 2**10
LINGER_MS = 10
"""How long a request waits to be full. At the end of a batch Spark sends the rest without waiting."""
_SHORTEST = 3
"""Shorter values are not secret, and replacing them would make any text unreadable."""


def for_librdkafka(options: Mapping[str, str], where: str) -> dict[str, str]:
    """Kafka's settings in librdkafka's names; raises `OutputError` for unsupported ones."""
    translated: dict[str, str] = {}
    for name, value in options.items():
        if name == "sasl.jaas.config":
            translated.update(_login(value, where))
        elif name in ("ssl.truststore.location", "ssl.keystore.location"):
            kind = "truststore" if "truststore" in name else "keystore"
            if options.get(f"ssl.{kind}.type", "JKS").upper() != "PEM":
                raise OutputError(
                    f"{name} names one of Java's key stores, which exactly-once sinks cannot read",
                    where=where,
                    expected=f"ssl.{kind}.type=PEM and a file of that kind",
                    remedy="convert it with keytool and openssl; Kafka's own clients read PEM too",
                )
            if kind == "truststore":
                translated["ssl.ca.location"] = value
            else:
                translated.update({"ssl.certificate.location": value, "ssl.key.location": value})
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = value or "none"
        elif name in _RENAMED:
            new = _RENAMED[name]
            if new is not None:
                translated[new] = value
        else:
            translated[name] = value
    return translated


def reading(*, realtime: bool = False) -> dict[str, str]:
    """The default settings with which Spark's connector reads, in micro-batches or in real-time mode.

    Kafka's own defaults suit a consumer that handles one message after the other: with 500 messages per
    poll, a Spark task waits as long as it reads. And Spark asks for the range of a partition after each poll,
    through the connection by which the client has asked for more messages already. At the end of the
    partition a broker holds that request back until a message comes, half a second by default, and each task
    of a micro-batch waits for it. A task of the real-time mode waits for messages anyway.
    """
    return _READING if realtime else _READING | _ANSWERED_AT_ONCE


def sending(limit_bytes: int, linger_ms: int = LINGER_MS) -> dict[str, str]:
    """The default settings with which Spark's connector sends, if a message may have this size.

    A batch comes at once, so requests may be large, and wait a moment to fill up. Kafka's own defaults send
    16 KiB at a time.
    """
    together = max(1, min(_SENT_TOGETHER_BYTES, limit_bytes))
    return {"batch.size": str(together), "linger.ms": str(linger_ms), "send.buffer.bytes": "-1"}


def for_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Kafka's settings in the form of Spark's connector."""
    return {f"kafka.{name}": value for name, value in options.items()}


class Secrets:
    """The secret values among settings, whether given literally or by reference."""

    def __init__(self, options: Mapping[str, str]) -> None:
        values = {value for name, value in options.items() if is_hidden(name)}
        for value in list(values):
            values |= {"".join(found[1:]) for found in _FIELD.findall(value)}
        self._values = sorted((v for v in values if len(v) >= _SHORTEST), key=len, reverse=True)

    def scrubbed(self, text: str) -> str:
        """The text without the secrets."""
        for value in self._values:
            text = text.replace(value, "***")
        return scrubbed(text)


def _login(line: str, where: str) -> dict[str, str]:
    found = _JAAS.match(line)
    if found is None:
        raise OutputError(
            "this sasl.jaas.config cannot be used by an exactly-once sink",
            where=where,
            expected='...PlainLoginModule or ScramLoginModule required username="..." password="...";',
            remedy='give such a line, or choose guarantee="at least once", which uses Java\'s client',
        )
    fields = {
        name: quoted.replace('\\"', '"').replace("\\\\", "\\") if quoted else single or bare
        for name, quoted, single, bare in _FIELD.findall(found["fields"])
    }
    return {"sasl.username": fields.get("username", ""), "sasl.password": fields.get("password", "")}
