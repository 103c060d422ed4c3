"""Keys of the masters: their directory, their lease, and their limits."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, integer, local_path

PORT: Final = Key(
    "master.port",
    integer(minimum=0, maximum=65_535),
    0,
    "Port that selects this master's entry among those of cluster.masters with this machine's "
    "cluster.host; 0 when there is only one.",
)

DIRECTORY: Final = Key(
    "master.directory",
    local_path(),
    ".drivetrain-master",
    "Where a master keeps its term, its vote, the registry of applications and their code; each "
    "master has its own.",
)

LEASE: Final = Key(
    "master.lease",
    duration_ms(minimum_ms=100),
    "2 s",
    "How long masters keep following a leader after its last message, about the time of an election.",
)

QUORUM_TIMEOUT: Final = Key(
    "master.quorum-timeout",
    duration_ms(minimum_ms=100),
    "5 s",
    "How long a request waits for a majority of the masters before it fails with no-quorum.",
)

GOSSIP_INTERVAL: Final = Key(
    "master.gossip-interval",
    duration_ms(minimum_ms=10),
    "1 s",
    "How often a master compares its registry with another master's, and fetches what it missed.",
)

APP_MASTER_RESTARTS: Final = Key(
    "master.app-master-restarts",
    integer(minimum=0),
    5,
    "Deaths of its application masters within master.app-master-window that an application survives.",
)

APP_MASTER_WINDOW: Final = Key(
    "master.app-master-window",
    duration_ms(minimum_ms=1_000),
    "10 min",
    "Period in which deaths of application masters are counted together.",
)

APP_MASTER_TIMEOUT: Final = Key(
    "master.app-master-timeout",
    duration_ms(minimum_ms=100),
    "30 s",
    "How long an application master may take to register, from its launch or a change of leader.",
)

APP_MASTER_SLOTS: Final = Key(
    "master.app-master-slots",
    integer(minimum=0),
    0,
    "Slots that an application master takes; 0 because it needs little CPU and must not keep "
    "executors from starting.",
)

WORKER_GRACE: Final = Key(
    "master.worker-grace",
    duration_ms(),
    "1 s",
    "How long a new leader waits for workers to register again before it assigns slots.",
)

MAX_CLOCK_DIFFERENCE: Final = Key(
    "master.max-clock-difference",
    duration_ms(minimum_ms=1),
    "10 s",
    "Greatest difference between the clocks of a new worker and the leader before the worker is "
    "refused; workers already registered are kept.",
)

KEPT_APPLICATIONS: Final = Key(
    "master.kept-applications",
    integer(minimum=0),
    1_000,
    "Number of ended applications that the registry remembers, with their code, for show and restart.",
)

CODE_GRACE: Final = Key(
    "master.code-grace",
    duration_ms(minimum_ms=100),
    "10 min",
    "How long an unused archive is kept, so that a submission can follow its upload.",
)
