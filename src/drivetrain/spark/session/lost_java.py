"""What PySpark's parts in the driver print when Spark's Java process is gone.

The problem: when Java ends, killed or without memory, two threads of PySpark print tracebacks (`EOFError` of
the server that takes accumulators, `Py4JNetworkError` of whatever call was under way), before the error that
Drivetrain tells. They say the same thing, worse.

The design: these two, and nothing else, are left out.

Called by `spark_session`.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from pyspark.sql import SparkSession

_CALL = "Exception while sending command."


def tell_once(spark: SparkSession) -> None:
    """Leave it to Drivetrain to say that Java is gone."""
    root = logging.getLogger()
    if _is_not_lost_call not in root.filters:
        root.addFilter(_is_not_lost_call)  # py4j logs with no logger of its own
    server: Any = spark.sparkContext._accumulatorServer
    told = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            told(request, client_address)

    server.handle_error = handle_error


def _is_not_lost_call(record: logging.LogRecord) -> bool:
    return record.msg != _CALL
