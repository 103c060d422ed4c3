"""The result of a run, and the plan that it has compiled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from drivetrain.core.job.run_progress import OutputResult, ProcessorResult, RunOutcome, RunResult
from drivetrain.core.plan.counts import derive, rules_of
from drivetrain.core.plan.plan import Plan
from drivetrain.core.replay.replay import Life
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.message_counts import together
from drivetrain.spark.prepare.compile_context import CompileContext


def result(
    plan: Plan,
    queries: Mapping[str, FragmentQuery],
    outcome: RunOutcome,
    started_s: float,
    life: Life,
    clock_ms: int | None,
) -> RunResult:
    """The result of a run that began at `started_s` (monotonic seconds); the application is at `clock_ms`."""
    counts = together(query.counts for query in queries.values())
    taken, given = derive(rules_of(plan.graph), counts.out, counts.into)
    processors = tuple(
        ProcessorResult(
            node.id,
            taken.get(node.id) or 0,
            given.get(node.id) or 0,
            counts.late.get(node.id, 0),
            counts.dead.get(node.id, 0),
            is_source=node.operation.stream_source is not None,
        )
        for node in plan.graph.nodes.values()
        if not node.operation.is_table
    )
    return RunResult(
        application=plan.application,
        outcome=outcome,
        duration_ms=int((time.monotonic() - started_s) * 1000),
        processors=processors,
        outputs=outputs(plan, counts.into),
        batches=sum(q.batches for q in queries.values()),
        clock_ms=clock_ms,
        accumulators=dict(sorted(counts.user.items())),
        life=life.number,
        replay_from_ms=life.from_ms,
        skipped=sum(query.counts.skipped_rows for query in queries.values()),
        lost=sum(query.counts.lost_rows for query in queries.values()),
        fragments=tuple(query.progressed() for query in queries.values()),
    )


def already_finished(plan: Plan) -> RunResult:
    """The result of running a finished application again: nothing was done."""
    return RunResult(plan.application, RunOutcome.ALREADY_FINISHED, 0, (), outputs(plan, {}))


def is_source(plan: Plan, id: str) -> bool:
    """Whether a processor reads messages from outside."""
    return plan.graph.nodes[id].operation.stream_source is not None


def outputs(plan: Plan, written: Mapping[str, int]) -> tuple[OutputResult, ...]:
    """The messages that each sink wrote, in the order of the graph."""
    return tuple(OutputResult(s.id, s.target, written.get(s.id, 0), s.guarantee) for s in plan.sinks)


def as_compiled(context: CompileContext) -> Plan:
    """The plan that was compiled: every operator's columns, and how it really runs."""
    plan = context.plan
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
