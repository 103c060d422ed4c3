"""A place of one test in a store, of whichever kind: how it is reached, and what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from drivetrain.config import Config
from drivetrain.runtime.file_locations import FoundFile, list_files, locate
from drivetrain.runtime.objects.settings import StoreSettings


@dataclass(frozen=True)
class StoredPlace:
    """`uri` is a bucket, or a directory of HDFS; `sets` are the keys of the configuration that reach it."""

    uri: str
    sets: Mapping[str, str]

    def files(self, folder: str) -> list[FoundFile]:
        """What readers see below a folder."""
        filesystem, root = self._located(folder)
        return list_files(filesystem, root, None)

    def rows(self, folder: str) -> list[dict[str, Any]]:
        """The rows of the Parquet files in a folder."""
        filesystem, _ = self._located(folder)
        tables = [pq.read_table(filesystem.open_input_file(found.path)) for found in self.files(folder)]
        return [row for table in tables for row in table.to_pylist()]

    def write(self, name: str, content: bytes) -> None:
        """Put a file there, whole."""
        filesystem, path = self._located(name)
        with filesystem.open_output_stream(path) as stream:
            stream.write(content)

    def _located(self, folder: str) -> tuple[Any, str]:
        settings = StoreSettings.of(Config.load(None, {}, dict(self.sets)))
        return locate(f"{self.uri}/{folder}", settings)
