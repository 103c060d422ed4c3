"""What differs between the stores that the package `obstore` reaches: Amazon's S3, Google's and Azure's.

The problem: one client speaks to all of them, but its settings, the codes of errors and the remedies are each
store's own.

The design: a plain record for each. A bucket is a bucket of S3 or of Google, or a container of Azure.
Hadoop's spelling of Azure's places names the account, too, so a bucket may be
"container@account.dfs.core.windows.net".

Called by `obstore_store`, `locations` and `object_store_checks`. Source: the documentation of `obstore`, and
that of the stores' errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from drivetrain.errors import DrivetrainError, MissingDependencyError, UserError
from drivetrain.runtime.objects.settings import StoreSettings


@dataclass(frozen=True)
class StoreService:
    """One kind of store; `section` is that of the configuration, and the scheme of its places.

    `opened(bucket, settings, secrets)` makes `obstore`'s client; the limits of time are in milliseconds: for
    one request, and for all tries of one.
    """

    section: str
    opened: Callable[[str, StoreSettings, Mapping[str, str]], Any]
    limits: Callable[[StoreSettings], tuple[int, int]]
    no_bucket: str
    """The code of the error of a bucket that does not exist."""
    place_keys: str
    """The keys that say where the store is, for remedies."""
    credentials: str
    """What to renew, for remedies."""

    def client(self, bucket: str, settings: StoreSettings, secrets: Mapping[str, str]) -> Any:
        """The client of a bucket; raises `UserError` when the settings cannot be used."""
        where = f"{self.section}://{bucket}"
        try:
            return self.opened(bucket, settings, secrets)
        except DrivetrainError:
            raise
        except ImportError as error:
            raise MissingDependencyError(
                "object stores need a package that is not installed",
                where=where,
                expected="obstore",
                remedy=f"pip install 'drivetrain[{self.section}]'; in a cluster on every worker",
            ) from error
        except Exception as error:
            raise UserError(
                "the settings of the object store cannot be used",
                where=where,
                got=first_line(error),
                remedy=f"correct the section [{self.section}] of the configuration, or the environment: "
                f"{self.place_keys}, {self.credentials}",
            ) from error


def first_line(error: Exception) -> str:
    """The first line of an error of `obstore`: the others dump its structures."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]


def service_of(uri: str) -> StoreService:
    """The service of a place in an object store, which is not in HDFS."""
    return SERVICES[urlsplit(uri).scheme]


def account_of(bucket: str, settings: StoreSettings) -> tuple[str, str | None, str | None]:
    """Of a place in Azure its container, account, and endpoint; None: the environment decides.

    >>> account_of("lake@shop.dfs.core.windows.net", StoreSettings())
    ('lake', 'shop', 'https://shop.blob.core.windows.net')
    """
    container, _, host = bucket.partition("@")
    if not host:
        return container, settings.abfs_account, settings.abfs_endpoint
    blob = host.replace(".dfs.", ".blob.", 1)
    return container, host.partition(".")[0], settings.abfs_endpoint or f"https://{blob}"


def _amazon(bucket: str, settings: StoreSettings, secrets: Mapping[str, str]) -> Any:
    from obstore.store import S3Store

    place = {"endpoint": settings.endpoint, "region": settings.region}
    return S3Store(
        bucket,
        **_given(secrets, place),
        virtual_hosted_style_request=not settings.path_style,
        **_patience(settings.timeout_ms),
    )


def _google(bucket: str, settings: StoreSettings, secrets: Mapping[str, str]) -> Any:
    from obstore.store import GCSStore

    given = _given(secrets, {"base_url": settings.gs_endpoint})
    return GCSStore(bucket, **given, **_patience(settings.gs_timeout_ms))


def _azure(bucket: str, settings: StoreSettings, secrets: Mapping[str, str]) -> Any:
    from obstore.store import AzureStore

    container, account, endpoint = account_of(bucket, settings)
    given = _given(secrets, {"account_name": account, "endpoint": endpoint})
    return AzureStore(container, **given, **_patience(settings.abfs_timeout_ms))


def _given(secrets: Mapping[str, str], place: Mapping[str, str | None]) -> Any:
    return {**secrets, **{name: text for name, text in place.items() if text is not None}}


def _patience(timeout_ms: int) -> Any:
    timeout = timedelta(milliseconds=timeout_ms)
    return {
        "client_options": {
            "allow_http": True,
            "timeout": timeout,
            "connect_timeout": min(timeout, timedelta(seconds=5)),
        },
        "retry_config": {"max_retries": 2, "retry_timeout": timeout},
    }


S3: Final = StoreService(
    section="s3",
    opened=_amazon,
    limits=lambda settings: (settings.timeout_ms, settings.retry_ms),
    no_bucket="NoSuchBucket",
    place_keys="s3.endpoint, s3.region and s3.path-style",
    credentials="s3.access-key, s3.secret-key, s3.session-token, "
    "or those of the environment or the machine's role",
)
GS: Final = StoreService(
    section="gs",
    opened=_google,
    limits=lambda settings: (settings.gs_timeout_ms, settings.gs_retry_ms),
    no_bucket="NoSuchBucket",
    place_keys="gs.endpoint",
    credentials="gs.service-account-key, gs.token, "
    "or those of the environment or the machine's service account",
)
ABFS: Final = StoreService(
    section="abfs",
    opened=_azure,
    limits=lambda settings: (settings.abfs_timeout_ms, settings.abfs_retry_ms),
    no_bucket="ContainerNotFound",
    place_keys="abfs.account and abfs.endpoint",
    credentials="abfs.account-key, abfs.sas-token, or those of the environment or the machine's identity",
)
SERVICES: Final = {"s3": S3, "s3a": S3, "gs": GS, "abfs": ABFS, "abfss": ABFS, "az": ABFS}
"""By the schemes of places."""
