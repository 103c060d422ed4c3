"""Keys that every process of a cluster has in common: the masters, where to listen, the secret."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import boolean, integer, text

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
    "Address at which other processes reach this machine; 127.0.0.1 keeps other machines out.",
)

BIND_HOST: Final = Key(
    "cluster.bind-host",
    text(empty_allowed=True),
    "",
    "Address at which the processes of this machine listen, if it is not cluster.host: 0.0.0.0 where "
    "cluster.host is a name that belongs to another address, as behind a forwarded port.",
)

PORTS: Final = Key(
    "cluster.ports",
    text(empty_allowed=True),
    "",
    'Ports at which workers, application masters and executors listen, as "7100-7199": a range that a '
    "firewall can name. Empty means any free ports.",
)

HEALTH_PORT: Final = Key(
    "cluster.health-port",
    integer(minimum=0, maximum=65_535),
    0,
    "Port at which a master or a worker answers GET /healthz and /readyz, for probes of Kubernetes and load "
    "balancers; 0 means none.",
)

SECRET_FILE: Final = Key(
    "cluster.secret-file",
    text(empty_allowed=True),
    "",
    "File with the cluster's secret (and below it the previous one), or a key made from it, readable "
    "by its owner only; DRIVETRAIN_SECRET overrides it.",
)

WITHOUT_SECRET: Final = Key(
    "cluster.without-secret",
    boolean(),
    False,
    "Let masters and workers run on loopback without a secret: then every user of the machine can run code "
    "as the user who runs them.",
)

TLS_CERTIFICATE: Final = Key(
    "cluster.tls-certificate",
    text(empty_allowed=True),
    "",
    "PEM file with this process's certificate; together with cluster.tls-key and "
    "cluster.tls-authority it enables TLS.",
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
