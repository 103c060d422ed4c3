"""The number of applications on a simulated cluster of 1,000 workers: real master actors, simulated workers.

Virtual seconds are what a cluster would wait; computing seconds are this machine's, for all of the cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.curves.curve import Curve, Figure

WORKERS, LOST = 1_000, 100


def measure(applications: int, work: Path) -> Mapping[str, float]:
    """Start the applications, then lose a tenth of the workers at once."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "simulation"))
    from master_scale import scale

    from drivetrain.simulator.simulation import Simulation

    return Simulation(0).run(lambda simulation: scale(simulation, WORKERS, applications, LOST))


CURVE = Curve(
    name="cluster_size",
    title="A leader of 1,000 workers, by the number of applications",
    quantity="applications",
    points=(1, 10, 100, 300, 1_000),
    quick_points=(1, 10, 100),
    figures=(
        Figure("start_wall_s", "computing s until all have started"),
        Figure("start_virtual_s", "virtual s until all have started"),
        Figure("reschedule_virtual_s", "virtual s until those of 100 lost workers run again"),
    ),
    measure=measure,
)
