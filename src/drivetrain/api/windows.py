"""Windows over event time, into which a grouped stream is divided before it is aggregated.

Durations are text with a unit ("10 s", "1 h") and kept in milliseconds. A message at time t is in
[start, end) of its window; a window's result carries the window's last instant, end − 1 ms, as its
timestamp. The application's clock fires windows, so chained windows fire exactly.

Emission:

- `discarding` (default): a window is emitted once, when the clock reaches its end. Messages that
  arrive later, but within the allowed lateness, produce a further result, which
  does not repeat the earlier one.
- `accumulating`: further results replace the earlier ones: they count everything so far. For the
  global window that means: after each batch, the running result of every key that changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from drivetrain.api.durations import duration_text, milliseconds
from drivetrain.api.foreign_operator_names import WINDOW_WORDS
from drivetrain.api.location import caller
from drivetrain.api.spelling import names_of_module
from drivetrain.errors import GraphError

__all__ = [
    "Emission",
    "Window",
    "everything",
    "session",
    "sliding",
    "tumbling",
]

if not TYPE_CHECKING:
    __getattr__ = names_of_module("drivetrain.windows", __all__, WINDOW_WORDS)

Emission = Literal["discarding", "accumulating"]


@dataclass(frozen=True)
class Window:
    """How a stream is divided: `kind` with its lengths in milliseconds, emission, allowed lateness.

    >>> Window("tumbling", size_ms=60_000, step_ms=60_000) == tumbling("1 min")
    True
    """

    kind: Literal["global", "tumbling", "sliding", "session"]
    size_ms: int = 0
    step_ms: int = 0
    emission: Emission = "discarding"
    allowed_lateness_ms: int = 0

    def __str__(self) -> str:
        sizes = {
            "global": "",
            "tumbling": f"({duration_text(self.size_ms)})",
            "sliding": f"({duration_text(self.size_ms)} every {duration_text(self.step_ms)})",
            "session": f"(gap {duration_text(self.size_ms)})",
        }[self.kind]
        late = f", lateness {duration_text(self.allowed_lateness_ms)}" if self.allowed_lateness_ms else ""
        return f"{self.kind}{sizes}{', accumulating' if self.emission == 'accumulating' else ''}{late}"


def everything(*, emission: Emission = "discarding") -> Window:
    """The global window: one result per key when the input ends, or running results.

    >>> print(everything(emission="accumulating"))
    global, accumulating
    """
    return _checked(Window("global", emission=emission))


def tumbling(size: str, *, emission: Emission = "discarding", allowed_lateness: str = "0 s") -> Window:
    """Windows of one size, side by side: [0, size), [size, 2·size), …

    >>> print(tumbling("1 h", allowed_lateness="10 min"))
    tumbling(1 h), lateness 10 min
    """
    ms = milliseconds(size, "the size of a window")
    return _checked(
        Window("tumbling", ms, ms, emission, milliseconds(allowed_lateness, "the allowed lateness"))
    )


def sliding(
    size: str, slide: str, *, emission: Emission = "discarding", allowed_lateness: str = "0 s"
) -> Window:
    """Windows of one size that start every `slide`; a message is in size / slide of them.

    With size 10 and slide 5, a message at 7 is in [0, 10) and [5, 15).

    >>> print(sliding("1 h", "5 min"))
    sliding(1 h every 5 min)
    """
    return _checked(
        Window(
            "sliding",
            milliseconds(size, "the size of a window"),
            milliseconds(slide, "the slide of a window"),
            emission,
            milliseconds(allowed_lateness, "the allowed lateness"),
        )
    )


def session(gap: str) -> Window:
    """One window per burst of a key: it ends when `gap` passes without a message.

    >>> print(session("30 min"))
    session(gap 30 min)
    """
    return _checked(Window("session", milliseconds(gap, "the gap of a session")))


def require_window(window: object) -> None:
    """Raise `GraphError` unless this is a window."""
    if not isinstance(window, Window):
        length = window if isinstance(window, str) else "1 h"
        raise GraphError(
            "window needs one of drivetrain.windows",
            where=str(caller()),
            expected=f"windows.tumbling({length!r}), windows.sliding(...) or windows.session(...)",
            got=repr(window),
        )


def _checked(window: Window) -> Window:
    if window.emission not in ("discarding", "accumulating"):
        raise GraphError(
            "unknown emission", expected='"discarding" or "accumulating"', got=repr(window.emission)
        )
    if window.kind != "global" and window.size_ms <= 0:
        raise GraphError(
            f"a {window.kind} window needs a length", expected="more than 0 ms", got=f"{window.size_ms} ms"
        )
    if window.kind == "sliding" and not 0 < window.step_ms <= window.size_ms:
        raise GraphError(
            "a sliding window's slide leaves gaps",
            expected=f"more than 0 and at most the size, {duration_text(window.size_ms)}",
            got=duration_text(window.step_ms),
        )
    return window
