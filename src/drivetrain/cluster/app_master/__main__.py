"""`python -m drivetrain.cluster.app_master LAUNCH_FILE`: the process of an application master.

Started by a worker. Exit codes: 0 when the application's end is in the registry, or another application
master took over, or will; 2 when it cannot start with its launch file; 70 for a bug.

On SIGTERM and SIGINT it hands over: its executors finish their batches and end, and the leader starts the
next application master elsewhere.

When the file of a custom application cannot be loaded, `UnloadableApplicationMaster` registers and ends the
application with the error, like any other failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from typing import Final

from drivetrain.actor import Actor, ActorSystem
from drivetrain.actor.remote import attach_remote
from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.app_master_messages import HandOverRequested, Setup
from drivetrain.cluster.app_master.custom.custom_file import load_app_master
from drivetrain.cluster.app_master.stream.planned_application import load
from drivetrain.cluster.app_master.stream.restart_policy import policies
from drivetrain.cluster.app_master.stream.stream_app_master import StreamAppMaster
from drivetrain.cluster.connection import SECRET_VARIABLE, remote_settings
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.registration import AppMasterRegistered
from drivetrain.cluster.one_worker import require_held, slots_together
from drivetrain.cluster.parent import wait_for_launch_file
from drivetrain.config.process_log import log_to_standard_error
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.error_views import error_view
from drivetrain.terminal import print_line

log = logging.getLogger("drivetrain.app_master")


class UnloadableApplicationMaster(ApplicationMaster):
    """Ends an application that cannot be loaded."""

    def __init__(self, setup: Setup, error: DrivetrainError) -> None:
        super().__init__(setup)
        self._error: Final = error

    def started(self, registered: AppMasterRegistered) -> None:
        """End the application with the error."""
        self.end(ApplicationState.FAILED, error_view(self._error))


def main() -> int:
    """Run the application master of the launch file; returns the exit code."""
    try:
        launch = wait_for_launch_file()
        log_to_standard_error(launch.load_config(), process="application-master", application=launch.app_id)
        return asyncio.run(_serve(launch))
    except DrivetrainError as error:
        print_line(f"error: {error}", file=sys.stderr, flush=True)
        return 2


async def _serve(launch: LaunchFile) -> int:
    config = launch.load_config()
    settings = remote_settings(config, system=launch.system)
    os.environ.pop(SECRET_VARIABLE, None)  # processes started by the user's file must not get it
    if os.path.isdir(launch.spec.directory):
        os.chdir(launch.spec.directory)  # relative paths mean the same as for the client
    system = ActorSystem(launch.system, config=config)
    await attach_remote(system, settings)
    setup = Setup(
        launch.app_id,
        launch.epoch,
        launch.spec,
        launch.masters,
        config,
        launch.code_directory,
        lambda: time.time_ns() // 1_000_000,
        log.info,
        launch.worker_id if launch.spec.app_master is None and slots_together(config) else None,
        launch.submission,
    )
    app_master = system.spawn(lambda: _actor(launch, setup), "app-master")
    for number in (signal.SIGTERM, signal.SIGINT):
        why = HandOverRequested(f"it was asked to by {number.name}")
        asyncio.get_running_loop().add_signal_handler(number, app_master.tell, why)
    failed = asyncio.ensure_future(system.wait_terminated())
    stopped = asyncio.ensure_future(system.wait_stopped(app_master))
    try:
        await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if failed.done() and (error := failed.exception()) is not None:
            log.error("the application master failed", exc_info=error)
            return 70
        return 0
    finally:
        stopped.cancel()
        with contextlib.suppress(DrivetrainError):  # an actor that hangs does not keep the process alive
            await system.terminate()
        failed.cancel()


def _actor(launch: LaunchFile, setup: Setup) -> Actor:
    try:
        if launch.spec.app_master is not None:
            return load_app_master(launch.spec, launch.code_directory)(setup)
        policies(setup.config)  # raises for contradictory keys before anything runs
        require_held(setup.config, launch.slots)
        return StreamAppMaster(setup, lambda: load(launch.spec, launch.code_directory, setup.config))
    except DrivetrainError as error:
        return UnloadableApplicationMaster(setup, error)


if __name__ == "__main__":
    sys.exit(main())
