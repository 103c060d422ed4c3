"""The list of the files that Spark's own reader takes, in the state directory of a source.

The design: a directory of links to the files, with a list in the form in which Spark's own sink lists its
files (`_spark_metadata`). The time of a file in that list is its number in the file log, so Spark takes the
files in that order.

The list, and the log that Spark keeps in its checkpoint of what it has taken, hold whole paths. If the state
has moved, from a savepoint or from a copy elsewhere, both get the new paths before the query starts;
otherwise Spark would look for the files where the state was. The links are no part of the state: savepoints
do not have them, and the next start creates them.

What if we die here: the list counts once its file has its name. Spark's log is rewritten file by file, and
the list last, so another start does it again.

Called by `native_files`. Source: Spark's FileStreamSource and MetadataLogFileIndex.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from drivetrain.connectors.files.file_log import FileLog
from drivetrain.durable import sync
from drivetrain.runtime.whole_files import publish_bytes

END_FILE: Final = "drivetrain-end-of-input"
"""The beginning of the names of files with the row that marks the end."""


class NativeListing:
    """The list in the directory `path`."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._list: Final = path / "_spark_metadata" / "0"

    def exists(self) -> bool:
        """Whether the source is read by Spark's own reader."""
        return self._list.exists()

    def prepare(self) -> None:
        """Make the directory empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._list.parent.mkdir(parents=True)

    def write(self, log: FileLog, end_row: pa.Schema | None) -> None:
        """Write the list of the files in `log`; with `end_row` it ends with a file with one row of nulls."""
        lines = []
        for number, file in enumerate(log.files()):
            self._link(number, file.path)
            lines.append(_line_of(self._name(number), file.size_bytes, number))
        if end_row is not None:
            lines.append(self._end_line(end_row, len(lines)))
        self._publish(lines)

    def count(self) -> int:
        """How many files are listed."""
        return len(self._lines())

    def add_end(self, schema: pa.Schema) -> None:
        """List another file with the row that marks the end."""
        self._publish([*self._lines(), self._end_line(schema, self.count())])

    def follow_move(self, log: FileLog, spark_log: str | None) -> None:
        """If the directory has moved since it was written, note its files by their current paths.

        `spark_log` is the directory of Spark's log of what it has taken. Links that are missing are made: a
        savepoint has none.
        """
        for number, file in enumerate(log.files()):
            if not self._name(number).is_symlink():
                self._link(number, file.path)
        lines = [json.loads(line) for line in self._lines()]
        if all(line["path"] == self._uri(line) for line in lines):
            return
        for entries in sorted(Path(spark_log or self.path / "none").glob("[0-9]*")):
            version, *known = entries.read_text().splitlines()
            moved = [
                json.dumps(row | {"path": self._uri(row)}) for row in map(json.loads, filter(None, known))
            ]
            # Spark's checksum beside it would be that of the text before.
            entries.with_name(f".{entries.name}.crc").unlink(missing_ok=True)
            _publish(entries, [version, *moved])
        self._publish([json.dumps(line | {"path": self._uri(line)}) for line in lines])

    def _uri(self, row: dict[str, Any]) -> str:
        """The path of a row's file as it is now."""
        return _uri(self.path / unquote(urlsplit(row["path"]).path).rpartition("/")[2])

    def _name(self, number: int) -> Path:
        # Our own names: Spark hides some, takes `a=b` for a column, and may unpack by a name's ending.
        return self.path / f"{number:06d}"

    def _link(self, number: int, target: str) -> None:
        link = self._name(number)
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def _end_line(self, schema: pa.Schema, number: int) -> str:
        """Make a file with the row that marks the end; returns its line in the list."""
        end = self.path / f"{END_FILE}-{number:06d}.parquet"
        pq.write_table(pa.table([pa.nulls(1, f.type) for f in schema], schema=schema), end)
        sync(str(end))
        return _line_of(end, end.stat().st_size, number)

    def _publish(self, lines: list[str]) -> None:
        _publish(self._list, ["v1", *lines])

    def _lines(self) -> list[str]:
        return self._list.read_text().splitlines()[1:]


def _line_of(path: Path, size_bytes: int, number: int) -> str:
    row = {
        "path": _uri(path),
        "size": size_bytes,
        "isDir": False,
        "modificationTime": number,
        "blockReplication": 1,
        "blockSize": 32 * 2**20,
        "action": "add",
    }
    return json.dumps(row)


def _uri(path: Path) -> str:
    return f"file://{quote(str(path))}"


def _publish(file: Path, lines: list[str]) -> None:
    publish_bytes(pafs.LocalFileSystem(), str(file), "\n".join(lines).encode())
