"""Keys of the console: where it listens, what it keeps, how much it takes."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import boolean, duration_ms, integer, local_path, size_bytes, text

HOST: Final = Key(
    "console.host",
    text(),
    "127.0.0.1",
    "Address at which the console listens; 127.0.0.1 keeps other machines out.",
)

PORT: Final = Key(
    "console.port",
    integer(minimum=0, maximum=65_535),
    7080,
    "Port at which the console listens; 0 means any free one.",
)

PREFIX: Final = Key(
    "console.prefix",
    text(empty_allowed=True),
    "",
    'Path under which a proxy shows the console, as "/drivetrain"; empty means at its root.',
)

PLANNING_TIMEOUT: Final = Key(
    "console.planning-timeout",
    duration_ms(minimum_ms=1_000),
    "60 s",
    "How long the file of an application may take to load when the console plans it.",
)

HOSTS: Final = Key(
    "console.hosts",
    text(empty_allowed=True),
    "",
    "Further names under which browsers reach the console, separated by commas. This machine's names and "
    "addresses are always among them.",
)

DIRECTORY: Final = Key(
    "console.directory",
    local_path(),
    ".drivetrain/console",
    "Where the console keeps users and tokens (hashed), the audit log, and figures of the last 30 days.",
)

TLS_CERTIFICATE: Final = Key(
    "console.tls-certificate",
    text(empty_allowed=True),
    "",
    "PEM file with the console's certificate; together with console.tls-key it enables HTTPS.",
)

TLS_KEY: Final = Key(
    "console.tls-key", text(empty_allowed=True), "", "PEM file with the private key of the certificate."
)

WITHOUT_TLS: Final = Key(
    "console.without-tls",
    boolean(),
    False,
    "Let the console listen for other machines without HTTPS: for a proxy in front of it that has it.",
)

MAX_UPLOAD: Final = Key(
    "console.max-upload",
    size_bytes(minimum_bytes=1024),
    "128 MiB",
    "Most bytes of an application file or archive that the console takes.",
)
