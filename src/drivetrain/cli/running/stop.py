"""Ctrl-C and termination signals: the first asks the run to drain and stop, the second ends the process.

The second signal ends the process without clean-up, because a user who repeats it has probably seen the clean
stop hang. Even then nothing is lost: a run that is killed at any moment resumes from its last committed
batch, and Spark's Java process ends when this one is gone.

Invariants:
1. After the first signal `requested` stays true, and the previous handlers are restored when the block ends.
2. No signal is ignored.

Called by `drivetrain run`, by commands that watch a cluster, which only stop watching, and by
`cli.running.watch`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_EXIT_TEXT: Final = "stopped at once; the next run resumes from the last committed batch"


class SignalContext:
    """A context in which SIGINT and SIGTERM call `on_signal`; its end restores the previous handlers."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self.on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """React to a signal, between two instructions of the main thread."""
        raise NotImplementedError


class StopSignals(SignalContext):
    """A context in which the first SIGINT or SIGTERM sets `requested` and calls `on_first`.

    The second signal prints `exit_text` and ends the process.
    """

    def __init__(self, on_first: Callable[[], None], exit_text: str = _EXIT_TEXT) -> None:
        super().__init__()
        self._on_first = on_first
        self._exit_text = f"\n{exit_text}\n".encode()
        self._received: signal.Signals | None = None

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._received is not None

    @property
    def exit_code(self) -> int:
        """128 plus the number of the first signal, as in shells; 0 without a signal."""
        return 0 if self._received is None else 128 + self._received

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Stop in order at the first signal, end the process at the second."""
        if self._received is not None:
            # Straight to the descriptor, as the signal may have interrupted a print.
            os.write(2, self._exit_text)
            os._exit(128 + number)
        self._received = signal.Signals(number)
        self._on_first()
