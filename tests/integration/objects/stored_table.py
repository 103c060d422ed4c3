"""A table of some format in a real object store, for tests that write to it and read it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from drivetrain.api import sinks
from drivetrain.config import Config
from drivetrain.connectors.opening import open_sink
from drivetrain.spark.connector.sink import SinkContext
from object_store import ACCESS_KEY, SECRET_KEY, S3Server


class StoredTable:
    """A table of some format in a bucket, written through `endpoint`, read without it."""

    def __init__(self, kind: str, s3: S3Server, bucket: str, directory: Path) -> None:
        self.kind = kind
        self._s3 = s3
        self._bucket = s3.bucket(bucket).name
        self._directory = directory
        self.endpoint = s3.endpoint

    def open(self, id: str = "a", *, app: str = "app-1", **how: Any) -> Any:
        context = SinkContext(app, id, str(self._directory / app / id), self.config())
        return open_sink(self.declared(**how), context)

    def declared(self, **how: Any) -> Any:
        if self.kind == "delta":
            return sinks.delta(f"s3://{self._bucket}/deep/table", **how)
        return sinks.iceberg("s.table", catalog="lake", options=self._options(), **how)

    def config(self) -> Config:
        return Config.load(None, {}, self._s3.sets(self.endpoint))

    def command(self) -> list[str]:
        """What follows `drivetrain compact`."""
        words = [f"s3://{self._bucket}/deep/table"]
        if self.kind == "iceberg":
            words = ["s.table", "--catalog", "lake"]
            words += [word for pair in self._options().items() for word in ("--option", "=".join(pair))]
        for pair in self._s3.sets(self.endpoint).items():
            words += ["--set", "=".join(pair)]
        return words

    def ids(self) -> list[int]:
        reached = {
            "aws_endpoint": self._s3.endpoint,
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }
        if self.kind == "delta":
            found = pl.read_delta(f"s3://{self._bucket}/deep/table", storage_options=reached)
        else:
            from pyiceberg.catalog import load_catalog

            properties = {
                "s3.endpoint": self._s3.endpoint,
                "s3.region": "us-east-1",
                "s3.access-key-id": ACCESS_KEY,
                "s3.secret-access-key": SECRET_KEY,
            }
            table = load_catalog("lake", **self._options(), **properties).load_table("s.table")
            scan = pl.scan_iceberg(table, reader_override="native", storage_options=reached)
            found = scan.collect()
        return sorted(found["id"].to_list())

    def _options(self) -> dict[str, str]:
        return {
            "uri": f"sqlite:///{self._directory}/catalog.db",
            "warehouse": f"s3://{self._bucket}/deep",
        }
