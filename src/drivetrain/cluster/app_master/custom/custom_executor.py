"""Executors of custom applications: processes without Spark that run the user's own actor class.

Problem: a user's application master needs work done on other machines, without an engine.

Design: the process is launched like any executor, so workers, slots, logs and clean-up are the same. It loads
the user's file, takes the class in `ApplicationMaster.executor`, a `CustomExecutor`, and spawns it as
`/user/executor`. The actor registers, and then `received` gets each message of the application master, which
is `self.app_master`. Messages are classes in the user's file with their own tags, so that both sides, which
load that file, use the same ones.

Invariants:
1. It ends with its worker, with its application master, on `EndExecutor`, and when it is refused.
2. `received` is called only after the application master has registered it.

Called by `python -m drivetrain.cluster.executor`, when the spec names an application master.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from drivetrain.actor import (
    Actor,
    ActorFailedError,
    ActorPath,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    AskError,
    Message,
    Terminated,
)
from drivetrain.actor.remote import attach_remote
from drivetrain.cluster.app_master.custom.custom_file import load_app_master
from drivetrain.cluster.connection import SECRET_VARIABLE, remote_settings
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.executing import EndExecutor, ExecutorRegistered, RegisterExecutor
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.terminal import print_line

_ASK_MS: Final = 5_000
_PAUSE_S: Final = 0.5


@dataclass(frozen=True)
class ExecutorSetup:
    """The parameters of a custom application's executor; its application master identifies it by `id`."""

    id: str
    app_id: str
    epoch: int
    spec: ApplicationSpec
    host: str
    worker_name: str
    code_directory: str
    work_directory: str
    app_master: ActorRef
    exit: Callable[[str], None]


class Welcome(Message, frozen=True, tag="dt.local.custom.welcome"):
    """The outcome of the registration; `refused` is the reason for a refusal."""

    refused: str | None = None


class CustomExecutor(Actor):
    """The base of custom executors: override `received`, which may be a coroutine function."""

    def __init__(self, setup: ExecutorSetup) -> None:
        self.setup: Final = setup

    @property
    def app_master(self) -> ActorRef:
        """The application master."""
        return self.setup.app_master

    def setting(self, name: str, default: str = "") -> str:
        """The value of a setting from `--set`, else `default`."""
        return self.setup.spec.settings.get(name, default)

    def pre_start(self) -> None:
        """Register."""
        self.context.watch(self.app_master)
        self.context.pipe_to_self(
            self._register(), lambda _: Welcome(), lambda error: Welcome(str(error) or type(error).__name__)
        )

    def ready(self) -> None:
        """Called when the application master has registered this executor."""

    async def received(self, message: Message) -> None:
        """Handle a message of the application's own."""
        self.context.unhandled(message)

    async def receive(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case Welcome(None):
                self.ready()
            case Welcome(refused):
                self.setup.exit(f"refused: {refused}")
            case EndExecutor(epoch, why) if epoch == self.setup.epoch:
                self.setup.exit(why)
            case Terminated(actor) if actor == self.app_master:
                self.setup.exit("the application master is gone")
            case _:
                await self.received(message)

    async def _register(self) -> None:
        setup = self.setup
        request = RegisterExecutor(
            setup.id, setup.app_id, setup.epoch, self.context.me, os.getpid(), setup.host
        )
        while True:
            try:
                await self.app_master.ask(request, ExecutorRegistered, timeout_ms=_ASK_MS)
            except (ActorFailedError, ActorStoppedError):
                raise
            except AskError:
                await asyncio.sleep(_PAUSE_S)
            else:
                return


def main(launch: LaunchFile) -> int:
    """Run the executor of the launch file's custom application; returns the exit code."""
    return asyncio.run(_serve(launch))


async def _serve(launch: LaunchFile) -> int:
    if os.path.isdir(launch.spec.directory):
        os.chdir(launch.spec.directory)
    cls = load_app_master(launch.spec, launch.code_directory)
    if cls.executor is None or launch.app_master is None:
        raise UserError(
            "this application master has no executors",
            where=cls.__name__,
            expected="an attribute `executor`: a class derived from CustomExecutor",
            remedy="set it in the class",
        )
    make: Any = cls.executor
    config = launch.load_config()
    settings = remote_settings(config, system=launch.system)
    os.environ.pop(SECRET_VARIABLE, None)  # processes started by the user's code must not get it
    system = ActorSystem(launch.system, config=config)
    await attach_remote(system, settings)
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(why: str) -> None:
        if not ended.done():
            ended.set_result(why)

    setup = ExecutorSetup(
        launch.launch_id,
        launch.app_id,
        launch.epoch,
        launch.spec,
        launch.host,
        launch.worker_name,
        launch.code_directory,
        launch.work_directory,
        system.reference(ActorPath.parse(launch.app_master)),
        end,
    )
    system.spawn(lambda: make(setup), "executor")
    failed = asyncio.ensure_future(system.wait_terminated())
    try:
        waited: set[asyncio.Future[Any]] = {ended, failed}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        print_line(f"ends: {ended.result() if ended.done() else 'its actor failed'}", file=sys.stderr)
        return 0 if ended.done() else 70
    finally:
        with contextlib.suppress(DrivetrainError):  # an actor that hangs does not keep the process alive
            await system.terminate()
        failed.cancel()
