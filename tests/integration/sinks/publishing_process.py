"""A process that prepares and publishes to a ledger and to balances, until it is killed.

    python publishing_process.py <directory> <path of SQLite, or url of a server>

For every line of its input it forks such a process, and prints its id: importing takes longer than the
process lives.

It does the same as an application's checkpoints: the record with the batches of a transaction is written
before anything of it is published, and a process that starts publishes what is in the record, and drops the
rest.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "spark" / "sinks"))

from sink_worlds import stage  # noqa: E402

from drivetrain.api import sinks  # noqa: E402
from drivetrain.connectors.opening import open_sink  # noqa: E402
from drivetrain.runtime.whole_files import publish_bytes  # noqa: E402
from drivetrain.spark.connector.publishing import abort_after, publish_transaction  # noqa: E402
from drivetrain.spark.connector.sink import SinkContext  # noqa: E402

ROWS = 20


def main(directory: Path, place: str) -> None:
    def sink(table: str, **settings: Any) -> Any:
        if place.startswith("postgresql:"):
            return sinks.postgresql(place, table, **settings)
        if place.startswith("mariadb:"):
            return sinks.mysql(place, table, **settings)
        return sinks.sqlite(place, table, **settings)

    declared = {"ledger": sink("ledger"), "balances": sink("balances", mode="upsert", key=["account"])}
    opened = {
        id: open_sink(one, SinkContext("app-1", id, str(directory / id))) for id, one in declared.items()
    }
    for one in opened.values():
        one.validate()
    record = directory / "record"
    last = json.loads(record.read_text()) if record.exists() else -1
    publish_transaction(opened, last, dict.fromkeys(opened, last))
    for one in opened.values():
        abort_after(one, last)
    print("ready", flush=True)
    random.seed(os.getpid())
    while True:
        for batch in range(last + 1, last + 1 + random.randint(1, 3)):
            ids = range(batch * ROWS, (batch + 1) * ROWS)
            stage(opened["ledger"], batch, pa.table({"id": pa.array(ids, pa.int64())}))
            stage(opened["balances"], batch, pa.table({"account": ["all"], "entries": [(batch + 1) * ROWS]}))
        publish_bytes(pafs.LocalFileSystem(), str(record), json.dumps(batch).encode())
        last = batch
        publish_transaction(opened, last, dict.fromkeys(opened, last))
        print(last, flush=True)


def fork() -> None:
    """Fork one process for each line of the input."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            print("process", os.getpid(), flush=True)
            main(Path(sys.argv[1]), sys.argv[2])
        os.waitpid(child, 0)


if __name__ == "__main__":
    fork()
