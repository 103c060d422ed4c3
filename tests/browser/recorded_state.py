"""A recorded state directory of an application of the recorded cluster, in the real formats."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import msgspec
import pyarrow as pa
from recorded_cluster import HOSTILE, HOUR_MS, NOW_MS, TRACEBACK, history_of, shop

from drivetrain.api.moments import moment_ms
from drivetrain.code.fingerprint import fingerprint
from drivetrain.console.answers.states import StateEntries, StateEntry
from drivetrain.console.past.history_file import HistoryFile
from drivetrain.console.past.recorder import FILE
from drivetrain.console.planning.requests import ReadStates
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.job.history import SPAN_MS
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.runtime.late_samples import LateMessage, LateSamples

LETTERS = 120
REASON_VARIABLE = "RECORDED_REASON"
"""Why a version was rolled back; hostile text unless the environment has another, for pictures."""


def write(state: Path, application: str) -> None:
    """Write the state of an application."""
    if application in ("shop", "many"):
        texts = HOSTILE if application == "many" else [f'{{"sku": "B-{n}"}}' for n in range(LETTERS)]
        (state / "fragments" / "alarm").mkdir(parents=True)
        (state / "fragments" / "alarm" / "operator").touch()
        _dead_letters(state / "dead-letters" / "orders", list(texts))
        _late_messages(state, list(texts)[-60:])
    state.mkdir(parents=True, exist_ok=True)
    _versions(state)


def write_history(directory: Path) -> None:
    """The figures that the console recorded while an application ran for 25 hours: every moment of the last
    15 minutes, and before that one every five minutes."""
    file = HistoryFile(directory / FILE)
    last = history_of("shop-40", NOW_MS).moments
    earlier = [
        msgspec.structs.replace(moment, at_ms=moment.at_ms - number * SPAN_MS)
        for number in range(99, 0, -1)
        for moment in last[::30]
    ]
    file.note("shop-40", [*earlier, *last], NOW_MS)
    file.close()


def _versions(state: Path) -> None:
    """A version that was run, another, one that was rolled back, and one that is on trial."""
    kept = GraphVersions(state)
    kept.note(version_of(shop(is_earlier=True), fingerprint))
    first = version_of(shop(), fingerprint)
    alarm = msgspec.structs.replace(first.processors["alarm"], fingerprint="another")
    changed = msgspec.structs.replace(first, processors={**first.processors, "alarm": alarm})
    kept.note(first, "update")
    kept.note_ending(2, Outcome.DONE)
    kept.note(changed, "update")
    kept.note_ending(3, Outcome.ROLLED_BACK, "alarm", os.environ.get(REASON_VARIABLE, HOSTILE[0]))
    kept.note(changed, "rollback")


def states_of(asked: ReadStates) -> StateEntries:
    """The answer of the process that reads states: hostile texts in windows, or one key."""
    keys = [*HOSTILE, *(f"sku-{number}" for number in range(30))] if asked.key is None else [asked.key]
    return StateEntries(
        processor=asked.processor,
        at_ms=None if asked.at is None else moment_ms(asked.at, "at"),
        clock_ms=NOW_MS,
        count=len(keys) if asked.key else 12_345,
        states=tuple(
            StateEntry(
                key=json.dumps(key, ensure_ascii=False),
                value=json.dumps({"alarms": number, "last": key}, ensure_ascii=False),
                start_ms=NOW_MS - HOUR_MS,
                end_ms=NOW_MS,
                is_cut=False,
            )
            for number, key in enumerate(keys)
        ),
        first_ms=NOW_MS - 48 * HOUR_MS,
        last_ms=NOW_MS,
        step_ms=HOUR_MS,
    )


def _late_messages(state: Path, messages: list[str]) -> None:
    def samples(first: int) -> list[LateMessage]:
        return [
            LateMessage(
                number=first + number,
                processor="by_day",
                message=message,
                is_cut=False,
                timestamp_ms=NOW_MS - 49 * HOUR_MS - number,
                clock_ms=NOW_MS - 48 * HOUR_MS,
                batch=12,
                stored_ms=NOW_MS,
            )
            for number, message in enumerate(messages)
        ]

    LateSamples(state, "by_day").add(samples, 1_000)


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
