"""`drivetrain state`: what a key may have been written as, and what is printed."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from drivetrain.cli.inspection.state import as_data, of_key, readings, show
from drivetrain.config import Config
from drivetrain.errors import UserError
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.spark.entry_points import state
from drivetrain.spark.state.state_query import StateEntry, States
from drivetrain.terminal import Console

HOUR = 3_600_000


class Answers:
    processor = "counts"

    def __init__(self, known: dict[Any, Any]) -> None:
        self.known = known

    def get(self, key: Any, at: Any = None) -> Any:
        return self.known.get(key)

    def clock_ms(self) -> int:
        return 10 * HOUR


def test_a_key_is_text_first_and_then_what_json_says() -> None:
    assert readings("north") == ["north"]
    assert readings("7") == ["7", 7]
    assert readings('["a", 7]') == ['["a", 7]', ("a", 7)]
    states = cast(States, Answers({7: 1, ("a", 7): 2, "8": 3}))
    assert of_key(states, "7", None) == [StateEntry(7, 1)]
    assert of_key(states, "8", None) == [StateEntry("8", 3)]
    assert of_key(states, '["a", 7]', None) == [StateEntry(("a", 7), 2)]
    with pytest.raises(UserError, match="no state has the key 'x'"):
        of_key(states, "x", None)


def test_windows_of_a_key_are_shown_one_by_one() -> None:
    states = cast(States, Answers({"a": {(HOUR, 2 * HOUR): 5, (0, HOUR): 4}}))
    found = of_key(states, "a", None)
    assert found == [StateEntry("a", 4, (0, HOUR)), StateEntry("a", 5, (HOUR, 2 * HOUR))]
    data = as_data(states, found, None)
    assert data["states"][0] == {"key": "a", "window": {"start_ms": 0, "end_ms": HOUR}, "value": 4}
    assert json.loads(json.dumps(data))["clock_ms"] == 10 * HOUR
    console = Console(width=100, record=True)
    show(states, found, None, 1, console)
    text = console.export_text()
    assert "1970-01-01T00:00:00+00:00 – 1970-01-01T01:00:00+00:00" in text
    assert "1 of 2 states of counts, now; the clock is at" in text


def test_an_application_that_has_not_run_is_named_with_those_that_have(tmp_path: Path) -> None:
    (tmp_path / "shop-1234").mkdir()
    notes = DurableFile(tmp_path / "shop-1234" / "application.json", "notes", if_damaged="", if_full="")
    notes.write(b'{"application": "shop", "settings": {}}')
    config = Config.load(None, {}, {"state.dir": str(tmp_path)})
    with pytest.raises(UserError, match="one of shop-1234"):
        state("other", "counts", config)
    with pytest.raises(UserError, match="that has run"):
        state("shop", "counts", Config.load(None, {}, {"state.dir": str(tmp_path / "nothing")}))


@dataclass(frozen=True)
class Item:
    name: str
    day: dt.date


def test_states_of_any_type_are_json() -> None:
    value = {
        "last": Item("tea", dt.date(2024, 5, 1)),
        "by_day": {dt.date(2024, 5, 1): [Item("milk", dt.date(2024, 5, 2))]},
        "by_pair": {("a", 7): 1, 7: 2, "x": Decimal("1.50")},
    }
    states = cast(States, Answers({}))
    data = as_data(states, [StateEntry(("k", 1), value)], None)
    assert json.loads(json.dumps(data, default=str))["states"] == [
        {
            "key": ["k", 1],
            "value": {
                "last": {"name": "tea", "day": "2024-05-01"},
                "by_day": {"2024-05-01": [{"name": "milk", "day": "2024-05-02"}]},
                "by_pair": {'["a", 7]': 1, "7": 2, "x": "1.50"},
            },
        }
    ]
