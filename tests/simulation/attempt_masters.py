"""The leading master and the application master of a simulated cluster with real attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app_master_world import SimulatedMaster
from attempt_process import TO_APP_MASTER, repeat

from drivetrain.actor import Failure, Message
from drivetrain.cluster.app_master.stream.change_compiler import Bring
from drivetrain.cluster.app_master.stream.stream_app_master import StreamAppMaster
from drivetrain.cluster.messages.applications import Restart

if TYPE_CHECKING:
    from attempt_world import AttemptWorld


class RepeatingAppMaster(StreamAppMaster):
    """Gets some messages twice, the second time later, and now and then one of an earlier epoch."""

    world: AttemptWorld
    draw: Callable[[], float]

    def bring_code(self) -> Bring:
        async def bring(sha256: str) -> bytes:
            return sha256.encode()

        return bring

    def received(self, message: Message) -> None:
        super().received(message)
        if isinstance(message, TO_APP_MASTER):
            again = self.world.late.another(message, self.setup.epoch, self.draw)
            if again is not None:
                repeat(self, again, self.draw())


class RestartingMaster(SimulatedMaster):
    """A master that restarts the application when its application master asks for it."""

    world: AttemptWorld

    def _lead(self, message: Message) -> None:
        if isinstance(message, Restart):
            if message.epoch == self.world.epoch:
                self.world.kill_app_master()
            self.context.reply(Failure("restarted", "as asked"))
        else:
            super()._lead(message)
