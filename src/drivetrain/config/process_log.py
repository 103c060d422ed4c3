"""The log of a process of the cluster, on standard error: lines of text, or one JSON object a line.

Problem: people read lines; programs that collect logs (of containers, of the journal) want fields, and one
entry a line even where it has a traceback.

Design: a handler of the root logger with one of two formatters. Both remove the secrets that this process has
resolved. The JSON one escapes everything that is not ASCII, so that no text breaks a line or a terminal.

Invariant: an entry in JSON is one line, whatever its message contains.

Called by `cli.clusters.cluster_commands`, `cli.consoles.console`, by application masters and by executors.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from drivetrain.config.catalog import log as keys
from drivetrain.config.config import Config
from drivetrain.config.references import ScrubbingFormatter, scrubbed

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Formats an entry as one JSON object with `fields`: time, level, logger, message, and a traceback."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__()
        self._fields: Final = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        """The object as one line, without secrets."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            **self._fields,
            "message": scrubbed(record.getMessage()),
        }
        if record.exc_info:
            entry["traceback"] = scrubbed(self.formatException(record.exc_info))
        return json.dumps(entry)


def log_to_standard_error(config: Config, **fields: str) -> None:
    """Write the log of this process to standard error, as `log.format` says; `fields` are for JSON."""
    handler = logging.StreamHandler()
    is_json = config[keys.FORMAT] == "json"
    handler.setFormatter(JsonFormatter(fields) if is_json else ScrubbingFormatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
