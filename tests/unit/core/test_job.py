"""The job: the reference's machine, fragments that restart alone, lazy deployment."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.cluster.messages.following import JobState as ToldState
from drivetrain.core.job.fragment_execution import ExecutionEvent as E
from drivetrain.core.job.fragment_execution import ExecutionState, ExecutorId, FragmentId
from drivetrain.core.job.job import Job
from drivetrain.core.job.job_events import (
    TRANSITIONS,
    CancelAttempt,
    DeployAttempt,
    JobChanged,
    JobState,
    RecordJobEnd,
    Vertex,
    WakeFragment,
    WakeJob,
)
from drivetrain.core.job.placement import ReadyExecutor
from drivetrain.core.job.restarts import RestartKind, RestartPolicy
from drivetrain.errors import InternalError
from nightly_run import examples

S = JobState
A, B = FragmentId("a"), FragmentId("b")
X, Y = (ReadyExecutor(ExecutorId(name), 1, name) for name in "xy")
NO_RESTARTS = RestartPolicy(RestartKind.NONE)
TWICE = RestartPolicy(RestartKind.FIXED_DELAY, attempts=2, delay_ms=10)


def job(policy: RestartPolicy = TWICE, job_policy: RestartPolicy = NO_RESTARTS) -> Job:
    return Job([Vertex(A), Vertex(B, (A,))], policy, job_policy, random.Random(0))


def running(policy: RestartPolicy = TWICE, job_policy: RestartPolicy = NO_RESTARTS) -> Job:
    made = job(policy, job_policy)
    made.executor_ready(X)
    made.executor_ready(Y)
    made.open()
    made.start(eager=True)
    for execution in made.executions:
        made.changed(execution.fragment, 1, execution.executor or "", E.RUNS, 0)
    return made


def test_the_table_is_the_reference() -> None:
    live = set(S) - {S.FINISHED, S.FAILED, S.CANCELED}
    assert {state for state in S if not TRANSITIONS[state]} == set(S) - live
    assert {state for state in S if S.FAILING in TRANSITIONS[state]} == live - {S.FAILING}
    assert {state for state in S if S.CANCELLING in TRANSITIONS[state]} == {S.CREATED, S.RUNNING, S.FAILING}
    assert TRANSITIONS[S.RESTARTING] == {S.CREATED, S.CANCELED, S.FAILING}
    assert TRANSITIONS[S.FAILING] >= {S.RESTARTING, S.FAILED}


def test_followers_are_told_the_states_by_the_same_names() -> None:
    assert [state.value for state in S] == [state.value for state in ToldState]


def test_a_consumer_deploys_on_its_producers_first_data_and_only_once() -> None:
    made = job()
    made.executor_ready(X)
    made.start()
    assert made.open() == [DeployAttempt(A, 1, X.id)]
    assert made.data_came(A) == [DeployAttempt(B, 1, X.id)]
    assert made.data_came(A) == []


def test_a_consumer_of_a_finished_producer_deploys_at_once() -> None:
    made = job()
    made.executor_ready(X)
    made.start()
    made.open()
    assert made.changed(A, 1, X.id, E.FINISHES, 0) == (True, [DeployAttempt(B, 1, X.id)])
    assert made.changed(B, 1, X.id, E.FINISHES, 0) == (True, [RecordJobEnd()])
    assert made.concluded() == [JobChanged(S.FINISHED)]


def test_a_failed_fragment_restarts_alone_where_it_was() -> None:
    made = running()
    assert made.changed(A, 1, "x", E.FAILS, 0, error="boom") == (True, [WakeFragment(A, 2, 10)])
    assert made.state is S.RUNNING
    assert made.fragment_due(A, 2) == [DeployAttempt(A, 2, X.id)]
    assert made.fragment_due(A, 2) == []
    assert made.execution(B).state is ExecutionState.RUNNING  # type: ignore[union-attr]


def test_an_update_of_an_unknown_attempt_is_not_known() -> None:
    made = running()
    made.changed(A, 1, "x", E.FAILS, 0)
    for fragment, attempt, executor in [("a", 1, "x"), ("a", 3, "x"), ("nobody", 1, "x"), ("b", 1, "x")]:
        assert made.changed(fragment, attempt, executor, E.FINISHES, 0) == (False, [])


def test_an_exhausted_strategy_fails_the_job_when_all_others_have_stopped() -> None:
    made = running(RestartPolicy(RestartKind.FIXED_DELAY, attempts=0))
    _, effects = made.changed(A, 1, "x", E.FAILS, 0, error="boom")
    assert effects == [JobChanged(S.FAILING), CancelAttempt(B, 1, Y.id, drain=False)]
    assert made.changed(B, 1, "y", E.FINISHES, 0) == (True, [JobChanged(S.FAILED)])
    assert made.execution(B).state is ExecutionState.CANCELED  # type: ignore[union-attr]
    assert made.error == "boom"


def test_a_job_restarts_with_new_attempts_of_all() -> None:
    made = running(NO_RESTARTS, TWICE)
    made.changed(A, 1, "x", E.FAILS, 0)
    assert made.changed(B, 1, "y", E.IS_CANCELED, 0)[1] == [JobChanged(S.RESTARTING), WakeJob(1, 10)]
    assert made.job_due(1) == [
        JobChanged(S.CREATED),
        JobChanged(S.RUNNING),
        DeployAttempt(A, 2, X.id),
        DeployAttempt(B, 2, Y.id),
    ]
    assert made.job_due(1) == []


def test_what_another_attempt_would_repeat_fails_the_job_for_good() -> None:
    made = running(TWICE, TWICE)
    made.changed(A, 1, "x", E.FAILS, 0, error="no input", retryable=False)
    assert made.changed(B, 1, "y", E.IS_CANCELED, 0)[1] == [JobChanged(S.FAILED)]


def test_a_lost_executor_fails_what_ran_there_and_a_restart_counts_across_processes() -> None:
    made = running()
    assert made.executor_lost(X.id, "gone", 0) == [WakeFragment(A, 2, 10)]
    assert made.fragment_due(A, 2) == [DeployAttempt(A, 2, Y.id)]
    made.changed(A, 2, "y", E.FAILS, 0)
    successor = Job([Vertex(A), Vertex(B, (A,))], TWICE, NO_RESTARTS, random.Random(0), made.saved())
    successor.executor_ready(Y)
    successor.open()
    successor.start(eager=True)
    successor.changed(A, 1, "y", E.FAILS, 0)
    assert successor.state is S.FAILING


def test_a_canceled_job_drains_and_never_restarts() -> None:
    made = running(TWICE, TWICE)
    assert made.cancel(0)[1:] == [CancelAttempt(A, 1, X.id, True), CancelAttempt(B, 1, Y.id, True)]
    assert made.unanswered() == [CancelAttempt(A, 1, X.id, True), CancelAttempt(B, 1, Y.id, True)]
    made.changed(A, 1, "x", E.FAILS, 0)
    assert made.executor_lost(Y.id, "gone", 0) == [JobChanged(S.CANCELED)]


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.sampled_from(list(E)[3:])), max_size=60))
def test_any_story_keeps_the_invariants_and_ends(  # noqa: C901 - a script of events
    script: list[tuple[int, int, E]],
) -> None:
    names = [FragmentId(n) for n in "abcd"]
    graph = [
        Vertex(names[0]),
        Vertex(names[1], (names[0],)),
        Vertex(names[2]),
        Vertex(names[3], tuple(names[1:3])),
    ]
    made = Job(graph, TWICE, TWICE, random.Random(0))
    wakes: list[WakeFragment | WakeJob] = []
    deployed: set[tuple[str, int]] = set()

    def took(effects: list[object]) -> None:
        for effect in effects:
            if isinstance(effect, WakeFragment | WakeJob):
                wakes.append(effect)
            if isinstance(effect, DeployAttempt):
                assert (effect.fragment, effect.attempt) not in deployed
                deployed.add((effect.fragment, effect.attempt))
            if isinstance(effect, JobChanged):
                states.append(effect.state)
        made.check()

    def wake(effect: WakeFragment | WakeJob) -> list[object]:
        if isinstance(effect, WakeJob):
            return [*made.job_due(effect.restart)]
        return [*made.fragment_due(effect.fragment, effect.attempt)]

    states: list[JobState] = [S.CREATED]
    took([*made.start()])
    took([*made.open()])
    for kind, which, event in script:
        execution = made.executions[which]
        match kind:
            case 0 | 1:
                took([*made.executor_ready([X, Y][which % 2])])
            case 2:
                took([*made.executor_lost([X, Y][which % 2].id, "gone", 0)])
            case 3 if wakes:
                took(wake(wakes.pop(0)))
            case 4:
                took([*made.data_came(execution.fragment)])
            case 5 if which == 0:
                took([*made.fail("bad", 0)])
            case 6 if which == 0:
                took([*made.cancel(0)])
            case _:
                of = (execution.fragment, execution.attempt - (kind == 9), execution.executor or "x")
                took([*made.changed(*of, event, 0, error="error")[1]])
    for _ in range(200):  # from now on all is well
        took([*made.executor_ready(X)])
        if wakes:
            took(wake(wakes.pop(0)))
        for execution in made.executions:
            if execution.is_placed:
                took(
                    [
                        *made.changed(
                            execution.fragment, execution.attempt, execution.executor, E.FINISHES, 0
                        )[1]
                    ]
                )  # type: ignore[arg-type]
        took([*made.concluded()])
    assert made.state.is_terminal
    assert all(after in TRANSITIONS[before] for before, after in pairwise(states))


def test_a_fragment_whose_code_has_changed_starts_at_once_and_its_failures_do_not_count() -> None:
    made = running()
    deployed = made.execution(B)
    assert deployed is not None
    executor = deployed.executor
    assert executor is not None
    [wake] = made.changed(B, 1, executor, E.FAILS, 0)[1]
    assert isinstance(wake, WakeFragment)
    assert made.saved()["fragments"].keys() == {B}  # type: ignore[attr-defined]
    assert made.code_changed([A, "of another application"]) == []
    [again] = made.code_changed([A, B])
    assert isinstance(again, DeployAttempt)
    assert (again.fragment, again.attempt) == (B, 2)
    assert made.saved()["fragments"] == {}
    assert made.fragment_due(B, 2) == [], "the delay that was announced is over"
    made.check()


def test_a_fragment_joins_a_running_job_and_leaves_it_when_it_has_ended() -> None:
    made, c = running(), FragmentId("c")
    vertices = (Vertex(A), Vertex(B, (A,)), Vertex(c, (B,)))
    [deployed] = made.replace_vertices(vertices)
    assert isinstance(deployed, DeployAttempt)
    assert (deployed.fragment, deployed.attempt) == (c, 1)
    with pytest.raises(InternalError, match="while it may run"):
        made.replace_vertices(vertices[:2])
    assert made.vertices == vertices, "a refusal changes nothing"
    made.changed(c, 1, deployed.executor, E.FINISHES, 0)
    [again] = made.runs_again(c)
    assert isinstance(again, DeployAttempt)
    assert again.attempt == 2
    made.changed(c, 2, again.executor, E.FINISHES, 0)
    assert made.replace_vertices(vertices[:2]) == []
    [back] = made.replace_vertices(vertices)
    assert isinstance(back, DeployAttempt)
    assert back.attempt == 3, "attempts of a fragment never return"
    made.check()


def test_a_fragment_that_joins_a_job_that_fails_does_not_hold_it_up() -> None:
    made, c = running(), FragmentId("c")
    made.fail("it failed", 0)
    assert made.replace_vertices((Vertex(A), Vertex(B, (A,)), Vertex(c, (B,)))) == []
    for execution in list(made.executions):
        made.changed(execution.fragment, 1, execution.executor or "", E.IS_CANCELED, 0)
    assert made.state is S.FAILED
    made.check()


def test_the_failures_of_a_spared_fragment_do_not_count() -> None:
    made = running(NO_RESTARTS)
    made.spared = frozenset({B})
    executor = made.execution(B)
    assert executor is not None
    _, [woken] = made.changed(B, 1, executor.executor or "", E.FAILS, 0, error="bad", retryable=False)
    assert isinstance(woken, WakeFragment)
    assert made.state is S.RUNNING
