"""`python -m drivetrain.cluster.executor LAUNCH_FILE`: the process of an executor, started by a worker.

Exit codes: 0 when it was asked to end or its application master is gone; 2 when it cannot start with its
launch file; 70 when Spark was lost, or for a bug. A custom application master's executor runs here instead,
if the application has one. With `--spare FILE` it waits for its launch, see `spare`.

The process ends, and Spark with it, when its worker dies (see `cluster.parent`), when its application master
dies, and on SIGTERM and SIGINT, which drain first. Spark's Java process waits on a pipe that only this
process holds, and ends when that closes for any reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drivetrain.actor import ActorPath, ActorSystem
from drivetrain.actor.remote import attach_remote
from drivetrain.cluster.connection import SECRET_VARIABLE, remote_settings
from drivetrain.cluster.executor.executor_config import executor_config
from drivetrain.cluster.executor.spare import Spare, keep_temporary_files_in
from drivetrain.cluster.launch_file import SPARE, LaunchFile
from drivetrain.cluster.parent import wait_for_launch_file
from drivetrain.code.application_file import make_importable_for_workers
from drivetrain.config import Config
from drivetrain.config.catalog import cluster as cluster_keys
from drivetrain.config.process_log import log_to_standard_error
from drivetrain.core.liveness.supervision import Directive, SupervisionPolicy
from drivetrain.errors import DrivetrainError, PeerViolationError
from drivetrain.spark.session import java_start
from drivetrain.terminal import print_line

if TYPE_CHECKING:
    from drivetrain.cluster.executor.spark_work import SparkWork

_CLOSE_S: Final = 20.0
"""How long Spark may take to stop before this process ends without waiting for it."""


def main() -> int:
    """Run the executor of the launch file; returns the exit code."""
    try:
        spare = Spare(sys.argv[2]) if sys.argv[1:2] == [SPARE] and len(sys.argv) == 3 else None
        launch = wait_for_launch_file() if spare is None else spare.wait()
        if launch.spec.app_master is not None:
            from drivetrain.cluster.app_master.custom.custom_executor import main as custom

            return int(custom(launch) or 0)
        _log(launch)
        _settle(launch)
        return asyncio.run(_serve(launch, spare))
    except DrivetrainError as error:
        print_line(f"error: {error}", file=sys.stderr, flush=True)
        return 2


def _log(launch: LaunchFile) -> None:
    log_to_standard_error(
        launch.load_config(), process="executor", application=launch.app_id, launch=launch.launch_id
    )
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would log every error of a batch a second time


def _settle(launch: LaunchFile) -> None:
    """Work in the client's directory, for relative paths; keep temporary files in the process's own."""
    keep_temporary_files_in(launch.work_directory)
    if os.path.isdir(launch.spec.directory):
        os.chdir(launch.spec.directory)


async def _serve(launch: LaunchFile, spare: Spare | None) -> int:
    if launch.app_master is None:
        raise PeerViolationError(
            "an executor was launched without an application master", where=launch.app_id
        )
    config = executor_config(launch)
    settings = remote_settings(_at(launch), system=launch.system)
    os.environ.pop(SECRET_VARIABLE, None)  # processes started by the user's code must not get it
    make_importable_for_workers(Path(launch.code_directory) / launch.spec.file)
    if spare is None:
        java_start.begin(config)  # now, as the imports of PySpark take as long as Java does
    from drivetrain.cluster.executor.executor import DrainRequested, Executor
    from drivetrain.cluster.executor.spark_work import SparkWork
    from drivetrain.runtime.preparation import Preparer

    work = SparkWork(launch, config, Preparer(launch.app_id, launch.epoch, launch.app_master))
    if spare is not None:
        await asyncio.to_thread(spare.take, work)
    escalate = SupervisionPolicy(directives={Exception: Directive.ESCALATE})
    system = ActorSystem(launch.system, config=config, supervision=escalate)
    await attach_remote(system, settings)
    app_master = system.reference(ActorPath.parse(launch.app_master))
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(exit_code: int) -> None:
        if not ended.done():
            ended.set_result(exit_code)

    beginning = system.run_blocking(partial(_begin_engine, work))
    executor = system.spawn(lambda: Executor(launch, work, app_master, end), "executor")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, executor.tell, DrainRequested(f"it was asked to by {number.name}"))
    failed: asyncio.Future[None] = asyncio.ensure_future(system.wait_terminated())
    try:
        waited: set[asyncio.Future[Any]] = {ended, failed}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if failed.done() and (error := failed.exception()) is not None:
            logging.getLogger(__name__).error("the executor's actor failed", exc_info=error)
        return ended.result() if ended.done() else 70
    finally:
        _end_whatever_hangs()
        with contextlib.suppress(DrivetrainError):  # actors that hang do not keep the process alive
            await system.terminate()
        failed.cancel()
        beginning.cancel()
        await asyncio.to_thread(work.close)


def _begin_engine(work: SparkWork) -> None:
    """Start Spark while this executor registers; also one that only stands by can then take over at once."""
    try:
        work.begin_engine()
    except Exception as error:  # noqa: BLE001 - whatever it is, the first request meets it and answers with it
        logging.getLogger(__name__).info("Spark is not ready yet: %s", error)


def _at(launch: LaunchFile) -> Config:
    """The worker's configuration with the host of the launch file."""
    return Config.load(None, None, {**launch.config, cluster_keys.HOST.name: launch.host})


def _end_whatever_hangs() -> None:
    timer = threading.Timer(_CLOSE_S, os._exit, args=(70,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main())
