"""What an application master does for checkpoints: it carries words, and begins them when all fragments run.

Problem: fragments in different executors answer the coordinator and tell each other of barriers; attempts die
and others follow; programs want savepoints before there is anything to save.

Design: one object from the beginning to the end, which knows whether there are checkpoints yet. What they are
is in `application_checkpoints`; to whom a word goes is known to the application master, which relays it.

Invariants:

1. There are no checkpoints before all fragments run.
2. Executors hear once that an attempt has moved away from them.

Called by `stream_app_master`, and by `running_job` when fragments run or move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from drivetrain.actor import ActorRef, Context, Message
from drivetrain.cluster.app_master.stream.application_checkpoints import (
    ApplicationCheckpoints,
    CheckpointNews,
)
from drivetrain.cluster.app_master.stream.planned_application import Planned
from drivetrain.cluster.messages.checkpoints import (
    CheckpointAnswered,
    CheckpointCommand,
    FragmentMoved,
    MakeSavepoint,
    SavepointMade,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config import Config
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.checkpoint.transaction import Command


@dataclass(frozen=True)
class CheckpointPort:
    """What it needs of the application master.

    `relay` hands a word to the executor of a fragment, `tell_others` to all executors but one, `note` takes
    errors, `changed` hears that there is something to show, `clock_ms` is the application's clock, `is_over`
    says that nothing can be saved any more.
    """

    relay: Callable[[str, Message], None]
    tell_others: Callable[[str, Message], None]
    note: Callable[[ErrorView], None]
    changed: Callable[[], None]
    clock_ms: Callable[[], int | None]
    is_over: Callable[[], bool]


class CheckpointTraffic:
    """The checkpoints of one application, for its application master of this epoch."""

    def __init__(self, context: Context, epoch: int, config: Config, port: CheckpointPort) -> None:
        self._context: Final = context
        self._epoch: Final = epoch
        self._config: Final = config
        self._port: Final = port
        self._made: ApplicationCheckpoints | None = None
        self._attempts: dict[str, int] = {}  # the newest of each fragment that others were told of

    # ---- events

    def runs(self, fragment: str, attempt: int, planned: Planned | None, *, do_all_run: bool) -> None:
        """An attempt of a fragment runs; once all fragments do there are checkpoints."""
        if self._made is not None:
            if attempt > 1:
                self._made.failed(fragment, "it has started again")
        elif do_all_run and planned is not None and planned.plan is not None:
            self._made = ApplicationCheckpoints(
                self._context, planned, planned.plan, self._config, self._port.clock_ms, self._tell_command
            )

    def moved(self, fragment: str, attempt: int, executor: str) -> None:
        """A fragment goes on in `executor`; elsewhere its earlier attempts are out of checkpoints."""
        if self._attempts.get(fragment, 1) >= attempt or self._made is None:
            return
        self._attempts[fragment] = attempt
        self._port.tell_others(executor, FragmentMoved(self._epoch, fragment))

    def received(self, message: Message) -> bool:
        """Take a word about checkpoints; False if it is about something else."""
        match message:
            case CheckpointCommand():
                if message.epoch == self._epoch:
                    self._port.relay(message.fragment, message)
            case CheckpointAnswered():
                if self._made is not None and message.epoch == self._epoch:
                    self._made.answered(message)
            case CheckpointNews() if self._made is not None:
                self._made.take(message)
                if message.failed is not None:
                    self._port.note(ErrorView("checkpoints", message.failed))
                self._port.changed()
            case MakeSavepoint():
                if self._context.sender is not None:
                    self._save(message, self._context.sender)
            case _:
                return False
        return True

    def _save(self, message: MakeSavepoint, asker: ActorRef) -> None:
        is_over = self._port.is_over()
        if self._made is not None and not is_over:
            self._made.save(message, asker)
            return
        why = "it is over" if is_over else "it has not begun"
        asker.tell(SavepointMade(ErrorView("unavailable", f"the application cannot be saved now: {why}")))

    def _tell_command(self, fragment: str, input: str, command: Command) -> None:
        self._port.relay(fragment, CheckpointCommand(self._epoch, fragment, input, command))

    # ---- what the application master asks

    @property
    def figures(self) -> CheckpointFigures | None:
        """What people are told; None before there was anything to tell."""
        return None if self._made is None else self._made.figures

    @property
    def owes(self) -> bool:
        """Whether fragments that have finished may have prepared what is not published yet."""
        return self._made is not None and self._made.owes

    def is_all_published(self, then: Callable[[], None]) -> bool:
        """Whether what finished fragments have made is published; if not, `then` is called once it may be."""
        return self._made is None or self._made.is_all_published(then)
