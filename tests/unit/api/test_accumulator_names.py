"""Accumulators: names that travel with functions, and count where the engine says."""

from __future__ import annotations

import pytest
from pyspark import cloudpickle

from drivetrain import accumulator
from drivetrain.api.accumulators import collecting_into
from drivetrain.errors import GraphError


class Place:
    """Counts here; `sent` is what a copy that travels counts at."""

    def __init__(self) -> None:
        self.found: list[tuple[str, float]] = []

    def add(self, term: tuple[str, float]) -> None:
        self.found.append(term)


def test_a_function_counts_where_it_was_sent_from_and_nowhere_without_a_run() -> None:
    bad = accumulator("bad.lines-2")
    place = Place()
    bad.add()
    with collecting_into(place):
        bad.add()
        bad.add(-2.5)
    bad.add(7)
    assert place.found == [("bad.lines-2", 1), ("bad.lines-2", -2.5)]


def test_a_copy_that_travels_carries_its_place_and_passes_it_on() -> None:
    counter = accumulator("seen")

    def function() -> None:
        counter.add(3)

    with collecting_into(Place()):
        sent = cloudpickle.dumps(function)
    arrived = cloudpickle.loads(sent)
    again = cloudpickle.loads(cloudpickle.dumps(arrived))
    for one in (arrived, again):
        one()
        (held,) = one.__closure__
        assert held.cell_contents._bound.found[-1] == ("seen", 3)
    unbound = cloudpickle.loads(cloudpickle.dumps(function))
    unbound()


@pytest.mark.parametrize("name", ["", "two words", "1st", "é"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="not a name for an accumulator"):
        accumulator(name)
