"""Keys of Azure's blob storage: which account, and how it is reached."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, text

ENDPOINT: Final = Key(
    "abfs.endpoint",
    text(),
    "azure",
    "URL of the blob storage of every abfs:// place, such as that of an emulator, "
    "http://127.0.0.1:10000/devstoreaccount1; `azure` means Azure's for the account.",
)

ACCOUNT: Final = Key(
    "abfs.account",
    text(),
    "environment",
    "The storage account of places that name none: abfs://container/name; `environment` means "
    "AZURE_STORAGE_ACCOUNT_NAME.",
)

ACCOUNT_KEY: Final = Key(
    "abfs.account-key",
    text(),
    "none",
    "The access key of the account, as a reference: ${NAME} or ${file:/path}; `none` means abfs.sas-token, "
    "else the environment (AZURE_CLIENT_ID and its secret, a workload identity, or the identity of the "
    "machine).",
)

SAS_TOKEN: Final = Key(
    "abfs.sas-token",
    text(),
    "none",
    "A shared access signature in place of a key, as a reference; it is read again with each request, so a "
    "file may have a renewed one.",
)

TIMEOUT: Final = Key(
    "abfs.timeout",
    duration_ms(minimum_ms=100),
    "30 s",
    "How long one request may take before it is tried again.",
)

RETRY_FOR: Final = Key(
    "abfs.retry-for",
    duration_ms(minimum_ms=0),
    "2 min",
    "How long requests that the store does not answer, or answers with an error of its own, are tried again "
    "before the application fails.",
)
