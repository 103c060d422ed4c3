"""Places in object stores and in HDFS: from a URI to the file system that has it.

Called by `runtime.file_locations` and by `drivetrain doctor`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from drivetrain.config.units import STORES
from drivetrain.errors import InputError
from drivetrain.runtime.objects.hdfs_store import HdfsStore
from drivetrain.runtime.objects.object_store import ObjectStore
from drivetrain.runtime.objects.obstore_store import ObstoreStore
from drivetrain.runtime.objects.renewed_store import RenewedStore
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.objects.store_services import ABFS, StoreService, service_of

if TYPE_CHECKING:
    import pyarrow.fs as pafs

HDFS = "hdfs://"
SCHEMES = STORES


def is_in_object_store(path_or_uri: str) -> bool:
    """Whether a place is in an object store or in HDFS (sections `[s3]`, `[gs]`, `[abfs]` and `[hdfs]`)."""
    return path_or_uri.startswith(SCHEMES)


def is_in_hdfs(path_or_uri: str) -> bool:
    """Whether a place is in HDFS."""
    return path_or_uri.startswith(HDFS)


def parts_of(uri: str) -> tuple[str, str]:
    """The bucket of a place, and its name there ("" for the bucket itself); raises `InputError`.

    In HDFS the name node, "host:port" or the name of a service, is in place of the bucket, and in Azure the
    container, which may be followed by the account: "container@account.dfs.core.windows.net".
    """
    found = urlsplit(uri)
    is_plain = found.netloc and not (found.query or found.fragment)
    if not is_in_object_store(uri) or not is_plain or not _is_bucket(found.netloc, uri):
        raise InputError(
            "this is not a place in an object store",
            where=uri,
            expected="s3://BUCKET/NAME, gs://BUCKET/NAME or abfs://CONTAINER/NAME, whose settings and "
            "credentials are in the section [s3], [gs] or [abfs]; or hdfs://HOST:PORT/NAME",
            remedy="correct the URI",
        )
    return found.netloc, unquote(found.path).strip("/")


def locate_object(uri: str, settings: StoreSettings) -> tuple[pafs.FileSystem, str]:
    """The file system with the buckets of the store, and the path "bucket/name" in it."""
    bucket, name = parts_of(uri)
    return _filesystem(uri, settings), f"{bucket}/{name}".rstrip("/")


def open_place(uri: str, settings: StoreSettings, *, retry_ms: int | None = None) -> tuple[ObjectStore, str]:
    """The bucket of a place and the place's name in it; `retry_ms` in place of the setting."""
    bucket, name = parts_of(uri)
    if retry_ms is not None:
        settings = settings.impatient(retry_ms)
    if is_in_hdfs(uri):
        return HdfsStore(bucket, settings), name
    service = service_of(uri)
    return RenewedStore(lambda: _opened(bucket, settings, service)), name


def _is_bucket(authority: str, uri: str) -> bool:
    """Whether the authority of a place is a bucket; with a user (a container), only those of Azure are."""
    if "@" not in authority:
        return True
    container, _, host = authority.partition("@")
    return not is_in_hdfs(uri) and service_of(uri) is ABFS and bool(container and host) and "@" not in host


def _filesystem(uri: str, settings: StoreSettings) -> pafs.FileSystem:
    # Masters, workers and commands only ask what a place is: Arrow would cost each of them 30 MiB.
    import pyarrow.fs as pafs

    from drivetrain.runtime.objects.hdfs_files import HdfsFiles
    from drivetrain.runtime.objects.object_files import ObjectFiles

    if is_in_hdfs(uri):
        return pafs.PyFileSystem(HdfsFiles(lambda node: _node(node, settings)))
    service = service_of(uri)
    return pafs.PyFileSystem(ObjectFiles(service.section, lambda bucket: _opened(bucket, settings, service)))


def _opened(bucket: str, settings: StoreSettings, service: StoreService) -> ObjectStore:
    """The bucket, with the credentials that the references stand for now: they may have been renewed."""
    return _connected(bucket, settings, tuple(settings.secrets(service.section).items()), service)


@lru_cache(maxsize=64)
def _node(authority: str, settings: StoreSettings) -> HdfsStore:
    return HdfsStore(authority, settings)


@lru_cache(maxsize=64)
def _connected(
    bucket: str, settings: StoreSettings, secrets: tuple[tuple[str, str], ...], service: StoreService
) -> ObjectStore:
    return ObstoreStore(bucket, settings, dict(secrets), service)
