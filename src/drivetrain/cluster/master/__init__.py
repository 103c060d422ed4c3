"""The master: who leads, what applications there are, which workers, who gets slots."""

from drivetrain.cluster.master.process import serve_master
from drivetrain.cluster.master.settings import MasterSettings

__all__ = ["MasterSettings", "serve_master"]
