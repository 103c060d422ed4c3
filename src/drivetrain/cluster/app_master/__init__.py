"""The application master: of streaming applications, and the base classes of custom ones."""

from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.custom_executor import CustomExecutor, ExecutorSetup
from drivetrain.cluster.app_master.executor_pool import Member
from drivetrain.cluster.app_master.local import Answered, Setup

__all__ = ["Answered", "ApplicationMaster", "CustomExecutor", "ExecutorSetup", "Member", "Setup"]
