"""The faults of the simulated network and disks, and their odds.

Called by the scenario, through `SimulatedNetwork.set_faults` and `SimulatedDisk.set_faults`; every draw is
from a seeded generator.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

from drivetrain.simulator.simulation_errors import SimulationError


class _Odds:
    """Checks that fields named like odds are between 0 and 1, and durations not negative."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if value < 0 or (not field.name.endswith("_ms") and value > 1):
                expected = "0 or more" if field.name.endswith("_ms") else "odds between 0 and 1"
                raise SimulationError(
                    "not the odds of a fault", where=field.name, expected=expected, got=str(value)
                )


@dataclass(frozen=True, slots=True)
class NetworkFaults(_Odds):
    """The faults of frames between two nodes; all odds are per frame.

    `min_delay_ms` to `max_delay_ms` is the usual delay; `stall` of the frames take up to `max_stall_ms`
    instead. `reordering` lets a frame ignore those sent before it, `reset` breaks the connection.
    """

    min_delay_ms: float = 0.1
    max_delay_ms: float = 2.0
    stall: float = 0.01
    max_stall_ms: float = 100.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    reset: float = 0.0

    @classmethod
    def harsh(cls) -> NetworkFaults:
        """A network in which every fault occurs from time to time."""
        return cls(
            max_delay_ms=20.0,
            stall=0.05,
            max_stall_ms=400.0,
            loss=0.05,
            duplication=0.05,
            reordering=0.1,
            reset=0.002,
        )

    def delay_s(self, random: Random) -> float:
        """Draw how long one frame takes, in seconds."""
        most = self.max_stall_ms if random.random() < self.stall else self.max_delay_ms
        return random.uniform(min(self.min_delay_ms, most), most) / 1000.0


@dataclass(frozen=True, slots=True)
class DiskFaults(_Odds):
    """The faults of the operations of one disk.

    An operation takes `min_delay_ms` to `max_delay_ms`. `torn_write` is the chance that the last unsynced
    write to survive a crash survives incompletely; `failure` that an operation fails with an OSError.
    """

    min_delay_ms: float = 0.05
    max_delay_ms: float = 5.0
    torn_write: float = 0.5
    failure: float = 0.0

    def delay_s(self, random: Random) -> float:
        """Draw how long one operation takes, in seconds."""
        return random.uniform(self.min_delay_ms, max(self.min_delay_ms, self.max_delay_ms)) / 1000.0
