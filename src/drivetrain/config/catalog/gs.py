"""Keys of Google Cloud Storage: who the application is, and how the store is reached."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, text

ENDPOINT: Final = Key(
    "gs.endpoint",
    text(),
    "google",
    "URL of the store of every gs:// place, such as that of an emulator; `google` means Google Cloud "
    "Storage.",
)

SERVICE_ACCOUNT_KEY: Final = Key(
    "gs.service-account-key",
    text(),
    "none",
    "The key of a service account (the content of its JSON file), as a reference: ${file:/path} or ${NAME}; "
    "`none` means the environment (GOOGLE_APPLICATION_CREDENTIALS, or the machine's service account).",
)

TOKEN: Final = Key(
    "gs.token",
    text(),
    "none",
    "An OAuth token in place of a key, as a reference; it is read again with each request, so a file may "
    "have a renewed one.",
)

TIMEOUT: Final = Key(
    "gs.timeout",
    duration_ms(minimum_ms=100),
    "30 s",
    "How long one request may take before it is tried again.",
)

RETRY_FOR: Final = Key(
    "gs.retry-for",
    duration_ms(minimum_ms=0),
    "2 min",
    "How long requests that the store does not answer, or answers with an error of its own, are tried again "
    "before the application fails.",
)
