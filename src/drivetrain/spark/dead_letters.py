"""Read back the messages that could not be processed.

Under the policy `dead_letter` a message that an operator (or a source) fails on goes to a channel of
its fragment, with the operator, the message as text, where it came from and the traceback.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from drivetrain.api.application import Application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.spark.channel.columns import TS
from drivetrain.spark.channel.segments import read_segment
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.spark.rundir import RunDirectory

SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("message", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("error", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def dead_letters(application: Application, config: Config | None = None) -> pa.Table:
    """The dead letters of an application, oldest first: operator, message, file, line, error, timestamp.

    Reads what earlier runs with the same settings left in the state directory; needs no Spark.
    """
    config = config or Config.load(None, {}, {})
    settings = {name: setting.value for name, setting in application.settings.items()}
    rundir = RunDirectory(config[run_keys.STATE_DIR], application.name, settings)
    root = rundir.path / "dead-letters"
    fragments = sorted(root.iterdir()) if root.is_dir() else []
    tables = [table for fragment in fragments for table in _letters(fragment)]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _letters(fragment: Path) -> list[pa.Table]:
    store = ChannelStore(str(fragment))
    tables = []
    for entry in store.entries(store.start()):
        for segment in entry.segments:
            for batch in read_segment(store.files, segment):
                table = pa.Table.from_batches([batch])
                names = ["timestamp" if n == TS else n for n in table.schema.names]
                tables.append(table.rename_columns(names).select(SCHEMA.names).cast(SCHEMA))
    return tables
