"""The application master: of streaming applications, and the base classes of custom ones."""

from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.app_master_messages import AskOutcome, Setup
from drivetrain.cluster.app_master.custom.custom_executor import CustomExecutor, ExecutorSetup
from drivetrain.cluster.app_master.executors.executor_pool import Member

__all__ = ["ApplicationMaster", "AskOutcome", "CustomExecutor", "ExecutorSetup", "Member", "Setup"]
