"""How one leader copes with many workers: 1,000 workers, 200 applications, 100 workers lost at once.

Real master actors on the simulator, with simulated workers and application masters, ten workers in a
process. Virtual seconds are what a cluster would wait (heartbeats and backoff included, no CPU time); wall
seconds are what this machine computed for all of the cluster together.

    python -m benchmarks.cluster_scale [--workers 1000] [--applications 200] [--lost 100] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from drivetrain.simulator.simulation import Simulation

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "simulation"))


def main() -> int:
    """Run it once and print the figures."""
    from master_scale import scale

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--applications", type=int, default=200)
    parser.add_argument("--lost", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    simulation = Simulation(options.seed)
    figures = simulation.run(
        lambda simulation: scale(simulation, options.workers, options.applications, options.lost)
    )
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value:10.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
