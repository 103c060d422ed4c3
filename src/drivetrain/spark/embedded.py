"""Run an application embedded: every fragment in this process, on one Spark session.

The order of things: plan, lock the state directory, start Spark, compile every fragment and check
every source and sink before anything is written, start the queries in topological order, then poll
until all have finished, one has failed, or somebody asks to stop.

What if we die here: at any point the same command goes on from Spark's checkpoints; sinks and
channels skip what they have. `application.json` says "finished" only after the last output.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
import uuid
from dataclasses import dataclass, field

from drivetrain.api.application import Application
from drivetrain.api.graph import Read, Table, Write
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.plan import Fragment, Plan
from drivetrain.core.planner import plan as make_plan
from drivetrain.core.progress import (
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    QuietListener,
    RunListener,
    RunOutcome,
    RunResult,
    RunStarted,
)
from drivetrain.errors import GraphError
from drivetrain.spark.branches import Branches
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.spark.counting import Counts
from drivetrain.spark.fragment import CompileContext, Trunk, TrunkCompiler
from drivetrain.spark.query import FragmentQuery
from drivetrain.spark.results import already_finished, result
from drivetrain.spark.rundir import RunDirectory
from drivetrain.spark.session import session
from drivetrain.spark.shipping import ship
from drivetrain.spark.sinks import SinkContext, SinkWriter, open_sink, sink_path
from drivetrain.spark.sources import validate_source

POLL_S = 0.05
DRAIN_S = 60.0


@dataclass
class Running:
    """An application that has been compiled: its queries by fragment id, and what they share."""

    context: CompileContext
    plan: Plan
    rundir: RunDirectory
    listener: RunListener
    counts: Counts = field(default_factory=Counts)
    queries: dict[str, FragmentQuery] = field(default_factory=dict)
    sinks: dict[str, SinkWriter] = field(default_factory=dict)
    stopping: bool = False


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
) -> RunResult:
    """Run `application` until its input ends or the listener asks to stop, and say what it did.

    `fresh` forgets what earlier runs of it did, outputs included. Raises the error that stopped it.
    """
    config = config or Config.load(None, {}, {})
    listener = listener or QuietListener()
    started_s = time.monotonic()
    plan = make_plan(application.graph())
    refuse_shared_targets(plan)
    settings = {name: setting.value for name, setting in application.settings.items()}
    rundir = RunDirectory(config[run_keys.STATE_DIR], application.name, settings)
    rundir.acquire()
    try:
        if not fresh and rundir.finished is not None:
            return already_finished(plan, rundir.finished)
        resumed = rundir.started and not fresh
        running = prepare(plan, rundir, config, listener, fresh=fresh)
        listener.on_event(RunStarted(application.name, tuple(f.id for f in plan.fragments), resumed))
        outcome = _until_the_end(running)
        told = result(running.plan, running.counts, running.queries, outcome, started_s)
        if outcome is RunOutcome.FINISHED:
            rundir.finish({"at": time.time(), "outputs": [o.target for o in told.outputs]})
        return told
    finally:
        rundir.release()


def analysed(application: Application, config: Config | None = None) -> Plan:
    """The plan of `application` as Spark sees it: every operator's columns, and how it really runs.

    Starts Spark and looks at the inputs' schemas; runs nothing and writes nothing that stays.
    """
    config = config or Config.load(None, {}, {})
    plan = make_plan(application.graph())
    refuse_shared_targets(plan)
    with tempfile.TemporaryDirectory(prefix="drivetrain-plan-") as scratch:
        rundir = RunDirectory(scratch, application.name, {})
        spark = session(config, plan.application)
        ship(plan.graph)
        context = CompileContext(spark, plan, rundir, config, run_id=uuid.uuid4().hex)
        running = Running(context, plan, rundir, QuietListener(), sinks=open_sinks(plan, rundir))
        for fragment in plan.fragments:
            compile_fragment(running, fragment)
    operators = {
        id: dataclasses.replace(
            operator,
            how=context.how.get(id, (operator.how, ""))[0],
            why=context.how.get(id, ("", operator.why))[1],
            columns=context.columns.get(id),
        )
        for id, operator in plan.operators.items()
    }
    return dataclasses.replace(plan, operators=operators)


def prepare(
    plan: Plan, rundir: RunDirectory, config: Config, listener: RunListener, *, fresh: bool = False
) -> Running:
    """Compile everything and check every source and sink; nothing runs yet."""
    sinks = open_sinks(plan, rundir)
    if fresh:
        # The state first: a state whose results are gone would go on, one that is gone is refused.
        rundir.clear()
        for sink in sinks.values():
            sink.fresh()
    rundir.refuse_another_graph(plan)
    first_run = not rundir.started
    if first_run:
        # What can be found wrong without Spark is told at once. Later runs go on with what they listed.
        for node in plan.graph.nodes.values():
            if isinstance(node.operation, Read | Table):
                validate_source(node.operation.source)
    for sink in sinks.values():
        sink.validate()
    context = CompileContext(session(config, plan.application), plan, rundir, config, run_id=uuid.uuid4().hex)
    ship(plan.graph)
    running = Running(context, plan, rundir, listener, sinks=sinks)
    try:
        for fragment in plan.fragments:
            running.queries[fragment.id] = compile_fragment(running, fragment)
    except BaseException:
        if first_run:
            rundir.clear()  # nothing has run: the next try lists its inputs anew
        raise
    rundir.begin(plan)
    return running


def compile_fragment(running: Running, fragment: Fragment) -> FragmentQuery:
    """Compile a fragment's trunk and, on no data, its branches: so every operator is checked by Spark."""
    context, plan, rundir = running.context, running.plan, running.rundir
    trunk: Trunk = TrunkCompiler(context, fragment).compile()
    stores = {
        c.id: ChannelStore(rundir.channel(c.id), fragment=fragment.id) for c in plan.outputs(fragment.id)
    }
    letters = ChannelStore(rundir.dead_letters(fragment.id), fragment=fragment.id)
    branches = Branches(context, fragment, trunk, running.sinks, stores, letters, running.counts)
    empty = context.spark.createDataFrame([], trunk.df.schema)
    context.schemas.update({id: df.schema for id, df in branches.schemas(empty).items()})
    readers = {id: ChannelStore(rundir.channel(id)) for id in trunk.inputs if id in _channels(plan)}
    return FragmentQuery(
        plan, fragment, trunk, branches, rundir.fragment(fragment.id), readers, running.counts
    )


def open_sinks(plan: Plan, rundir: RunDirectory) -> dict[str, SinkWriter]:
    """The sinks of an application by processor id."""
    opened: dict[str, SinkWriter] = {}
    for node in plan.graph.nodes.values():
        if isinstance(node.operation, Write):
            directory = str(rundir.path / "sinks" / node.id)
            opened[node.id] = open_sink(node.operation.sink, SinkContext(rundir.app_id, node.id, directory))
    return opened


def refuse_shared_targets(plan: Plan) -> None:
    """Raise `GraphError` when two sinks write to one place: each would take the other's for its own."""
    taken: dict[str, str] = {}
    for node in plan.graph.nodes.values():
        target = sink_path(node.operation.sink) if isinstance(node.operation, Write) else None
        if target is None:
            continue
        if target in taken:
            raise GraphError(
                f"two sinks write to {target}",
                where=str(node),
                got=f"the other is {taken[target]}",
                remedy="give each sink a directory of its own, or union the streams before one sink",
            )
        taken[target] = str(node)


# -- while it runs -----------------------------------------------------------------------------------


def _until_the_end(running: Running) -> RunOutcome:
    told: dict[str, tuple[int, FragmentState | None]] = {}
    try:
        for query in running.queries.values():
            _tell_state(running, query, told)
            query.start()
            _tell_state(running, query, told)
        while True:
            for query in running.queries.values():
                query.poll(lambda f: running.queries[f].state is FragmentState.FINISHED)
                _tell(running, query, told)
                failure = query.failure()
                if failure is not None:
                    query.state = FragmentState.FAILED
                    _tell_state(running, query, told)
                    raise failure
            if all(q.state is FragmentState.FINISHED for q in running.queries.values()):
                return RunOutcome.FINISHED
            if running.listener.stop_requested():
                _drain(running, told)
                return RunOutcome.STOPPED
            time.sleep(POLL_S)
    finally:
        for query in running.queries.values():
            query.stop()


def _drain(running: Running, told: dict[str, tuple[int, FragmentState | None]]) -> None:
    """Let every running batch finish, then stop; what a batch had begun and not finished runs again."""
    for query in running.queries.values():
        if query.state is FragmentState.RUNNING:
            query.state = FragmentState.DRAINING
            query.drain()
            _tell_state(running, query, told)
    deadline = time.monotonic() + DRAIN_S
    for query in running.queries.values():
        while query.active and query.busy and time.monotonic() < deadline:
            time.sleep(POLL_S)
        query.stop()
        if query.state is FragmentState.DRAINING:
            query.state = FragmentState.STOPPED
            _tell_state(running, query, told)


def _tell(running: Running, query: FragmentQuery, told: dict[str, tuple[int, FragmentState | None]]) -> None:
    _tell_state(running, query, told)
    batch, state = told.get(query.fragment.id, (-1, None))
    if query.batch_id == batch:
        return
    told[query.fragment.id] = (query.batch_id, state)
    running.listener.on_event(
        FragmentProgressed(
            query.fragment.id,
            query.batch_id,
            query.rows_total,
            query.rows_per_s,
            query.batch_ms,
            query.lag_rows(),
            query.clock_ms,
        )
    )
    fraction = _fraction(running)
    if fraction is not None:
        running.listener.on_event(InputProgressed(fraction))


def _tell_state(
    running: Running, query: FragmentQuery, told: dict[str, tuple[int, FragmentState | None]]
) -> None:
    batch, state = told.get(query.fragment.id, (-1, None))
    if state is not query.state:
        told[query.fragment.id] = (batch, query.state)
        running.listener.on_event(FragmentStateChanged(query.fragment.id, query.state))


def _fraction(running: Running) -> float | None:
    done = total = 0
    for query in running.queries.values():
        for source in query.trunk.sources:
            position = query.position(source)
            if position.total is None:
                return None
            done, total = done + position.done, total + position.total
    return min(1.0, done / total) if total else None


def _channels(plan: Plan) -> set[str]:
    return {c.id for c in plan.channels}
