"""Workers: processes that offer slots, and launch and watch what runs in them."""

from drivetrain.cluster.worker.launching import Launcher, LaunchError, Surroundings
from drivetrain.cluster.worker.serve import serve_worker
from drivetrain.cluster.worker.settings import WorkerSettings
from drivetrain.cluster.worker.worker import LeaderTimeoutError, Worker

__all__ = [
    "LaunchError",
    "Launcher",
    "LeaderTimeoutError",
    "Surroundings",
    "Worker",
    "WorkerSettings",
    "serve_worker",
]
