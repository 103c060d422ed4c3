"""The master: elects a leader, which manages applications, workers and slots."""

from drivetrain.cluster.master.master_process import serve_master
from drivetrain.cluster.master.master_settings import MasterSettings

__all__ = ["MasterSettings", "serve_master"]
