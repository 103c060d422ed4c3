"""The library of Delta tables: how it is imported, how it reaches object stores, and what its errors mean.

Called by `delta_table` and `opened_delta`. Source: the documentation of delta-rs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.errors import MissingDependencyError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.locations import is_in_hdfs, is_in_object_store
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STORE_ERROR = "Generic S3 error"
_REFUSED = re.compile(r"\b40[0134]\b|NoSuchBucket|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch")


def deltalake() -> Any:
    """The library; raises `MissingDependencyError` without it."""
    try:
        import deltalake
    except ImportError as error:
        raise MissingDependencyError(
            "Delta tables need the package deltalake", remedy="pip install 'drivetrain[delta]'"
        ) from error
    return deltalake


def library_options(place: str, stores: StoreSettings) -> dict[str, str] | None:
    """The settings of object stores, as the library calls them, secrets resolved.

    None for a directory, and for HDFS: the library finds name services by HADOOP_CONF_DIR.
    """
    if not is_in_object_store(place) or is_in_hdfs(place):
        return None
    given = {
        "aws_endpoint": stores.endpoint,
        "aws_region": stores.region,
        "aws_virtual_hosted_style_request": str(not stores.path_style).lower(),
        "aws_conditional_put": "etag",
        "allow_http": "true",
        "timeout": f"{stores.timeout_ms} ms",
        "retry_timeout": f"{stores.retry_ms} ms",
        **{f"aws_{name}": text for name, text in stores.secrets().items()},
    }
    return {name: text for name, text in given.items() if text is not None}


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """The table's columns, in Arrow's types."""
    return pa.schema(table.schema())


def has_table(place: str, stores: StoreSettings) -> bool:
    """Whether there is a table; raises the object store's errors."""
    if not is_in_object_store(place):
        return bool(deltalake().DeltaTable.is_deltatable(place))
    # The library's own question keeps all threads of the process from running until the store answers.
    filesystem, log = locate(f"{place}/_delta_log", stores)
    found = filesystem.get_file_info(pafs.FileSelector(log, allow_not_found=True))
    return any(info.base_name.endswith((".json", ".parquet")) for info in found)


def is_of_store(error: Exception) -> bool:
    """Whether an object store gave no answer, so that what it has done is not known."""
    text = str(error)
    return _STORE_ERROR in text and not _REFUSED.search(text)
