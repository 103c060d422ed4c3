"""Keys that every process of a cluster has in common: who the masters are, where to listen, the secret."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import text

MASTERS: Final = Key(
    "cluster.masters",
    text(),
    "127.0.0.1:7070",
    "All masters as HOST:PORT, separated by commas; the same list on every machine.",
)

HOST: Final = Key(
    "cluster.host",
    text(),
    "127.0.0.1",
    "The address of this machine at which the other processes reach it. Off loopback a secret is required.",
)

SECRET_FILE: Final = Key(
    "cluster.secret-file",
    text(empty_allowed=True),
    "",
    "File with the secret that all processes share, readable by its owner only; DRIVETRAIN_SECRET wins.",
)

TLS_CERTIFICATE: Final = Key(
    "cluster.tls-certificate",
    text(empty_allowed=True),
    "",
    "PEM file with this process's certificate; with cluster.tls-key and cluster.tls-authority it gives TLS.",
)

TLS_KEY: Final = Key(
    "cluster.tls-key", text(empty_allowed=True), "", "PEM file with the certificate's private key."
)

TLS_AUTHORITY: Final = Key(
    "cluster.tls-authority",
    text(empty_allowed=True),
    "",
    "PEM file with the authority that signed all certificates.",
)
