"""Ctrl-C and termination signals: the first asks the run to drain and stop, the second ends the process.

Why the second ends the process without clean-up: the user has asked twice, and whatever is waited for is
what does not come. Nothing is lost by it: a run that is killed at any moment resumes from its last
committed batch, and Spark's Java process ends by itself when this one is gone.

Invariants:
1. After the first signal `requested` is true for good, and the handlers of before are back when the block
ends.
2. No signal is ignored.

Called by `drivetrain run`, and by what watches a cluster, where stopping means looking away.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LAST_WORDS: Final = "stopped at once; the next run resumes from the last committed batch"


class StopSignals:
    """A context in which the first SIGINT or SIGTERM sets `requested` and calls `on_first`.

    `last_words` are what the second one says.
    """

    def __init__(self, on_first: Callable[[], None], last_words: str = _LAST_WORDS) -> None:
        self._on_first = on_first
        self._last_words = f"\n{last_words}\n".encode()
        self._received: signal.Signals | None = None
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return self._received is not None

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal that came, as shells count; 0 when none came."""
        return 0 if self._received is None else 128 + self._received

    def __enter__(self) -> StopSignals:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._received is not None:
            # Straight to the descriptor: the signal may have come in the middle of a print.
            os.write(2, self._last_words)
            os._exit(128 + number)
        self._received = signal.Signals(number)
        self._on_first()
