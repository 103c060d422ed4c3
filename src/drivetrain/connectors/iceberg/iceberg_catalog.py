"""Catalogs of Iceberg tables, and how the files of their tables are reached.

The problem: the catalog decides which file describes a table, and it is durable before the files are: the
library leaves those to the system. A machine that loses its power would leave a table that nobody can read.

The design: catalogs are opened with our own class of files, which syncs what it writes to a disk. Settings
come from the declaration, with references in place of secrets, from the section `[s3]`, and from pyiceberg's
own configuration.

Called by `iceberg_table`. Source: pyiceberg's documentation, "Catalogs" and "FileIO".
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from drivetrain.api.connectors.iceberg_sink import IcebergSink
from drivetrain.config.references import resolved_options
from drivetrain.errors import MissingDependencyError
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

FILES = "py-io-impl"
_TRIES = 20
_PAUSE_S = 0.1


@dataclass(frozen=True)
class IcebergPlace:
    """The directory of a table's data files, with the way to reach it, as its catalog has it."""

    location: str
    properties: tuple[tuple[str, str], ...]

    def open(self) -> tuple[pafs.FileSystem, str]:
        """The file system, and the directory in it."""
        return _opened(self)


@lru_cache(maxsize=32)
def _opened(place: IcebergPlace) -> tuple[pafs.FileSystem, str]:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    properties = dict(place.properties)
    scheme, bucket, path = PyArrowFileIO.parse_location(place.location, properties)
    return PyArrowFileIO(properties).fs_by_scheme(scheme, bucket), path


def open_catalog(sink: IcebergSink, stores: StoreSettings) -> Catalog:
    """The catalog of a sink; raises `MissingDependencyError`, and the errors of the library."""
    _require_library(sink.name)
    from pyiceberg.catalog import load_catalog

    from drivetrain.connectors.iceberg.synced_files import SyncedFiles

    given = resolved_options(dict(sink.options), sink.name)
    properties = {
        FILES: f"{SyncedFiles.__module__}.{SyncedFiles.__qualname__}",
        **_of_stores(stores),
        **given,
    }
    for left in reversed(range(_TRIES)):
        try:
            return load_catalog(sink.catalog, **properties)
        except Exception as error:
            # Of several processes that make the tables of a catalog in one database, one succeeds.
            if not left or not is_of_database(error):
                raise
        time.sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


def is_of_database(error: Exception) -> bool:
    """Whether the database of a catalog was busy, or another process has just written the same."""
    return type(error).__name__ in ("OperationalError", "IntegrityError")


def local_path(uri: str) -> str | None:
    """The path of a file of the local disk; None for other places."""
    if uri.startswith("file:"):
        return "/" + uri.removeprefix("file:").lstrip("/")
    return None if "://" in uri else os.path.abspath(uri)


def _of_stores(stores: StoreSettings) -> Mapping[str, str]:
    if stores.endpoint is None and stores.access_key is None:
        return {}
    secrets = stores.secrets()
    given: dict[str, Any] = {
        "s3.endpoint": stores.endpoint,
        "s3.region": stores.region,
        "s3.access-key-id": secrets.get("access_key_id"),
        "s3.secret-access-key": secrets.get("secret_access_key"),
        "s3.session-token": secrets.get("session_token"),
        "s3.force-virtual-addressing": str(not stores.path_style),
        "s3.request-timeout": str(stores.timeout_ms / 1000),
    }
    return {name: text for name, text in given.items() if text is not None}


def _require_library(where: str) -> None:
    try:
        import pyiceberg.catalog  # noqa: F401 - to see whether it is there
    except ImportError as error:
        raise MissingDependencyError(
            "Iceberg tables need the package pyiceberg",
            where=where,
            remedy="pip install 'drivetrain[iceberg]'; in a cluster on every worker",
        ) from error
