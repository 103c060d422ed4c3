from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from drivetrain.api import sources
from drivetrain.errors import GraphError


def test_files_are_bounded_unless_watched() -> None:
    for make in (sources.text, sources.parquet):
        assert make("in").bounded
        assert not make("in", watch=True).bounded


def test_a_source_opens_nothing_compares_by_value_and_can_be_shipped() -> None:
    one = sources.csv(Path("/no/such/dir"), schema="a string", nulls=["NA"])
    assert one == sources.csv("/no/such/dir", schema="a string", nulls=("NA",))
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(AttributeError):
        one.path = "other"  # type: ignore[misc]


def test_generated_messages_lie_apart_by_a_duration() -> None:
    assert sources.generate().step_us == 1_000
    assert sources.generate(every="10 us").step_us == 10
    with pytest.raises(GraphError, match="cannot read every"):
        sources.generate(every="-1 s")


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: sources.text(""), "path"),
        (lambda: sources.text("in", on_bad_record="skip"), "policy"),  # type: ignore[arg-type]
        (lambda: sources.csv("in", schema="a string", delimiter="||"), "delimiter"),
        (lambda: sources.csv("in", schema="a string", quote=""), "quote"),
        (lambda: sources.generate(rows=0), "rows"),
        (lambda: sources.generate(rate_per_s=0), "rate_per_s"),
        (lambda: sources.socket("localhost", 0), "port"),
    ],
)
def test_a_wrong_argument_is_told_when_the_source_is_written(build, what: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(GraphError, match=what) as caught:
        build()
    assert str(caught.value.where).startswith("sources.")
