"""Prepares an application for this process before its first batch, and concludes it.

Problem: everything of an application has to be checked before anything of it is written, by one process, even
if several run its fragments.

Design: `prepare` processes all of the application: it compiles every fragment and checks every source and
sink before the application's state begins. Only one process does that. Others `join`: of the fragments that
they do not run they need only the schemas of the channels, which are stored in the state directory. Both
return an `Execution`.

What if we die here: `prepare` leaves nothing that counts before `begin`, at its end.

Invariants:

1. Nothing is written to a sink or a channel before every fragment has compiled.

Called by `embedded` and by the cluster's executor.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import time
import uuid
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from pyspark.sql.types import StructType

from drivetrain.api.graphs.literal_secrets import literal_secret_notice, literal_secrets
from drivetrain.connectors.opening import check_source
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.plan.plan import Plan
from drivetrain.runtime.checkpoints.checkpoint_copying import CheckpointCopying
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.checkpoints.claim_file import claim_name
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.state_place import copies_place
from drivetrain.spark.checkpoints.from_savepoint import OpenedSavepoint, opened_savepoint
from drivetrain.spark.checkpoints.restoring import require_states, restore_lost
from drivetrain.spark.connector.publishing import publish_prepared
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.graph_code import code_if_possible
from drivetrain.spark.prepare.opened_sinks import OpenSinks, claim_sinks, open_sinks, succeed_in_sinks
from drivetrain.spark.prepare.replay_filter import replay_from, replay_in
from drivetrain.spark.run.copying import begin_again, require_copyable, wait_for_predecessor
from drivetrain.spark.run.host import SPARK, Host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drivetrain.api.application import Application
    from drivetrain.config import Config
    from drivetrain.core.job.run_progress import RunResult
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.connector.sink import SinkWriter


from drivetrain.core.change.subscriptions import carried_over, refuse_checkpoints
from drivetrain.core.plan.configured import configured_plan
from drivetrain.runtime.leftovers import delete_leftovers
from drivetrain.spark.run.execution import Execution
from drivetrain.spark.run.subscribers import require_same_columns
from drivetrain.spark.run.subscribing import WaitOptions, end_subscriptions, subscribe

Replan: TypeAlias = "Callable[[], tuple[Plan, GraphVersion | None]]"


def prepare(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    *,
    fresh: bool = False,
    replay_from_ms: int | None = None,
    savepoint: str | None = None,
    flow: FlowBook | None = None,
    host: Host = SPARK,
    version: GraphVersion | None = None,
    waiting: WaitOptions | None = None,
    copies: CopiedCheckpoints | None = None,
    replanned: Replan | None = None,
) -> Execution:
    """Compile everything, check every source and sink, and create the state; nothing runs yet.

    This process holds the lock of `rundir`. `fresh` deletes the state and outputs of earlier runs;
    `replay_from_ms` begins a new life with the messages from that time on, `savepoint` a life that continues
    from the savepoint at that place. `version` is the record of the plan, if there is one. `waiting`
    determines how it waits for other applications whose streams it reads (None: not at all). `copies` is
    where its checkpoints are copied to; `replanned` makes the plan again when there is a newer one, by a
    process that may have changed the graph. Raises the application's first error: then a first run leaves no
    state, and an earlier life stays.
    """
    require_copyable(plan.graph, config, copies)
    plan, version = with_readers(plan, rundir, config, version, fresh=fresh)
    if makes_checkpoints(plan, config):
        refuse_checkpoints(plan.graph)
    with opened_savepoint(
        savepoint, plan, rundir, config, fresh=fresh, replay_from_ms=replay_from_ms, copies=copies
    ) as saved:
        execution = _begun(
            plan,
            rundir,
            config,
            flow,
            host,
            version,
            saved,
            waiting,
            fresh=fresh,
            replay_from_ms=replay_from_ms,
        )
        has_claimed = _claim(
            copies, execution, saved, fresh=fresh, starts_over=fresh or savepoint is not None
        )
    if copies is not None and not has_claimed:
        begin_again(rundir, copies)  # the former process can make no more checkpoints from now on
        plan, version = (plan, version) if replanned is None else replanned()
        return prepare(
            plan, rundir, config, flow=flow, host=host, version=version, waiting=waiting, copies=copies
        )
    claim_sinks(execution.sinks, rundir)
    execution.copies = copies
    if copies is not None and replay_from_ms is not None:
        _end_former_life(execution, copies)
    return execution


def _end_former_life(execution: Execution, copies: CopiedCheckpoints) -> None:
    """Copy that a replay begins another life, and then publish what the former one had prepared.

    In this order: another machine that continued the former life from its last checkpoint would give the
    numbers of what was published after that to other results. If we die in between, these results are
    published with the new life's first, or dropped on another machine.
    """
    CheckpointCopying(execution.rundir, copies).begin_life(f.id for f in execution.plan.fragments)
    publish_prepared(execution.sinks)


def _claim(
    copies: CopiedCheckpoints | None,
    execution: Execution,
    saved: OpenedSavepoint | None,
    *,
    fresh: bool,
    starts_over: bool,
) -> bool:
    """Claim the application, if its checkpoints are copied, and begin what was prepared.

    Returns False if the former process has meanwhile made another checkpoint, with which it has to begin.
    """
    had_predecessor, rundir = False, execution.rundir
    if copies is not None:
        had_predecessor = copies.claim(starts_over=starts_over)
        if copies.is_outdated:
            return False
        if copies.may_predecessor_run and not fresh:
            wait_for_predecessor()
    if saved is not None:
        if had_predecessor:
            saved.drop_later(execution.sinks, claim_name(rundir.path))
        rundir.taken_over()
    elif had_predecessor:
        succeed_in_sinks(execution.sinks, rundir)
    return True


def _begun(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    flow: FlowBook | None,
    host: Host,
    version: GraphVersion | None,
    saved: OpenedSavepoint | None,
    waiting: WaitOptions | None,
    *,
    fresh: bool,
    replay_from_ms: int | None,
) -> Execution:
    if replay_from_ms is not None:
        replay_from(plan.graph, replay_from_ms)  # before anything is deleted
        if not fresh:
            rundir.make_aside(replay_from_ms)
    version = version or planned_version(plan)
    is_cleared = fresh or saved is not None
    has_published = rundir.started and not is_cleared and replay_from_ms is None
    code = None
    if is_cleared or not rundir.versions.has_code_of(version):
        # First: compiled parts may hold options with secrets, which must not be written.
        code = code_if_possible(plan.graph)
    try:
        execution = _prepared(
            plan, rundir, config, flow, host, waiting, fresh=fresh, replay_from_ms=replay_from_ms, saved=saved
        )
        execution.record = rundir.begin(plan, version, code)
        delete_leftovers(rundir, execution.record)
        is_periodic = execution.context.transactional
        CheckpointFiles(rundir.home).note_periodic(is_periodic, has_published=has_published)
    except BaseException:
        rundir.give_up_aside()
        if rundir.is_taken_over:
            rundir.clear()
        raise
    return execution


def _prepared(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    flow: FlowBook | None,
    host: Host,
    waiting: WaitOptions | None,
    *,
    fresh: bool,
    replay_from_ms: int | None,
    saved: OpenedSavepoint | None,
) -> Execution:
    sinks = open_sinks(plan, rundir, config)
    if fresh:
        _forget(rundir, sinks)
        if replay_from_ms is not None:
            rundir.make_aside(replay_from_ms)
    if saved is not None:
        rundir.take_over(saved.life)
        saved.bring_into(plan, rundir)
        sinks = open_sinks(plan, rundir, config)
    rundir.refuse_another_graph(plan)
    first_run = not rundir.started
    if first_run or replay_from_ms is not None:
        _validate_sources(plan, config)
    for sink in sinks.values():
        sink.validate()
    if saved is not None and not saved.is_copied:
        saved.drop_later(sinks, claim_name(rundir.path))
    life_ends = replay_from_ms is not None and not first_run and copies_place(config) is None
    restored = _settled(plan, rundir, config, sinks, life_ends=life_ends)
    subscribed = subscribe(plan.graph, rundir, config, waiting)
    execution = _started(plan, rundir, config, sinks, flow, host)
    execution.notices += subscribed
    execution.notices += map(literal_secret_notice, literal_secrets(plan.graph, config))
    if restored is not None:
        execution.notices.append(restored)
    if saved is not None:
        parts = int(execution.engine.spark.conf.get("spark.sql.shuffle.partitions", "2"))
        execution.notices.append(saved.notice(parts))
    try:
        execution.compile_all()
        require_same_columns(execution.plan, rundir, execution.context.schemas)
    except BaseException:
        if first_run:
            end_subscriptions(plan.graph, rundir)
            rundir.clear()  # nothing has run: the next try lists its inputs again
        raise
    return execution


def _forget(rundir: RunDirectory, sinks: Mapping[str, SinkWriter]) -> None:
    """Delete the state and the results."""
    for sink in sinks.values():
        sink.check_fresh()
    # The state first: a state without its results would continue, results without a state are refused.
    rundir.clear()
    for sink in sinks.values():
        sink.fresh()


def _settled(
    plan: Plan, rundir: RunDirectory, config: Config, sinks: Mapping[str, SinkWriter], *, life_ends: bool
) -> str | None:
    """Publish or restore what earlier runs had prepared; returns a notice for the user, if any."""
    if life_ends:
        publish_prepared(sinks)  # the new life does not compute the results of this one again
    if makes_checkpoints(plan, config):
        return restore_lost(plan, rundir, sinks)
    require_states(plan, rundir)
    files = CheckpointFiles(rundir.home)
    if files.transaction() is not None:
        files.note_periodic(False, has_published=True)
        publish_prepared(sinks)  # prepared while checkpoints were on; now each batch is published separately
    return None


def _validate_sources(plan: Plan, config: Config) -> None:
    """Raise errors that can be found without Spark, at once. Later runs use the inputs that they listed."""
    for node in plan.graph.nodes.values():
        if node.operation.any_source is not None:
            check_source(node.operation.any_source, config)


def join(plan: Plan, rundir: RunDirectory, config: Config, flow: FlowBook, host: Host = SPARK) -> Execution:
    """An application that another process has prepared (`rundir.preparation`); `rundir` is shared."""
    execution = _started(plan, rundir, config, open_sinks(plan, rundir, config), flow, host)
    for id, schema in rundir.preparation.schemas.items():
        execution.context.schemas[id] = StructType.fromJson(schema)
    return execution


def look_at(plan: Plan, rundir: RunDirectory, config: Config) -> CompileContext:
    """Compile everything, to have Spark analyse it; `rundir` is a scratch directory."""
    execution = _started(plan, rundir, config, open_sinks(plan, rundir, config))
    execution.compile_all()
    return execution.context


def printed_by_hooks(application: Application, result: RunResult) -> str:
    """Call the `when_finished` hooks of an application; returns their output. Raises their errors."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        application.call_finish_hooks(result)
    return printed.getvalue()


def finish(rundir: RunDirectory, result: RunResult, copies: CopiedCheckpoints | None = None) -> None:
    """Record in the store of its checkpoints and in the state directory that the application has finished."""
    if copies is not None:
        copies.finish()
    rundir.finish({"at": time.time(), "outputs": [output.target for output in result.outputs]})


def _started(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    sinks: OpenSinks,
    flow: FlowBook | None = None,
    host: Host = SPARK,
) -> Execution:
    engine = host.engine(plan, config)
    replay = replay_in(plan.graph, rundir.life)
    context = CompileContext(
        engine.spark,
        plan,
        rundir,
        config,
        run_id=uuid.uuid4().hex,
        replay=replay,
        transactional=makes_checkpoints(plan, config),
    )
    return Execution(context, engine, sinks, flow or FlowBook(config), host.part)


def with_readers(
    plan: Plan, rundir: RunDirectory, config: Config, version: GraphVersion | None, *, fresh: bool
) -> tuple[Plan, GraphVersion | None]:
    """The plan, and its version, with the subscriptions of other applications that are in force.

    An application that starts over keeps them under other keys: their readers then notice. Raises UserError
    when a stream is gone that others read.
    """
    in_force = rundir.versions.last_readable()
    records = () if in_force is None else in_force.subscriptions
    if fresh:
        records = tuple(msgspec.structs.replace(record, key=secrets.token_hex(4)) for record in records)
    if not records and not plan.subscriptions:
        return plan, version
    graph = carried_over(plan.graph, records)
    if graph.nodes.keys() == plan.graph.nodes.keys() and version is not None:
        return plan, version
    return configured_plan(graph, config), None
