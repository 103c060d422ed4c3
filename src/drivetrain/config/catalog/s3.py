"""Keys of object stores with Amazon's S3 interface: where they are, and how they are reached."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import boolean, duration_ms, text

ENDPOINT: Final = Key(
    "s3.endpoint",
    text(),
    "amazon",
    "URL of the object store of every s3:// place, such as https://minio.example:9000; `amazon` means "
    "Amazon S3 in s3.region.",
)

REGION: Final = Key(
    "s3.region",
    text(),
    "environment",
    "Region of the buckets; `environment` means AWS_REGION or AWS_DEFAULT_REGION, else us-east-1.",
)

ACCESS_KEY: Final = Key(
    "s3.access-key",
    text(),
    "none",
    "Id of the access key, as a reference: ${NAME} or ${file:/path}; `none` means the environment "
    "(AWS_ACCESS_KEY_ID, a web identity, or the role of the machine).",
)

SECRET_KEY: Final = Key(
    "s3.secret-key",
    text(),
    "none",
    "The secret that belongs to s3.access-key, as a reference: ${NAME} or ${file:/path}.",
)

SESSION_TOKEN: Final = Key(
    "s3.session-token",
    text(),
    "none",
    "The token of temporary credentials, as a reference; `none` if they are permanent.",
)

PATH_STYLE: Final = Key(
    "s3.path-style",
    boolean(),
    True,
    "Whether the bucket is in the path of a URL; false: in the name of the host.",
)

TIMEOUT: Final = Key(
    "s3.timeout",
    duration_ms(minimum_ms=100),
    "30 s",
    "How long one request may take before it is tried again.",
)

RETRY_FOR: Final = Key(
    "s3.retry-for",
    duration_ms(minimum_ms=0),
    "2 min",
    "How long requests that the store does not answer, or answers with an error of its own, are tried again "
    "before the application fails.",
)
