"""The job: all fragments of an application together, and what happens to them when something fails.

Problem: a failed fragment must not take the others down, a hopeless one must end the application, and reports
that arrive late, twice or about abandoned attempts must change nothing.

Design: two machines joined. Each fragment has a current `Execution`, one attempt (see
`core.job.fragment_execution`); the job has its own state. A fragment that fails restarts *alone*, as attempt
+ 1, when its restart strategy permits. A failure that the strategy does not permit, or that another attempt
would only repeat, or the loss of executors that cannot be replaced, fails the job: FAILING until all
fragments are terminal, then RESTARTING if the job's strategy permits, else FAILED. Methods are events and
return effects, to be performed in order.

Deployment is lazy: a fragment that reads channels is scheduled when one of its producers has written its
first data or has finished. A fragment that had data in an earlier run of the application is scheduled at once
(`eager`), because its channels already hold data that the producer will not write again. Scheduled fragments
are deployed when the job is open and there is an executor.

The application may change while it runs: `replace_vertices` adds fragments, which are scheduled at once, and
removes those that have ended. A fragment on trial (`spared`) restarts as often as it fails: the trial
decides. A fragment whose code has changed starts at once if it waits for a restart (`code_changed`).

Invariants, checked by `check()`:
1. The job's state changes by `TRANSITIONS` only; a terminal one is never left.
2. A fragment has one current attempt; attempts of a fragment grow by one and never return.
3. A fragment that may be running is on an executor that was not lost.
4. The job finishes only when every fragment has finished and the end was recorded (`concluded`).
5. A canceled job does not restart.

Called by the application master. Source: Apache Flink's execution graph; the restart of single fragments is
decision 0015.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from drivetrain.core.job.fragment_execution import (
    Execution,
    ExecutionEvent,
    ExecutionState,
    ExecutorId,
    FragmentId,
)
from drivetrain.core.job.job_events import (
    TRANSITIONS,
    DeployAttempt,
    JobChanged,
    JobEffect,
    JobState,
    RecordJobEnd,
    Vertex,
    WakeFragment,
    WakeJob,
    pending_commands,
)
from drivetrain.core.job.placement import Placement, ReadyExecutor
from drivetrain.core.job.restarts import RandomSource, RestartPolicy, RestartStrategy
from drivetrain.errors import InternalError


class Job:
    """The job of `vertices`, producers before consumers; see the module.

    `policy` is each fragment's, `job_policy` the job's. `saved` is the result of `saved()` in an earlier
    application master. `now_ms` of all methods is a wall clock. `error` is the last failure of the job, as
    passed in.
    """

    def __init__(
        self,
        vertices: Sequence[Vertex],
        policy: RestartPolicy,
        job_policy: RestartPolicy,
        rng: RandomSource,
        saved: Mapping[str, object] | None = None,
    ) -> None:
        self._vertices = {vertex.fragment: vertex for vertex in vertices}
        self._policy: Final = policy
        self._rng: Final = rng
        saved = saved or {}
        self._strategy: Final = RestartStrategy.restored(job_policy, rng, _table(saved.get("job")))
        fragments = _table(saved.get("fragments"))
        self._strategies = {
            fragment: RestartStrategy.restored(policy, rng, _table(fragments.get(fragment)))
            for fragment in self._vertices
        }
        self._current = {fragment: Execution(fragment, 1) for fragment in self._vertices}
        self._gone: dict[FragmentId, int] = {}  # the last attempt of fragments that have left
        self.spared: frozenset[str] = frozenset()
        """Fragments whose failures do not count."""
        self._lazy: set[FragmentId] = set()  # waiting for a producer's first data
        self._placement: Final = Placement()
        self._is_open = False
        self._is_hopeless = False
        self._was_canceled = False
        self._drains = False
        self._restart = 0
        self._history: deque[str] = deque(maxlen=30)
        self.state = JobState.CREATED
        self.error: object = None

    # ---- state

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """The fragments, in topological order."""
        return tuple(self._vertices.values())

    @property
    def executions(self) -> Sequence[Execution]:
        """The current attempt of every fragment, in topological order."""
        return tuple(self._current.values())

    def execution(self, fragment: str) -> Execution | None:
        """The current attempt of a fragment, None for an unknown one."""
        return self._current.get(FragmentId(fragment))

    def unanswered(self) -> list[JobEffect]:
        """The commands that executors have not carried out yet: messages may be lost, so send them again."""
        return [
            effect
            for execution in self._current.values()
            for effect in pending_commands(execution, self._drains)
        ]

    def saved(self) -> dict[str, object]:
        """The restart strategies as plain data, so that the next application master continues the counts."""
        fragments = {f: s.saved() for f, s in self._strategies.items() if s.restarts}
        return {"job": self._strategy.saved(), "fragments": fragments}

    # ---- events

    def start(self, *, eager: bool = False) -> list[JobEffect]:
        """Begin; `eager` schedules consumers without waiting for data."""
        effects = self._go(JobState.RUNNING)
        for fragment, vertex in self._vertices.items():
            if vertex.producers and not eager:
                self._lazy.add(fragment)
            else:
                self._current[fragment].step(ExecutionEvent.SCHEDULE)
        return effects + self._deploy() + self._look_for_end()

    def replace_vertices(self, vertices: Sequence[Vertex]) -> list[JobEffect]:
        """The job consists of these vertices from now on, producers before consumers.

        New ones are scheduled at once. Raises InternalError when a removed one may still run.
        """
        wanted = {vertex.fragment: vertex for vertex in vertices}
        for fragment in self._current.keys() - wanted.keys():
            if self._current[fragment].is_placed:
                raise InternalError("a fragment leaves the job while it may run", where=fragment)
        for fragment in self._current.keys() - wanted.keys():
            self._gone[fragment] = self._current.pop(fragment).attempt
            self._lazy.discard(fragment)
            del self._strategies[fragment]
        added = [fragment for fragment in wanted if fragment not in self._current]
        for fragment in added:
            self._current[fragment] = Execution(fragment, self._gone.pop(fragment, 0) + 1)
            self._strategies[fragment] = RestartStrategy(self._policy, self._rng)
        self._vertices = wanted
        self._current = {fragment: self._current[fragment] for fragment in wanted}
        for fragment in added:
            self._schedule(self._current[fragment])
        return self._deploy() + self._look_for_end()

    def runs_again(self, fragment: str) -> list[JobEffect]:
        """A fragment that has finished gets another attempt; no effect on any other fragment."""
        execution = self._current.get(FragmentId(fragment))
        if execution is None or execution.state is not ExecutionState.FINISHED:
            return []
        if self.state is not JobState.RUNNING:
            return []  # it gets one when the job starts again, if it does
        made = self._current[execution.fragment] = Execution(execution.fragment, execution.attempt + 1)
        self._schedule(made)
        return self._deploy()

    def _schedule(self, execution: Execution) -> None:
        if self.state is JobState.RUNNING:
            execution.step(ExecutionEvent.SCHEDULE)
        elif self.state in (JobState.FAILING, JobState.CANCELLING) or self.state.is_terminal:
            execution.step(ExecutionEvent.CANCEL)

    def open(self) -> list[JobEffect]:
        """From now on scheduled fragments may be deployed."""
        self._is_open = True
        return self._deploy()

    @property
    def is_open(self) -> bool:
        """Whether scheduled fragments may be deployed."""
        return self._is_open

    def executor_ready(self, executor: ReadyExecutor) -> list[JobEffect]:
        """An executor is ready for fragments."""
        self._placement.add(executor)
        return self._deploy()

    def executor_lost(self, executor: ExecutorId, error: object, now_ms: int) -> list[JobEffect]:
        """An executor is gone; everything on it has failed. Unknown ones are ignored."""
        self._placement.remove(executor)
        effects: list[JobEffect] = []
        for execution in list(self._current.values()):
            if execution.is_placed and execution.executor == executor:
                effects += self._take(execution, ExecutionEvent.FAILS, error, True, now_ms)
        return effects

    def changed(
        self,
        fragment: str,
        attempt: int,
        executor: str,
        event: ExecutionEvent,
        now_ms: int,
        *,
        error: object = None,
        retryable: bool = True,
    ) -> tuple[bool, list[JobEffect]]:
        """An executor reports an attempt's new state; returns first whether that attempt is known."""
        execution = self._current.get(FragmentId(fragment))
        if execution is None or execution.attempt != attempt or execution.executor != executor:
            return False, []
        return True, self._take(execution, event, error, retryable, now_ms)

    def data_came(self, fragment: str) -> list[JobEffect]:
        """A fragment has written its first data (repetition is harmless); its consumers may begin."""
        if self.state is not JobState.RUNNING:
            return []
        for consumer, vertex in self._vertices.items():
            if consumer in self._lazy and fragment in vertex.producers:
                self._lazy.remove(consumer)
                self._current[consumer].step(ExecutionEvent.SCHEDULE)
        return self._deploy()

    def fragment_due(self, fragment: str, attempt: int) -> list[JobEffect]:
        """The delay before a restart is over; ignored when that attempt is no longer awaited."""
        execution = self._current.get(FragmentId(fragment))
        is_awaited = (
            execution is not None
            and execution.attempt == attempt
            and execution.state is ExecutionState.CREATED
            and execution.fragment not in self._lazy
        )
        if execution is None or not is_awaited or self.state is not JobState.RUNNING:
            return []
        execution.step(ExecutionEvent.SCHEDULE)
        return self._deploy()

    def code_changed(self, fragments: Iterable[str]) -> list[JobEffect]:
        """Other code of these fragments is in force: earlier failures of theirs do not count any more."""
        effects: list[JobEffect] = []
        for fragment in sorted(self._strategies.keys() & set(fragments)):
            self._strategies[fragment] = RestartStrategy(self._policy, self._rng)
            effects += self.fragment_due(fragment, self._current[fragment].attempt)
        return effects

    def job_due(self, restart: int) -> list[JobEffect]:
        """The delay before the job's restart is over; ignored when it is no longer awaited."""
        if self.state is not JobState.RESTARTING or restart != self._restart:
            return []
        effects = self._go(JobState.CREATED)
        for fragment, execution in self._current.items():
            self._current[fragment] = Execution(fragment, execution.attempt + 1)
            self._strategies[fragment] = RestartStrategy(self._policy, self._rng)
        return effects + self.start(eager=True)

    def fail(self, error: object, now_ms: int, *, retryable: bool = True) -> list[JobEffect]:
        """The job as a whole has failed; without `retryable` it does not restart."""
        if self.state.is_terminal or self.state is JobState.FAILING:
            self._is_hopeless |= not retryable and not self.state.is_terminal
            return []
        self.error = error
        self._is_hopeless |= not retryable
        effects = self._go(JobState.FAILING)
        return effects + self._cancel_all(drain=False) + self._look_for_rest(now_ms)

    def cancel(self, now_ms: int) -> list[JobEffect]:
        """End the job: fragments stop at their next batch boundary. No effect when it is ending already."""
        self._was_canceled = True
        if self.state.is_terminal or self.state is JobState.CANCELLING:
            return []
        if self.state is JobState.RESTARTING:
            return self._go(JobState.CANCELED)
        effects = self._go(JobState.CANCELLING)
        return effects + self._cancel_all(drain=True) + self._look_for_rest(now_ms)

    def concluded(self) -> list[JobEffect]:
        """The end of all fragments was recorded; ignored unless all have finished."""
        if self.state is not JobState.RUNNING or not self._all_finished():
            return []
        return self._go(JobState.FINISHED)

    # ---- transitions

    def _take(
        self, execution: Execution, event: ExecutionEvent, error: object, retryable: bool, now_ms: int
    ) -> list[JobEffect]:
        if not execution.step(event) or not execution.is_terminal:
            return []
        fragment = execution.fragment
        if execution.executor is not None:
            self._placement.had(fragment, execution.executor)
        if self.state is not JobState.RUNNING:
            return self._look_for_rest(now_ms)
        if execution.state is ExecutionState.FINISHED:
            return self.data_came(fragment) + self._look_for_end()
        # An executor that cancels an attempt while the job runs has failed to run it.
        if fragment in self.spared:
            delay_ms: int | None = self._policy.delay_ms
        else:
            delay_ms = self._strategies[fragment].next_delay_ms(now_ms) if retryable else None
        if delay_ms is None:
            return self.fail(error, now_ms, retryable=retryable)
        self._current[fragment] = Execution(fragment, execution.attempt + 1)
        return [WakeFragment(fragment, execution.attempt + 1, delay_ms)]

    def _deploy(self) -> list[JobEffect]:
        if not self._is_open or self.state is not JobState.RUNNING:
            return []
        effects: list[JobEffect] = []
        for fragment, execution in self._current.items():
            if execution.state is not ExecutionState.SCHEDULED:
                continue
            placed = [e.executor for e in self._current.values() if e.is_placed and e.executor is not None]
            producers = [self._current[producer].executor for producer in self._vertices[fragment].producers]
            chosen = self._placement.choose(fragment, placed, producers)
            if chosen is None:
                break
            execution.deploy(chosen)
            effects.append(DeployAttempt(fragment, execution.attempt, chosen))
        return effects

    def _cancel_all(self, *, drain: bool) -> list[JobEffect]:
        self._drains = drain
        self._lazy.clear()
        effects: list[JobEffect] = []
        for execution in self._current.values():
            if not execution.is_terminal:
                execution.step(ExecutionEvent.CANCEL)
            effects += pending_commands(execution, drain)
        return effects

    def _look_for_end(self) -> list[JobEffect]:
        return [RecordJobEnd()] if self.state is JobState.RUNNING and self._all_finished() else []

    def _look_for_rest(self, now_ms: int) -> list[JobEffect]:
        """Leave FAILING or CANCELLING once nothing runs any more."""
        if not all(execution.is_terminal for execution in self._current.values()):
            return []
        if self.state is JobState.CANCELLING:
            return self._go(JobState.CANCELED)
        if self.state is not JobState.FAILING:
            return []
        is_over = self._is_hopeless or self._was_canceled
        delay_ms = None if is_over else self._strategy.next_delay_ms(now_ms)
        if delay_ms is None:
            return self._go(JobState.FAILED)
        self._restart += 1
        return [*self._go(JobState.RESTARTING), WakeJob(self._restart, delay_ms)]

    def _all_finished(self) -> bool:
        return all(e.state is ExecutionState.FINISHED for e in self._current.values())

    def _go(self, after: JobState) -> list[JobEffect]:
        if after not in TRANSITIONS[self.state]:
            raise InternalError(
                f"a job that is {self.state.value} cannot become {after.value}", history=tuple(self._history)
            )
        self._history.append(f"{self.state.value} -> {after.value}")
        self.state = after
        return [JobChanged(after)]

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        story = tuple(self._history)
        for fragment, execution in self._current.items():
            execution.check()
            if execution.is_placed and execution.executor not in self._placement.executors:
                raise InternalError("job invariant 3: runs where nobody is", where=fragment, history=story)
            if self.state.is_terminal and not execution.is_terminal:
                raise InternalError("job: over, and a fragment is not", where=fragment, history=story)
            if self.state is not JobState.RUNNING and fragment in self._lazy:
                raise InternalError("job: waits for data and does not run", where=fragment, history=story)
        if self.state is JobState.FINISHED and not self._all_finished():
            raise InternalError("job invariant 4: finished before its fragments", history=story)
        if self._was_canceled and self.state is JobState.RESTARTING:
            raise InternalError("job invariant 5: canceled and restarting", history=story)
        for strategy in (self._strategy, *self._strategies.values()):
            strategy.check()


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
