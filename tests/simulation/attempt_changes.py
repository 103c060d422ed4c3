"""A user who changes an application in a simulated cluster, and the invariants of its versions.

1. A version is recorded only when the one before it has an outcome, or was run: one change at a time.
2. An outcome is recorded once, and never before its version.
3. A change is done only when every touched fragment has committed a batch with messages of it, has finished,
   or has waited for messages.
4. A batch runs only with a version that is recorded.
5. A fragment leaves only after the outcome of a change that removes it, and nothing is left of it.
6. Once a version at an event time is recorded, no fragment that it changes begins a batch with the former.
7. When the application has finished, no trial is left over, and nothing is shown of versions that fail.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shell_application import EXTRA
from shell_engine import APART_MS, DISORDER_MS, change_in, is_bad, time_of_ms, trunk_of
from shell_process import has_more
from shell_world import change_of, check_gone, check_handovers

from drivetrain.actor import ActorPath, ActorSystem, AskError, Message
from drivetrain.cluster.messages.changing import (
    ChangeGraph,
    ChangeStatus,
    CheckVersion,
    GetChange,
    GiveUpChange,
    GraphEdit,
    ProposedCode,
)
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.difference import touched
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.handover_places import HandoverError
from drivetrain.core.change.subscriptions import (
    subscriptions_by,
    with_subscription,
    without_subscriptions,
)
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.simulator import Node
from drivetrain.spark.prepare.graph_code import graph_as_code, graph_from_code
from drivetrain.spark.session.offset_log import committed

if TYPE_CHECKING:
    from attempt_world import AttemptWorld

REFUSALS = {
    "nothing changes",
    "another change of the application is under way",
    "the application is stopping",
    "the application has not begun",
    "the application is starting again",
    "the application has changed meanwhile",
    "no fragment of the application runs now",
    "a fragment that the change concerns is starting",
    "an executor has not compiled the change",
    "the executor has not joined the application yet",
    "executors disagree on the change",
    "another application master has this application",
    "fragments of these names are still leaving the application",
    "the output of a rolled-back version is still being removed from this sink",
    "a fragment that the change concerns has ended, so no message follows",
    "the fragments do not pause any more",
    "a fragment of the application is being scaled",
    "the fragments that change did not end their batches, so that both versions could begin",
    "a query restarts between two batches, not at an event time",
    "a fragment starts or leaves with the next batch, not at an event time",
    "nothing in this change can get the messages that were before",
    "messages from before the change cannot be read again",
    "the fragment has begun again, so its executor has not compiled the change",
    "the change cannot be noted in the store, where another worker would find it",
}
"""Refusals that a correct change may get."""
OUTDATED = ("version ", "the change to version ")
"""The beginnings of refusals of requests that came too late."""


class Changer:
    """The user, whose client asks the current application master; some answers never arrive."""

    def __init__(self, world: AttemptWorld, changes: int) -> None:
        self.world = world
        self.changes_left = changes
        self.at_once = 0.9 if world.drawn.is_growing else 0.5  # no fragment starts or leaves at an event time
        """How likely it is that a change takes effect with the next batch."""
        self.turns_back = 0.0
        """How likely it is that the user returns from a handover, and then cancels that on trial."""
        self.handed_over = 0
        """How often the rows of a version were compared with the time of its handover."""
        self.returned = 0
        """How often a handover began again, because the return from it was rolled back."""
        self.pauses_s: tuple[float, ...] = (0.05, 0.3, 1.0)
        self.made = 0
        self.in_force: set[int] = set()
        """The numbers of versions that were in force."""
        self.outcomes: dict[int, Outcome] = {}
        self.wrong: list[str] = []
        self.stood: dict[str, tuple[int, int, int]] = {}
        """For each fragment, the newest version at an event time, the previous version, and the last batch
        then."""
        self.former_rows = 0
        """How many messages a fragment with a history has shown at the end."""
        self.extra_rows = 0
        """How many messages the fragment that comes and goes has shown at the end."""

    def version(self, message: CheckVersion) -> tuple[GraphVersion, bytes]:
        """The version that an executor makes from a proposal: its code names the change, or it is an edit."""
        if message.edit is not None:
            return self.edited(message, message.edit)
        assert message.code is not None
        graph = self.world.drawn.built(int(message.code.sha256, 16)).graph()
        return version_of(make_plan(graph), fingerprint), graph_as_code(graph)

    def edited(self, message: CheckVersion, edit: GraphEdit) -> tuple[GraphVersion, bytes]:
        """What an executor makes of the subscription of another application, or of its end."""
        state = self.world.known_state()
        code = GraphVersions(state).code(message.against)
        assert code is not None
        graph = graph_from_code(code, "a version")
        if edit.subscription is not None:
            graph = with_subscription(graph, edit.subscription)
        else:
            reader, _, source = edit.processor.partition("/")
            graph = without_subscriptions(graph, subscriptions_by(graph, reader, source))
        return version_of(make_plan(graph), fingerprint), graph_as_code(graph)

    async def serve(self, node: Node) -> None:
        """Start the process of the client."""
        system = await self.world.system(node, "client")
        self.world.simulation.loop.create_task(self.run(system), name="changes")

    async def run(self, system: ActorSystem) -> None:
        """Change the application now and then, until there are enough changes."""
        random = self.world.random
        while self.changes_left > 0:
            await asyncio.sleep(random.choice(self.pauses_s))
            with suppress(AskError):
                await self.change(system)

    async def change(self, system: ActorSystem) -> None:
        world, random = self.world, self.world.random
        if "am" not in world.paths or world.is_over():
            return
        app_master = system.reference(ActorPath.parse(world.paths["am"]))
        drawn = random.random()
        turned = self.turned_back() if self.turns_back and random.random() < self.turns_back else None
        request: Message
        if turned is not None:
            request = turned
        elif drawn < (0.95 if world.drawn.has_history else 0.7):  # reading takes long: it is rarely cancelled
            self.made += 1
            discards = world.drawn.is_growing and random.random() < 0.3
            against, from_ms = self.history()
            at = None if from_ms is not None else self.drawn_time()
            options = ChangeOptions(discards, even_if_read=True, at=at, history_ms=from_ms)
            request = ChangeGraph(against, ProposedCode(f"{self.made:064x}", "shells.py"), options=options)
        elif (drawn < 0.85 or world.deaths) and self.in_force and not world.drawn.has_history:
            number, options = random.choice(sorted(self.in_force)), ChangeOptions(even_if_read=True)
            request = ChangeGraph(0, None, number, options)
        else:
            stands = await app_master.ask(GetChange(), ChangeStatus, timeout_ms=2_000)
            request = GiveUpChange(stands.state.number or 1)
        answer = await app_master.ask(request, ChangeStatus, timeout_ms=20_000)
        self.changes_left -= answer.error is None
        if (
            answer.error is not None
            and answer.error.what not in REFUSALS
            and answer.error.code != HandoverError.code
            and not answer.error.what.startswith(OUTDATED)
        ):
            self.wrong.append(f"{request} was refused: {answer.error}")

    def history(self) -> tuple[int, int | None]:
        """The version that a change is compared with, and from when on its new fragment gets messages."""
        if not self.world.drawn.has_history:
            return 0, None
        state = self.world.state()
        record = None if state is None else GraphVersions(state).in_force()
        if record is None or has_more(record):
            return 0 if record is None else record.number, None
        return record.number, self.world.drawn.from_ms

    def turned_back(self) -> Message | None:
        """The next step of a user who returns from a version at an event time, and changes their mind."""
        stored = GraphVersions(self.world.known_state())
        record = stored.in_force()
        if record is None or stored.is_on_trial(record) is (record.at_ms is not None):
            return None
        if record.at_ms is not None:
            return ChangeGraph(0, None, record.follows)
        return GiveUpChange(record.number) if record.made_how == "rollback" else None

    def drawn_time(self) -> int | None:
        """When a change takes effect: at an event time, or with the next batch."""
        random = self.world.random
        if random.random() < self.at_once:
            return None
        attempts = [attempt for process in self.world.alive() for attempt in process.attempts]
        known = [a.driver.query.clock.bound_ms or 0 for a in attempts if a.driver is not None]
        newest_ms = max([time_of_ms(0), *known]) + random.choice((0, DISORDER_MS))  # as files may show
        return newest_ms + random.choice((1, random.randrange(-APART_MS, 3 * DISORDER_MS)))

    # -- what must hold --------------------------------------------------------------------------------

    def noted(self, stored: GraphVersions, record: GraphVersion) -> None:
        """Record that a version was put in force, by a run or by a change."""
        if record.number in self.in_force:
            return
        self.world.trials.recorded(record.number)
        self.in_force.add(record.number)
        if record.at_ms is not None:
            for fragment in touched(stored.version(record.follows), record):
                newest = committed(self.directory(fragment) / "checkpoint")
                self.stood[fragment] = (record.number, record.follows, newest)
        if record.follows and stored.is_on_trial(stored.version(record.follows)):
            self.wrong.append(f"{record.number} is recorded while {record.follows} is on trial")

    def ends(self, stored: GraphVersions, number: int, outcome: Outcome) -> None:
        """Check that a trial may end with this outcome."""
        if stored.ending(number) is not None or number not in stored.numbers():
            self.wrong.append(f"the trial of {number} ends twice, or never began")
        record = stored.version(number)
        if outcome is Outcome.ROLLED_BACK and record.made_how == "rollback":
            self.returned += stored.version(record.follows).at_ms is not None
        if outcome is Outcome.DONE:
            without = self.world.trials.unproven(stored, number, self.directory, self.has_finished)
            if without:
                self.wrong.append(f"{number} is done without {without}")

    def has_finished(self, fragment: str) -> bool:
        """Whether a fragment has read all its input."""
        job = None if self.world.actor is None else self.world.actor.job
        execution = None if job is None else job.execution(fragment)
        return execution is not None and execution.state is ExecutionState.FINISHED

    def directory(self, fragment: str) -> Path:
        """The directory of a fragment."""
        return self.world.known_state() / "fragments" / fragment

    def runs(self, versions: GraphVersions, number: int, before: int, fragment: str, batch_id: int) -> None:
        """Check that a batch may begin with a version, and perhaps with the one `before` it."""
        timed, follows, newest = self.stood.get(fragment, (0, 0, 0))
        is_over = self.outcomes.get(timed) is Outcome.ROLLED_BACK or self.world.harms > 0
        if (number, before) == (follows, 0) and batch_id > newest and not is_over:
            self.wrong.append(
                f"batch {batch_id} of {fragment} begins with {number} after {timed} is recorded"
            )
        if number not in versions.numbers():
            self.wrong.append(f"a batch runs with version {number}, which is not recorded")

    def check(self) -> None:
        assert not self.wrong, "; ".join(self.wrong)

    def is_stuck(self) -> bool:
        """Whether a version is in force whose code fails, and that is not on trial any more."""
        state = self.world.state()
        if state is None:
            return False
        stored = GraphVersions(state)
        record = stored.in_force()
        code = None if record is None else stored.code(record.number)
        if record is None or code is None or self.outcomes.get(record.number) is not Outcome.DONE:
            return False
        plan = make_plan(graph_from_code(code, "the version in force"))
        trunks = [trunk for fragment in plan.fragments for trunk in trunk_of(plan, fragment)]
        return any(map(is_bad, (change_of(record), *trunks)))

    def check_end(self) -> None:
        """Check the versions when the application has finished."""
        self.check()
        state = self.world.known_state()
        stored = GraphVersions(state)
        in_force = stored.in_force()
        assert in_force is not None
        assert not stored.is_on_trial(in_force), "the application has ended during a trial"
        self.handed_over = check_handovers(state, self.world.target, self.world.drawn)
        if is_bad(change_in(record.described for record in in_force.processors.values())):
            assert self.outcomes.get(in_force.number) is Outcome.DONE, "a version that fails is in force"
        if self.world.drawn.is_growing:
            assert not stored.leaving(), "a fragment has not left"
            assert not stored.to_remove(), "the results of a version that was rolled back are not removed"
            rolled_back = {change_of(stored.version(n)) for n in stored.numbers() if stored.is_rolled_back(n)}
            if self.world.drawn.has_history:
                is_there = has_more(in_force)
                self.former_rows = self.world.drawn.check_history(
                    self.world.target, rolled_back, has_more=is_there
                )
            else:
                self.world.drawn.check_extra(self.world.target, rolled_back)
            check_gone(state)
            self.extra_rows = len(self.world.target.shown().get(EXTRA, (0, []))[1])


def watch_versions(patched: pytest.MonkeyPatch, changer: Changer) -> None:
    """Report everything that is recorded to the changer."""
    note, end, begin = GraphVersions.note, GraphVersions.note_ending, BatchVersions.note

    def noted(stored: GraphVersions, *given: Any, **named: Any) -> GraphVersion:
        record = note(stored, *given, **named)
        changer.noted(stored, record)
        return record

    def ended(stored: GraphVersions, number: int, outcome: Outcome, *given: Any, **named: Any) -> None:
        changer.ends(stored, number, outcome)
        end(stored, number, outcome, *given, **named)
        changer.outcomes[number] = outcome

    def began(batches: BatchVersions, batch_id: int, version: int, before: int = 0) -> None:
        state = changer.world.known_state()
        fragment = batches._file.path.parent.name
        changer.runs(GraphVersions(state), version, before, fragment, batch_id)
        begin(batches, batch_id, version, before)

    patched.setattr(GraphVersions, "note", noted)
    patched.setattr(GraphVersions, "note_ending", ended)
    patched.setattr(BatchVersions, "note", began)
