"""How far a channel and its subscriber have come: what users are shown of it.

Problem: the engine of an embedded run, the executors of a cluster and whoever shows an application must
mean the same by lag, by unacknowledged and by blocked.

Design: one frozen record a channel, as the process that runs its subscriber sees it. A record may be sent.

Invariants, checked by `check`:

1. No count is negative.
2. What is unacknowledged was sent: a channel without a subscriber that was ever heard has its whole log
   unacknowledged.

Made by layer `spark`; carried in a fragment's progress; shown by the command line.
"""

from __future__ import annotations

import msgspec

from drivetrain.errors import InternalError


class ChannelProgress(msgspec.Struct, frozen=True, array_like=True):
    """One channel at one moment.

    `clock_ms` is the clock that its last entry says (None: none yet). Lag is what the subscriber has not
    committed: in messages, bytes, and event time (the channel's clock minus the subscriber's; behind the end
    of the input, the newest timestamp instead of the clock). Unacknowledged is what the producer has sent and
    not heard of; at `window_rows` or `window_bytes` it is blocked, since `blocked_ms` milliseconds (0: it is
    not). `losses` counts damaged or missing segments and entries that were found, `replays` the entries that
    were made again, both since the application began. `kept_bytes` is what the channel takes on disk.
    """

    channel: str
    producer: str
    subscriber: str
    clock_ms: int | None = None
    lag_rows: int = 0
    lag_bytes: int = 0
    lag_ms: int | None = None
    unacknowledged_rows: int = 0
    unacknowledged_bytes: int = 0
    window_rows: int = 0
    window_bytes: int = 0
    blocked_ms: int = 0
    losses: int = 0
    replays: int = 0
    kept_bytes: int = 0

    def check(self) -> None:
        """Raise InternalError for a count below zero."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and value < 0 and name not in ("clock_ms", "lag_ms"):
                raise InternalError(f"{name} of a channel is negative: {value}", where=self.channel)
