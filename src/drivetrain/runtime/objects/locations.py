"""Places in object stores: from a URI to the file system that has it.

Called by `runtime.file_locations` and by `drivetrain doctor`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from drivetrain.errors import InputError
from drivetrain.runtime.objects.object_store import ObjectStore
from drivetrain.runtime.objects.obstore_store import ObstoreStore
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    import pyarrow.fs as pafs

SCHEMES = ("s3://", "s3a://")


def is_in_object_store(path_or_uri: str) -> bool:
    """Whether a place is in an object store that the section `[s3]` configures."""
    return path_or_uri.startswith(SCHEMES)


def parts_of(uri: str) -> tuple[str, str]:
    """The bucket of a place, and its name there ("" for the bucket itself); raises `InputError`."""
    found = urlsplit(uri)
    is_plain = found.netloc and not (found.query or found.fragment or "@" in found.netloc)
    if not is_plain or not is_in_object_store(uri):
        raise InputError(
            "this is not a place in an object store",
            where=uri,
            expected="s3://BUCKET/NAME; settings and credentials are in the section [s3]",
            remedy="correct the URI",
        )
    return found.netloc, unquote(found.path).strip("/")


def locate_object(uri: str, settings: StoreSettings) -> tuple[pafs.FileSystem, str]:
    """The file system with the buckets of the store, and the path "bucket/name" in it."""
    bucket, name = parts_of(uri)
    return _filesystem(settings), f"{bucket}/{name}".rstrip("/")


def open_place(uri: str, settings: StoreSettings, *, retry_ms: int | None = None) -> tuple[ObjectStore, str]:
    """The bucket of a place and the place's name in it; `retry_ms` in place of the setting."""
    bucket, name = parts_of(uri)
    chosen = settings if retry_ms is None else replace(settings, retry_ms=retry_ms)
    return ObstoreStore(bucket, chosen), name


def _filesystem(settings: StoreSettings) -> pafs.FileSystem:
    # Masters, workers and commands only ask what a place is: Arrow would cost each of them 30 MiB.
    import pyarrow.fs as pafs

    from drivetrain.runtime.objects.object_files import ObjectFiles

    return pafs.PyFileSystem(ObjectFiles("s3", lambda bucket: _opened(bucket, settings)))


def _opened(bucket: str, settings: StoreSettings) -> ObjectStore:
    """The bucket, with the credentials that the references stand for now: they may have been renewed."""
    return _connected(bucket, settings, tuple(settings.secrets().items()))


@lru_cache(maxsize=64)
def _connected(bucket: str, settings: StoreSettings, secrets: tuple[tuple[str, str], ...]) -> ObjectStore:
    return ObstoreStore(bucket, settings, dict(secrets))
