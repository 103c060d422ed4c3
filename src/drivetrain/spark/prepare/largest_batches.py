"""The largest share of one batch in each input of a trunk."""

from __future__ import annotations

from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.spark.measure.batch_limit import DEFAULT_BATCH_ROWS
from drivetrain.spark.prepare.trunk import Trunk


def largest_batches(trunk: Trunk, config: Config) -> dict[str, int]:
    """The most that a batch takes of each input of a trunk, for inputs whose reader observes the limit."""
    found = {}
    for id in trunk.inputs:
        source = None if id is None else trunk.sources.get(id)
        limited_by = "bytes" if source is None else source.limited_by  # channels keep to bytes
        if id is None or limited_by is None:
            continue
        if limited_by == "rows":
            found[id] = config[run_keys.MAX_BATCH_ROWS] or DEFAULT_BATCH_ROWS
        else:
            found[id] = config[run_keys.MAX_BATCH_BYTES]
    return found
