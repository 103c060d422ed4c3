"""A request to a store, tried again while the store gives no answer.

Called by `obstore_store` and `hdfs_store`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

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
    give_up_s = time.monotonic() + retry_s
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            return request()
        except kinds as error:
            raised = final(error)
            if raised is None and time.monotonic() + wait_s > give_up_s:
                raised = unavailable(error)
            if raised is not None:
                raise raised from error
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
