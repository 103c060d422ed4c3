"""A request to a store, tried again while the store gives no answer.

A process that waits for a store stands still, so after `PATIENCE_S` it logs what it waits for, and how
long it will.

Called by `obstore_store` and `hdfs_store`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from drivetrain.errors import UnavailableError
from drivetrain.runtime.growing_pauses import GrowingPauses

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 10.0

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 5.0


def answered(
    request: Callable[[], T],
    retry_s: float,
    kinds: tuple[type[Exception], ...],
    final: Callable[[Exception], Exception | None],
    unavailable: Callable[[Exception], UnavailableError],
) -> T:
    """The answer to `request`, tried again for `retry_s` while it raises errors of `kinds`.

    `final` returns the error to raise at once instead of one of them, or None to try again; `unavailable` the
    one to raise in the end.
    """
    pauses = GrowingPauses(retry_s, first_s=_FIRST_WAIT_S, longest_s=_LONGEST_WAIT_S)
    began_s, is_logged = time.monotonic(), False
    while True:
        try:
            return request()
        except kinds as error:
            raised = final(error)
            if raised is None and pauses.are_over:
                raised = unavailable(error)
            if raised is not None:
                raise raised from error
            waited_s = time.monotonic() - began_s
            if not is_logged and waited_s >= PATIENCE_S:
                is_logged, silent = True, unavailable(error)
                left_s = retry_s - waited_s
                log.warning(
                    "%s: %s (%s); it is asked for %.0f s more", silent.where, silent.what, silent.got, left_s
                )
        pauses.wait()
