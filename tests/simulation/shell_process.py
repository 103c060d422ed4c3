"""One life of a process that runs an application embedded, without threads: all parts take turns.

These parts are real: `prepare`, the embedded loop, drivers, recovery and repair, participation,
coordinator, clock, flow control, channels and snapshots. The engine is that of `shell_engine`.
`Process.step` draws which part takes the next turn; at a crash point other parts may take turns in the
middle of a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from shell_disk import Killed
from shell_engine import APART_MS, DISORDER_MS, StandInEngine, StandInQuery, is_bad, time_of_ms

from drivetrain.actor import ActorSystem
from drivetrain.api import Application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.config import Config
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.core.job.run_progress import QuietListener, RunOutcome
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.objects.object_store import StoreAccessError
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state.state_partitions import state_partitions
from drivetrain.simulator.loop import SimulatedLoop
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participation import Participation, RestoreNeededError
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.prepare.graph_code import graph_as_code, graph_from_code
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run.change_proposal import RequestedChange
from drivetrain.spark.run.copying import settle_with_store
from drivetrain.spark.run.embedded import assembled
from drivetrain.spark.run.host import Host
from drivetrain.spark.run.preparing import prepare
from drivetrain.spark.session.offset_log import batch_numbers, committed

if TYPE_CHECKING:
    from shell_world import World

REFUSALS = (
    "a query restarts between two batches, not at an event time",
    "nothing changes",
    "another change of the application is under way",
    "a fragment of the application is being scaled",
    "the application is stopping",
    "fragments of these names are still leaving the application",
    "the output of a rolled-back version is still being removed from this sink",
    "messages of that time and later are processed already",
    "a fragment starts or leaves with the next batch, not at an event time",
)
MOST_RESTORES = 5
"""The most restores in one life: damage is done between lives, and rarely during one."""


def has_more(version: GraphVersion) -> bool:
    """Whether a version has the fragment that comes and goes."""
    return "more" in version.fragments


def has_more_now(application: Application) -> bool:
    """Whether an application has the fragment that comes and goes."""
    return "more" in application.graph().nodes


class Actors:
    """The actor system of one process, on a loop of its own that stands still between its turns."""

    def __init__(self, random: Random, config: Config) -> None:
        self.loop = SimulatedLoop(random, until_s=1e9)
        self.is_closed = False

        async def make() -> ActorSystem:
            return ActorSystem("simulated-run", config=config)

        self.system: ActorSystem = self.loop.run_until_complete(make())

    def spawn(self, factory: Any, name: str) -> Any:
        async def spawn() -> Any:
            return self.system.spawn(factory, name)

        return self.loop.run_until_complete(spawn())

    def tell(self, actor: Any, message: Any) -> None:
        self.system.tell_threadsafe(actor, message)

    def begin(self, actor: Any, message: Any, reply: Any) -> Any:
        return self.loop.create_task(actor.ask(message, reply, timeout_ms=10**9))

    def pass_time(self, duration_s: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(duration_s))


class SteppedPart:
    """Takes part in checkpoints when it is its turn."""

    def __init__(self, parts: list[Participation], part: Participation) -> None:
        self.parts = parts
        self.part = part
        self.ran = part.ran

    def start(self) -> None:
        assert all(other.fragment != self.part.fragment for other in self.parts), "two attempts take part"
        self.part.start()
        self.parts.append(self.part)

    def close(self) -> None:
        self.part.close()
        if self.part in self.parts:
            self.parts.remove(self.part)


class SteppedRecovery:
    """A recovery that continues when it is its turn."""

    def __init__(self, steps: Steps[FragmentQuery]) -> None:
        self.steps = steps
        self.made: FragmentQuery | None = None
        self.error: BaseException | None = None

    def step(self) -> None:
        try:
            next(self.steps)
        except StopIteration as done:
            self.made = done.value
        except Exception as error:  # noqa: BLE001 - raised by `successor`
            self.error = error

    def is_alive(self) -> bool:
        return self.made is None and self.error is None

    def successor(self) -> FragmentQuery:
        if self.error is not None:
            raise self.error
        assert self.made is not None
        return self.made

    def give_up(self) -> None:
        self.steps.close()


class SteppedReading:
    """Messages from before a change are read when it is their reader's turn."""

    def __init__(self, steps: Steps[None]) -> None:
        self.steps = steps
        self.error: BaseException | None = None
        self.is_over = self.has_begun = False

    def step(self) -> None:
        self.has_begun = True
        try:
            next(self.steps)
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self.error = error

    def is_alive(self) -> bool:
        return self.error is None and not self.is_over

    def result(self) -> None:
        if self.error is not None:
            raise self.error

    def give_up(self) -> None:
        self.is_over = True
        self.steps.close()


class Listener(QuietListener):
    """Requests a stop when the world wants one."""

    def __init__(self) -> None:
        self.stops = False

    def stop_requested(self) -> bool:
        return self.stops


@contextlib.contextmanager
def refused_at_start() -> Iterator[None]:
    """A run that the store refuses its checkpoint has not begun: it ends with the error, and the user runs it
    again."""
    try:
        yield
    except StoreAccessError:
        raise Killed from None


class Process:
    """One life of the process: from its start until it has finished, was stopped, or is killed."""

    def __init__(self, world: World, state: str = "state") -> None:
        self.world = world
        self.rundir = RunDirectory(str(world.directory / state), "shells", world.application.naming_settings)
        self.parts: list[Participation] = []
        self.recoveries: list[SteppedRecovery] = []
        self.readings: list[SteppedReading] = []
        self.listener = Listener()
        self.actors: Actors | None = None
        self.is_nested = False
        self.is_recovering = False
        self.judged: tuple[int, Outcome | None] = (0, None)
        """The change whose end was checked."""

    def run(self, steps: int) -> RunOutcome | None:
        """Run until the end, or raise Killed; None when so many steps were not enough."""
        self.rundir.acquire()
        self.copies = self.world.copies_of(self.rundir)
        with refused_at_start():
            is_finished = settle_with_store(self.rundir, self.copies, fresh=False)
        if is_finished or self.rundir.finished is not None:
            return RunOutcome.FINISHED
        restores = 0
        in_force = self.rundir.versions.in_force()
        if in_force is not None and has_more(in_force) is not has_more_now(self.world.file):
            self.world.file = self.world.drawn.fitting(has_more=has_more(in_force))
        self.plan, self.version = make_plan(self.world.file.graph()), None
        while True:
            try:
                return self.run_once(steps)
            except RestoreNeededError:
                if hasattr(self, "execution"):  # as the embedded run does it
                    self.plan, self.version = self.execution.plan, self.rundir.versions.in_force()
                restores += 1
                assert restores <= MOST_RESTORES, "it goes back again and again"
                self.stop_all()

    def run_once(self, steps: int) -> RunOutcome | None:
        world = self.world
        self.parts, self.recoveries, self.readings = [], [], []
        self.engine = StandInEngine(
            world.random.randrange, world.source, self.is_blocked, self.while_compiling
        )
        self.engine.states, self.engine.rows_of = world.states, world.trials.rows_of
        self.engine.version_of = lambda context: self.execution.versions.of_context(context).record.number
        host = Host(lambda *_: self.engine, lambda part: SteppedPart(self.parts, part))
        flow = FlowBook(world.config, monotonic_s=lambda: world.now_s, wall_s=world.wall_s)
        with refused_at_start():
            self.execution = prepare(
                self.plan,
                self.rundir,
                world.config,
                flow=flow,
                host=host,
                version=self.version,
                copies=self.copies,
            )
        world.restores += any("went back" in notice for notice in self.execution.notices)
        self.actors = Actors(Random(world.random.random()), world.config)
        self.loop = assembled(
            self.execution, self.listener, self.actors, self.begin_recovery, self.begin_reading
        )
        world.check_clock(self.loop.clock.clock_ms)
        self.loop.start()
        for _ in range(steps):
            outcome = self.step()
            if world.is_dead:
                raise Killed
            if outcome is not None:
                self.stop_all()
                if outcome is RunOutcome.FINISHED:
                    if self.copies is not None:
                        self.copies.finish()
                    self.rundir.finish({})
                if self.copies is not None:
                    self.copies.close()
                return outcome
        return None

    def begin_recovery(self, _fragment: str, steps: Steps[FragmentQuery]) -> SteppedRecovery:
        self.recoveries.append(SteppedRecovery(steps))
        return self.recoveries[-1]

    def begin_reading(self, _fragment: str, steps: Steps[None]) -> SteppedReading:
        self.readings.append(SteppedReading(steps))
        return self.readings[-1]

    def is_blocked(self, query: StandInQuery) -> bool:
        """Whether the batch of a query would wait, for its subscribers or for a snapshot that is taken."""
        for driver in self.loop.drivers.values():
            own = driver.query
            if own.checkpoint == query.checkpoint:
                return (
                    self.waits_for_history()
                    or own.is_held
                    or own.turn.locked()
                    or self.execution.flow.full(own.branches.stores) is not None
                )
        return False

    def waits_for_history(self) -> bool:
        """Whether the first batch takes longer, until the reader of a history has looked for batches."""
        if not self.world.is_hasty or self.world.changes > 1:
            return False
        return self.world.changes == 0 or any(not reading.has_begun for reading in self.readings)

    def step(self) -> RunOutcome | None:
        """Let the part whose turn it is take one step."""
        world = self.world
        if world.random.random() < 0.0005:
            world.harm()
        if world.stops_left > 0 and world.random.random() < 0.001:
            world.stops_left -= 1
            world.stops += 1
            self.listener.stops = True
        is_early = world.is_hasty and world.changes == 0 and self.is_in_first_batch()
        if world.changes_left > 0 and (is_early or world.random.random() < world.eagerness):
            self.change()
        if world.turns_back and world.random.random() < 0.02:
            self.turn_back()
        if world.scalings_left > 0 and world.random.random() < 0.02:
            self.scale()
        why = self.loop.changes.state.why or ""
        assert "cannot be read again" not in why, why
        self.check_trial()
        number = self.loop.changes.state.number
        if number and world.deaths is None and world.random.random() < 0.001:
            with contextlib.suppress(UserError):  # the trial is over
                self.loop.changes.give_up(number)
        world.now_s += world.random.choice((0.001, 0.01, 0.05))
        queries = [query.step for query in self.engine.queries if query.is_active]
        turns: list[Callable[[], object]] = [
            *queries,
            *queries,
            *(partial(self.recover, r) for r in self.recoveries if r.is_alive()),
            *(reading.step for reading in self.readings if reading.is_alive()),
        ]
        turns += [lambda part=part: part.step(int(world.now_s * 1000)) for part in self.parts]
        turns += [self.pass_time, self.look]
        outcome = world.random.choice(turns)()
        world.check_clock(self.loop.clock.clock_ms)
        return outcome if isinstance(outcome, RunOutcome) else None

    def check_trial(self) -> None:
        """Check that a change that is done was done by messages, or has waited for some."""
        state, drivers = self.loop.changes.state, self.loop.drivers
        if state.version == state.number:
            self.world.trials.recorded(state.number)
        if state.outcome is None or self.judged == (state.number, state.outcome):
            return
        self.judged = (state.number, state.outcome)
        if state.outcome is Outcome.DONE:
            versions, place = self.rundir.versions, self.rundir.fragment
            unproven = self.world.trials.unproven(
                versions, state.number, place, lambda f: f not in drivers or drivers[f].is_finished
            )
            assert not unproven, f"the trial of {state.number} is over without {unproven}"

    def is_in_first_batch(self) -> bool:
        """Whether a batch of the fragment of the source has been planned, and none has been committed."""
        sources = [driver for driver in self.loop.drivers.values() if "first" in driver.query.fragment.inputs]
        checkpoints = [driver.query.checkpoint for driver in sources]
        return any(batch_numbers(c / "offsets") and committed(c) == NO_BATCH for c in checkpoints)

    def scale(self) -> None:
        """Let the user scale a fragment; every fragment can be scaled here, as if its state were large
        enough."""
        world, scaling = self.world, self.loop.changes.scaling
        driver = world.random.choice(list(self.loop.drivers.values()))
        before = state_partitions(driver.query.checkpoint)
        if before is None or driver.is_finished:
            return
        world.scalings_left -= 1
        others = [number for number in (1, 2, 5) if number != before]
        wanted = ScalingState(driver.fragment, before, world.random.choice(others))
        scaling._checked = lambda *_: wanted  # type: ignore[method-assign]
        with contextlib.suppress(UserError, UnavailableError):  # a change is under way, or it is stopping
            self.loop.changes.scale(driver.fragment, wanted.after)
            world.scaled += 1

    def change(self) -> None:
        """Let the user change the file, and update the running application."""
        world, changes = self.world, self.loop.changes
        world.changes_left -= 1
        world.changes += 1
        application = world.drawn.built(world.changes)
        if not is_bad(world.changes) or world.random.random() < 0.5:
            world.file = application
        graph = application.graph()
        record = version_of(make_plan(graph), fingerprint)
        in_force = changes.versions.in_force.record
        against = in_force.number
        begins = world.drawn.has_history and has_more(record) and not has_more(in_force)
        try:
            code, options = graph_as_code(graph), ChangeOptions(at=None if begins else self.drawn_time())
            if begins:
                options = ChangeOptions(history_ms=world.drawn.from_ms)
                world.histories += 1
            changes.propose(RequestedChange(record, graph, code, "update", against, options))
        except (UserError, UnavailableError) as refused:
            if refused.what not in REFUSALS and "is handing over to" not in refused.what:
                raise

    def turn_back(self) -> None:
        """The user returns from a handover to the version before, and cancels that while it is on trial."""
        changes = self.loop.changes
        record, stored = changes.versions.in_force.record, self.rundir.versions
        with contextlib.suppress(UserError, UnavailableError):  # another change is under way, or it is over
            if changes.state.both:
                before, code = stored.version(record.follows), stored.code(record.follows)
                assert code is not None
                graph = graph_from_code(code, "the version before")
                before = msgspec.structs.replace(before, schemas={}, at_ms=None)
                changes.propose(RequestedChange(before, graph, code, "rollback", record.number))
            elif record.made_how == "rollback" and stored.is_on_trial(record):
                changes.give_up(record.number)
                self.world.returned += stored.version(record.follows).at_ms is not None

    def drawn_time(self) -> int | None:
        """When a change takes effect: at an event time, or with the next batch."""
        random = self.world.random
        # No fragment starts or leaves at an event time, and no query restarts.
        if random.random() < (0.9 if self.world.drawn.is_growing or self.world.states else 0.3):
            return None
        known = [driver.query.clock.bound_ms or time_of_ms(0) for driver in self.loop.drivers.values()]
        return max(known) + random.choice((1, random.randrange(-APART_MS, 2 * DISORDER_MS)))

    def look(self) -> RunOutcome | None:
        outcome = self.loop.step(int(self.world.now_s * 1000))
        self.check_versions()
        before, now = self.world.shown_rows, self.world.check_shown()
        is_midway = not all(driver.is_finished for driver in self.loop.drivers.values())
        if now > before and is_midway and self.world.are_made:
            self.world.published_midway += 1
        return outcome

    def check_versions(self) -> None:
        """Check that the version that a query names is the one that its branches were compiled with."""
        for driver in self.loop.drivers.values():
            versions = driver.query.versions
            if versions is not None:
                running = versions.running
                known = self.loop.changes.versions.of_number(running.number).context
                context = running.branches.context
                if running.before:
                    before = self.loop.changes.versions.of_number(running.before).context
                    assert context.handing_over is not None
                    assert context.handing_over.context is before, f"version {running.before} does not run"
                    context = dataclasses.replace(context, handing_over=None)
                    known = dataclasses.replace(known)  # equal, not the same
                assert context.plan is known.plan, f"it does not run version {running.number}"
                assert running.before or context is known, f"it does not run version {running.number}"

    def recover(self, recovery: SteppedRecovery) -> None:
        self.is_recovering = True
        try:
            recovery.step()
        finally:
            self.is_recovering = False

    def while_compiling(self) -> None:
        """A recovery compiles in a thread of its own, and the loop continues meanwhile.

        Compilations by the loop itself block it. The loop does not stop now, because it would wait for the
        recovery, which continues here only when `look` returns.
        """
        if self.is_recovering and self.world.random.random() < 0.5:
            self.is_recovering = False
            is_to_stop, self.listener.stops = self.listener.stops, False
            try:
                self.change()
                self.look()
            finally:
                self.is_recovering = True
                self.listener.stops |= is_to_stop

    def pass_time(self) -> None:
        assert self.actors is not None
        self.actors.pass_time(self.world.random.choice((0.01, 0.05, 0.3)))

    def reached(self, point: CrashPoint) -> None:
        """Called at a point between two effects: the process may end here, or other parts may take turns."""
        world = self.world
        if world.is_dead:
            raise Killed
        if world.deaths and world.deaths[0] is point:
            world.deaths.popleft()
            world.die()
        world.may_die(world.risk * 10)
        if self.is_nested or world.random.random() > 0.1 or not hasattr(self, "loop"):
            return
        self.is_nested = True
        try:
            others = [query.step for query in self.engine.queries if query.is_active]
            others += [lambda part=part: part.step(int(world.now_s * 1000)) for part in self.parts]
            if others:
                world.random.choice(others)()
        finally:
            self.is_nested = False

    # -- the end -------------------------------------------------------------------------------------

    def stop_all(self) -> None:
        for driver in self.loop.drivers.values():
            driver.stop()
        assert self.actors is not None
        self.actors.loop.close()

    def release(self) -> None:
        """Do what the kernel does when a process has ended."""
        works: list[Any] = [*self.recoveries, *self.readings]
        for work in works:
            with contextlib.suppress(Killed):
                work.steps.close()
        if self.actors is not None:
            self.actors.loop.close()
        self.rundir.release()
