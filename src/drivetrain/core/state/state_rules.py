"""The rules of a persistent Task's states: monoid, codec, window and step; and the results of ended windows.

Called by `two_state` and by layer `spark`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from drivetrain.api.monoids import Monoid
from drivetrain.api.persistent import Codec
from drivetrain.api.windows import Window
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.state.window_state import assign

S = TypeVar("S")

Span: TypeAlias = tuple[int, int]
"""A window, from its start to before its end, in ms; `EVER` where there are no windows."""
EVER: Final[Span] = (0, 0)


@dataclass(frozen=True)
class StateRules(Generic[S]):
    """How the states of a processor are merged and encoded, and divided into windows and panes.

    `signature` describes the rules; states with another one are not read.
    """

    monoid: Monoid[Any, S]
    codec: Codec[S]
    signature: str
    step_ms: int | None = None
    window: Window | None = None

    def spans(self, ts_ms: int) -> Iterable[Span]:
        """The windows that contain a message with this timestamp."""
        return (EVER,) if self.window is None else assign(self.window, ts_ms, FINAL_CLOCK_MS)

    def pane(self, ts_ms: int) -> int:
        """The beginning of a message's pane; messages of one pane may be merged beforehand."""
        return 0 if self.step_ms is None else ts_ms - ts_ms % self.step_ms


@dataclass(frozen=True)
class Ended(Generic[S]):
    """The last state of a key in a window that has ended."""

    span: Span
    key: bytes
    state: S
