"""A broker that requires a login: its user, certificates made for the tests, and the options of clients."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import ClassVar

from broker import Broker
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

USER, SECRET = "alice", "k33p-it-dark"
_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule"}


def _login(mechanism: str, fields: str) -> str:
    return f"org.apache.kafka.common.security.{_MODULES[mechanism]} required{fields};"


class Secured:
    """Two further listeners: PLAIN without TLS, and SCRAM with it. Certificates are in `directory`."""

    PROTOCOLS: ClassVar = ("SASL_PLAINTEXT", "SASL_SSL")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        new = ("req", "-newkey", "rsa:2048", "-nodes")
        self._openssl(
            *new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"
        )
        self._openssl(*new, "-subj", "/CN=broker", "-keyout", "broker.key", "-out", "broker.csr")
        (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        self._openssl("x509", "-req", "-in", "broker.csr", *by, "-out", "broker.crt")
        parts = ("broker.key", "broker.crt")
        (directory / "broker.pem").write_text("".join((directory / part).read_text() for part in parts))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=self.directory, check=True, capture_output=True, timeout=60
        )

    @property
    def settings(self) -> dict[str, str]:
        """The lines that the broker's server.properties needs."""
        plain, scram = "listener.name.sasl_plaintext", "listener.name.sasl_ssl"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            f"{plain}.sasl.enabled.mechanisms": "PLAIN",
            f"{plain}.plain.sasl.jaas.config": _login("PLAIN", f' user_{USER}="{SECRET}"'),
            f"{scram}.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            f"{scram}.scram-sha-256.sasl.jaas.config": _login("SCRAM-SHA-256", ""),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "broker.pem"),
        }

    def introduce(self, broker: Broker) -> None:
        """Create the SCRAM user in a running broker."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        asked = UserScramCredentialUpsertion(USER, info, SECRET.encode())
        broker.admin.alter_user_scram_credentials([asked])[USER].result(30)

    def options(self, protocol: str, password: str = SECRET) -> dict[str, str]:
        """The options of a client that connects by `protocol`."""
        mechanism = "PLAIN" if protocol == "SASL_PLAINTEXT" else "SCRAM-SHA-256"
        jaas = _login(mechanism, f' username="{USER}" password="{password}"')
        options = {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        if protocol == "SASL_SSL":
            trusted = str(self.directory / "ca.pem")
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}
        return options
