"""Workers: processes that offer slots, and launch and watch other processes in them."""

from drivetrain.cluster.worker.launch_requests import LaunchEnvironment, Launcher, LaunchError
from drivetrain.cluster.worker.leader_registration import LeaderTimeoutError
from drivetrain.cluster.worker.serve import serve_worker
from drivetrain.cluster.worker.worker import Worker
from drivetrain.cluster.worker.worker_settings import WorkerSettings

__all__ = [
    "LaunchEnvironment",
    "LaunchError",
    "Launcher",
    "LeaderTimeoutError",
    "Worker",
    "WorkerSettings",
    "serve_worker",
]
