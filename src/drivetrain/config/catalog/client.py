"""Keys of clients: how long a command waits for the cluster, and the console that it asks in place of
masters."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import boolean, duration_ms, text

TIMEOUT: Final = Key(
    "client.timeout",
    duration_ms(minimum_ms=100),
    "15 s",
    "How long a command waits for a leading master before it fails.",
)

CONSOLE: Final = Key(
    "client.console",
    text(empty_allowed=True),
    "",
    "Address of a console through which commands reach the cluster, as https://console.example.com; empty: "
    "they ask the masters.",
)

CONSOLE_TOKEN: Final = Key(
    "client.console-token",
    text(empty_allowed=True),
    "",
    "Token for client.console, as a reference: ${NAME} or ${file:/path}; `drivetrain console-access` "
    "makes one.",
)

CONSOLE_CA: Final = Key(
    "client.console-ca",
    text(empty_allowed=True),
    "",
    "PEM file with the certificates that the certificate of client.console is checked against; empty: those "
    "of the system.",
)

CONSOLE_WITHOUT_TLS: Final = Key(
    "client.console-without-tls",
    boolean(),
    "false",
    "Send the token to a console at another machine over http://, where others on the network can read it.",
)
