"""The progress of a channel and its subscriber, as users see it.

Problem: the engine of an embedded run, the executors of a cluster and the programs that show an application
must mean the same by lag, unacknowledged and blocked.

Design: one frozen record per channel, made by the process that runs its subscriber. It can be sent as a
message.

Invariants, checked by `check`:

1. No count is negative.
2. Unacknowledged messages were sent: if no subscriber has ever acknowledged anything, the channel's whole log
   is unacknowledged.

Made by layer `spark`; carried in a fragment's progress; shown by the command line.
"""

from __future__ import annotations

import msgspec

from drivetrain.errors import InternalError


class ChannelProgress(msgspec.Struct, frozen=True, array_like=True):
    """One channel at one moment.

    `clock_ms` is the clock of its last entry (None: no entry yet). Lag is what the subscriber has not
    committed: in messages, bytes, and event time (the channel's clock minus the subscriber's; after the end
    of the input, the newest timestamp instead of the clock). Unacknowledged counts what the producer has sent
    without receiving an acknowledgement; at `window_rows` or `window_bytes` the producer is blocked, for
    `blocked_ms` milliseconds so far (0: it is not blocked). `losses` counts damaged or missing segments and
    entries, `replays` the repaired entries, both since the application began. `kept_bytes` is the channel's
    size on disk. `dropped` messages are gone because the subscriber, another application, was too slow.
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
    dropped: int = 0

    def check(self) -> None:
        """Raise InternalError for a count below zero."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and value < 0 and name not in ("clock_ms", "lag_ms"):
                raise InternalError(f"{name} of a channel is negative: {value}", where=self.channel)
