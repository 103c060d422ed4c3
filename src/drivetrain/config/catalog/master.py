"""Keys of the masters: where they keep what must last, their lease, and what they tolerate."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, integer, local_path

PORT: Final = Key(
    "master.port",
    integer(minimum=0, maximum=65_535),
    0,
    "Which entry of cluster.masters with this machine's cluster.host a master is, by its port; 0 when there "
    "is only one.",
)

DIRECTORY: Final = Key(
    "master.directory",
    local_path(),
    ".drivetrain-master",
    "Where a master keeps term, vote, the registry of applications and their code: a directory of its own.",
)

LEASE: Final = Key(
    "master.lease",
    duration_ms(minimum_ms=100),
    "2 s",
    "How long the masters promise to follow a leader that they heard of; about how long a failover takes.",
)

QUORUM_TIMEOUT: Final = Key(
    "master.quorum-timeout",
    duration_ms(minimum_ms=100),
    "5 s",
    "How long a request waits for a majority of the masters before it is answered with no-quorum.",
)

GOSSIP_INTERVAL: Final = Key(
    "master.gossip-interval",
    duration_ms(minimum_ms=10),
    "1 s",
    "How often a master compares its registry with another's, and gets what it missed.",
)

APP_MASTER_RESTARTS: Final = Key(
    "master.app-master-restarts",
    integer(minimum=0),
    5,
    "How many deaths of its application masters within master.app-master-window an application survives.",
)

APP_MASTER_WINDOW: Final = Key(
    "master.app-master-window",
    duration_ms(minimum_ms=1_000),
    "10 min",
    "The time within which deaths of application masters count together.",
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
    "Slots that an application master takes; 0 as it computes next to nothing and must not keep executors "
    "from starting.",
)

WORKER_GRACE: Final = Key(
    "master.worker-grace",
    duration_ms(),
    "1 s",
    "How long a new leader waits for the workers to register again before it gives out slots.",
)

MAX_CLOCK_DIFFERENCE: Final = Key(
    "master.max-clock-difference",
    duration_ms(minimum_ms=1),
    "10 s",
    "How far a worker's clock may be from the leader's before the worker is refused.",
)

KEPT_APPLICATIONS: Final = Key(
    "master.kept-applications",
    integer(minimum=0),
    1_000,
    "How many applications that are over the registry remembers, with their code, for show and restart.",
)

CODE_GRACE: Final = Key(
    "master.code-grace",
    duration_ms(minimum_ms=100),
    "10 min",
    "How long an archive that no application needs is kept, so that a submission can follow its upload.",
)
