"""A recorded state directory: what an application of the recorded cluster keeps, in the real formats."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
from recorded_cluster import HOSTILE, TRACEBACK

from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore

LETTERS = 120


def write(state: Path, application: str) -> None:
    """Write the state of an application."""
    if application in ("shop", "many"):
        texts = HOSTILE if application == "many" else [f'{{"sku": "B-{n}"}}' for n in range(LETTERS)]
        _dead_letters(state / "dead-letters" / "orders", list(texts))
    state.mkdir(parents=True, exist_ok=True)


def _dead_letters(place: Path, messages: list[str]) -> None:
    store = ChannelStore(str(place), fragment="orders", durable=False)
    columns = {
        "operator": ["price_of"] * len(messages),
        "message": messages,
        "file": ["orders.jsonl"] * len(messages),
        "line": list(range(1, len(messages) + 1)),
        "error": [f"{TRACEBACK}{text}" if text in HOSTILE else TRACEBACK for text in messages],
        TS: pa.array([dt.datetime(2026, 11, 18, tzinfo=dt.UTC)] * len(messages), pa.timestamp("us", "UTC")),
    }
    store.append(0, [write_segment(store.files, "orders-0", pa.table(columns).to_batches())], 0)
