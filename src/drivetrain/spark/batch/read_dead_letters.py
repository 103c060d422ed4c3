"""Reads dead letters: messages that could not be processed.

Under the policy `dead_letter` a message that an operator (or a source) fails on goes to the dead letters of
its fragment, with the operator, the message as text, its origin and the traceback.
"""

from __future__ import annotations

import pyarrow as pa

from drivetrain.api.application import Application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.private_files import Writers
from drivetrain.runtime.dead_letter_pages import stores_below
from drivetrain.runtime.dead_letter_store import SCHEMA, DeadLetterStore
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state_place import state_home


def dead_letter_stores(application: Application, config: Config | None = None) -> list[DeadLetterStore]:
    """The dead letters of an application, by fragment; see `runtime.dead_letter_pages` for how to read them.

    Finds what earlier runs with the same settings left in the state directory; needs no Spark.
    """
    config = config or Config.load(None, {}, {})
    settings = application.naming_settings
    rundir = RunDirectory(state_home(config), application.name, settings, Writers(config[run_keys.WRITERS]))
    return stores_below(rundir.path)


def dead_letters(application: Application, config: Config | None = None) -> pa.Table:
    """All dead letters of an application as one table, fragment by fragment, oldest first.

    The columns are operator, message, file, line, error and timestamp.
    """
    stores = dead_letter_stores(application, config)
    batches = [batch.select(SCHEMA.names) for store in stores for batch in store.batches()]
    return pa.Table.from_batches(batches, schema=SCHEMA)
