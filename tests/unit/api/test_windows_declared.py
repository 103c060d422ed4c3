"""Windows as they are declared: checked at once, told in a few words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drivetrain.api.windows import Window, everything, session, sliding, tumbling
from drivetrain.errors import GraphError


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (everything(), "global"),
        (everything(emission="accumulating"), "global, accumulating"),
        (tumbling("1 h"), "tumbling(1 h)"),
        (sliding("10 min", "5 min"), "sliding(10 min every 5 min)"),
        (session("30 s"), "session(gap 30 s)"),
        (
            tumbling("1 h", emission="accumulating", allowed_lateness="5 min"),
            "tumbling(1 h), accumulating, lateness 5 min",
        ),
    ],
)
def test_a_window_is_told_in_a_few_words(window: Window, text: str) -> None:
    assert str(window) == text


def test_a_tumbling_window_steps_by_its_size() -> None:
    assert tumbling("10 s") == Window("tumbling", 10_000, 10_000)
    assert sliding("10 s", "10 s").step_ms == 10_000


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: tumbling("0 s"), "a tumbling window needs a length"),
        (lambda: session("0 s"), "a session window needs a length"),
        (lambda: sliding("0 s", "0 s"), "a sliding window needs a length"),
        (lambda: sliding("10 s", "0 s"), "leaves gaps"),
        (lambda: sliding("10 s", "11 s"), "leaves gaps"),
        (lambda: tumbling("10"), "cannot read the size of a window"),
        (lambda: sliding("10 s", "x"), "cannot read the slide of a window"),
        (lambda: session("x"), "cannot read the gap of a session"),
        (lambda: tumbling("1 s", allowed_lateness="x"), "cannot read the allowed lateness"),
        (lambda: everything(emission="twice"), "unknown emission"),  # type: ignore[arg-type]
    ],
)
def test_a_window_that_cannot_be_is_refused_where_it_is_written(
    make: Callable[[], Window], what: str
) -> None:
    with pytest.raises(GraphError, match=what):
        make()
