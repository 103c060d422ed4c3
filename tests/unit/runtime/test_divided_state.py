"""A division of a state whose disk fails at any rename or sync, once or for good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from failing_disk import failing

from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.errors import OutputError
from drivetrain.runtime.state.divided_state import DividedState, settle_all
from drivetrain.runtime.state.state_partitions import SHUFFLE_PARTITIONS, state_partitions
from drivetrain.spark.run.divided_fragment import DividedFragment

BEFORE, AFTER = 2, 5


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The directory of a fragment whose only batch is committed."""
    place = tmp_path / "fragments" / "f"
    _batch(place / "checkpoint", 0, BEFORE)
    return place


def _batch(checkpoint: Path, number: int, partitions: int) -> None:
    for log, text in (
        ("offsets", f"v1\n{json.dumps({'conf': {SHUFFLE_PARTITIONS: str(partitions)}})}\n{{}}"),
        ("commits", "v1"),
    ):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        (checkpoint / log / str(number)).write_text(text)


class Engine:
    """Divides a state as Spark does: by one more batch."""

    def divide(self, checkpoint: Path, partitions: int) -> Iterator[None]:
        yield
        _batch(checkpoint, 1, partitions)


def divide(own: Path) -> str | None:
    """Divide the state as a run does; returns why it was not done."""
    engine: Any = Engine()
    divided = DividedFragment(engine, ScalingState("f", BEFORE, AFTER).drained())
    query: Any = SimpleNamespace(directory=own, checkpoint=own / "checkpoint", batch_id=0)
    driver: Any = SimpleNamespace(is_recovering=False)
    list(divided.divided(query))
    divided.step(driver)
    return divided.state.why


@pytest.fixture(params=["rename", "fsync"])
def call(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def calls_of_a_division(call: str, own: Path) -> int:
    """How many calls a division makes of which each could fail; it is done on a copy."""
    aside = own.parent.parent / "aside"
    _batch(aside / "checkpoint", 0, BEFORE)
    with failing(call, lambda _: False) as calls:
        assert divide(aside) is None
    return calls[0]


def test_an_error_of_the_disk_leaves_one_of_both_states_and_says_which(own: Path, call: str) -> None:
    number = calls_of_a_division(call, own)
    assert number >= 3
    outcomes = set()
    for failed in range(number):
        here = own.parent / f"fails-{failed}"
        _batch(here / "checkpoint", 0, BEFORE)
        with failing(call, lambda n, failed=failed: n == failed):
            why = divide(here)
        found = state_partitions(here / "checkpoint")
        assert found == (AFTER if why is None else BEFORE), f"{call} {failed}: {why}"
        assert not (here / "divided").exists()
        outcomes.add(found)
    assert outcomes == {BEFORE, AFTER}, "no error came before the decision, or none after it"


def test_no_query_starts_when_a_decided_division_cannot_be_completed_and_the_next_process_completes_it(
    own: Path, call: str
) -> None:
    number, raised = calls_of_a_division(call, own), 0
    for first in range(number):
        here = own.parent / f"fails-from-{first}"
        _batch(here / "checkpoint", 0, BEFORE)
        with failing(call, lambda n, first=first: n >= first):
            refused: list[OutputError] = []
            try:
                why = divide(here)
            except OutputError as error:
                refused.append(error)
            if not refused:
                assert why is not None, "it was done on a disk that fails"
                assert state_partitions(here / "checkpoint") == BEFORE
                continue
        raised += 1
        assert "run the application again" in str(refused[0])
        settle_all(own.parent)
        assert state_partitions(here / "checkpoint") == AFTER, f"{call} from {first} on"
        assert not (here / "divided").exists()
    assert raised >= 2


def test_what_replaced_a_checkpoint_is_durable_before_the_former_one_is_deleted(own: Path) -> None:
    """The last rename may have been done, and its directory not synced."""
    place = DividedState(own)
    with failing("fsync", lambda _: False) as calls:
        (own / "divided" / "before").mkdir(parents=True)
        place.settle()
    assert calls[0] == 1
