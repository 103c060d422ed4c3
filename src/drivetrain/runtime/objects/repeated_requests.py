"""A request to a store, tried again while the store gives no answer.

Called by `obstore_store` and `hdfs_store`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from drivetrain.runtime.growing_pauses import GrowingPauses

T = TypeVar("T")

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 5.0


def answered(
    request: Callable[[], T],
    retry_s: float,
    kinds: tuple[type[Exception], ...],
    final: Callable[[Exception], Exception | None],
    unavailable: Callable[[Exception], Exception],
) -> T:
    """The answer to `request`, tried again for `retry_s` while it raises errors of `kinds`.

    `final` returns the error to raise at once instead of one of them, or None to try again; `unavailable` the
    one to raise in the end.
    """
    pauses = GrowingPauses(retry_s, first_s=_FIRST_WAIT_S, longest_s=_LONGEST_WAIT_S)
    while True:
        try:
            return request()
        except kinds as error:
            raised = final(error)
            if raised is None and pauses.are_over:
                raised = unavailable(error)
            if raised is not None:
                raise raised from error
        pauses.wait()
