"""The master: who leads, what applications there are, which workers, who gets slots."""

from drivetrain.cluster.master.master_process import serve_master
from drivetrain.cluster.master.master_settings import MasterSettings

__all__ = ["MasterSettings", "serve_master"]
