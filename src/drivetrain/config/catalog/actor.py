"""Keys of the actor system: timeouts, limits, failure detection, and the purgatory for them.

The defaults of the ask and lookup timeouts, the frame limit and the threshold are Flink's; the
purgatory's are Kafka's. The heartbeat interval is a tenth of Flink's, at Flink's proportion of interval
to pause.
"""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, integer, number, size_bytes

ASK_TIMEOUT: Final = Key(
    "actor.ask.timeout",
    duration_ms(minimum_ms=1),
    "100 s",
    "How long an ask waits for its reply before it fails.",
)

LOOKUP_TIMEOUT: Final = Key(
    "actor.lookup.timeout",
    duration_ms(minimum_ms=1),
    "10 s",
    "How long the lookup of an actor by its path waits before it fails.",
)

FRAME_LIMIT: Final = Key(
    "actor.frame-limit",
    size_bytes(minimum_bytes=1024),
    "10 MiB",
    "Largest message between two processes; the sender refuses larger ones with an error.",
)

HEARTBEAT_INTERVAL: Final = Key(
    "actor.watch.heartbeat-interval",
    duration_ms(minimum_ms=10),
    "1 s",
    "How often a watched process sends a heartbeat.",
)

HEARTBEAT_PAUSE: Final = Key(
    "actor.watch.heartbeat-pause",
    duration_ms(),
    "6 s",
    "How late heartbeats may be, for example because of garbage collection, before suspicion grows.",
)

THRESHOLD: Final = Key(
    "actor.watch.threshold",
    number(minimum=1.0, maximum=100.0),
    12.0,
    "Suspicion (phi) at which a watched process is declared dead: at 12 about one mistake in 10^12 "
    "heartbeats.",
)

MAILBOX_CAPACITY: Final = Key(
    "actor.mailbox-capacity",
    integer(minimum=1),
    10_000,
    "Number of messages waiting for one actor at which its mailbox counts as full.",
)

REAPER_INTERVAL: Final = Key(
    "purgatory.reaper-interval",
    duration_ms(minimum_ms=1),
    "200 ms",
    "How often the purgatory advances its clock and looks for completed operations to purge.",
)

PURGE_LIMIT: Final = Key(
    "purgatory.purge-limit",
    integer(minimum=1),
    1000,
    "Number of completed operations that may stay in the watch lists before they are purged.",
)

REMOTE_CONNECT_TIMEOUT: Final = Key(
    "actor.remote.connect-timeout",
    duration_ms(minimum_ms=1),
    "5 s",
    "How long connecting to another process may take, and how long an incoming connection may take to "
    "identify itself.",
)

REMOTE_MIN_BACKOFF: Final = Key(
    "actor.remote.min-backoff",
    duration_ms(minimum_ms=1),
    "50 ms",
    "Wait after the first failed attempt to connect; each further wait is twice as long.",
)

REMOTE_MAX_BACKOFF: Final = Key(
    "actor.remote.max-backoff",
    duration_ms(minimum_ms=1),
    "2 s",
    "Longest wait between two attempts to connect.",
)

REMOTE_QUEUE_LIMIT: Final = Key(
    "actor.remote.queue-limit",
    integer(minimum=1),
    100_000,
    "Messages that may wait for one other process; further ones are dropped as dead letters.",
)

REMOTE_QUEUE_LIMIT_BYTES: Final = Key(
    "actor.remote.queue-limit-bytes",
    size_bytes(minimum_bytes=1024),
    "64 MiB",
    "Total size of the messages that may wait for one other process.",
)

REMOTE_MAX_HANDSHAKES: Final = Key(
    "actor.remote.max-handshakes",
    integer(minimum=1),
    256,
    "Connections that may be open before they have identified themselves.",
)

REMOTE_STOP_TIMEOUT: Final = Key(
    "actor.remote.stop-timeout",
    duration_ms(),
    "1 s",
    "How long a stopping process waits until its last messages are sent.",
)
