"""Supervision: what a parent does about a failed child, as a table.

Problem. A supervised actor fails for reasons that range from one bad message to a machine that is
gone. The parent must answer the same way every time, must not restart a hopeless child in a hot
loop, and must not bring back a hundred children in the same instant.

Design. `Supervisor.decide` maps a failure to effects in four steps, each of them data:

1. the failure's type selects a `Directive`; the most specific class in its MRO wins, whatever the
   order of the mapping; a type that is not covered escalates;
2. a restart needs a permit: at most `max_restarts` in any window of `window_ms`; without one the
   directive becomes `exhausted` (stop by default, or escalate);
3. `ACTIONS[scope, directive]` lists what happens to the failed child and to its siblings;
4. a restart waits for its backoff: exponential, capped, with jitter from the given random source.

Invariants:

1. A window holds at most `max_restarts` permitted restarts. A restart exactly `window_ms` old is
   still within the window.
2. A backoff lies between 0 and `maximum_ms`; without jitter it never shrinks until a quiet time of
   `reset_after_ms`, counted from the moment when the last restart was due.
3. Resume and escalate never touch siblings; one-for-one never touches siblings at all.
4. With all-for-one, the group has one restart record and every member waits equally long.
5. Time does not go back; a call with an earlier time changes nothing and raises.

Called by the actor kernel, once per failed child, which performs the effects in order.
Source: Akka's and Erlang's supervision (directives, scopes, restart windows); the sliding window
and the backoff follow Flink's failure-rate and exponential-delay restart strategies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Final, NewType, Protocol

from drivetrain.errors import ConfigError, InternalError

ChildName = NewType("ChildName", str)


class Directive(Enum):
    """What happens to the failed child itself."""

    RESUME = "resume"  # continue with the next message, state kept
    RESTART = "restart"  # a fresh instance, mailbox kept
    STOP = "stop"  # the end of this child
    ESCALATE = "escalate"  # the parent fails with the same cause


class Scope(Enum):
    """What a restart or a stop affects: the failed child, or it and all its siblings."""

    ONE_FOR_ONE = "one-for-one"
    ALL_FOR_ONE = "all-for-one"


ACTIONS: Final[Mapping[tuple[Scope, Directive], tuple[Directive, Directive | None]]] = MappingProxyType(
    {
        # (scope, directive): (the failed child, each of its siblings)
        (Scope.ONE_FOR_ONE, Directive.RESUME): (Directive.RESUME, None),
        (Scope.ONE_FOR_ONE, Directive.RESTART): (Directive.RESTART, None),
        (Scope.ONE_FOR_ONE, Directive.STOP): (Directive.STOP, None),
        (Scope.ONE_FOR_ONE, Directive.ESCALATE): (Directive.ESCALATE, None),
        (Scope.ALL_FOR_ONE, Directive.RESUME): (Directive.RESUME, None),
        (Scope.ALL_FOR_ONE, Directive.RESTART): (Directive.RESTART, Directive.RESTART),
        (Scope.ALL_FOR_ONE, Directive.STOP): (Directive.STOP, Directive.STOP),
        (Scope.ALL_FOR_ONE, Directive.ESCALATE): (Directive.ESCALATE, None),
    }
)

# An ordinary exception restarts. What is not an `Exception` (interrupts, exits) is not covered, so
# it escalates to the top, where the process can end.
DEFAULT_DIRECTIVES: Final[Mapping[type[BaseException], Directive]] = MappingProxyType(
    {Exception: Directive.RESTART}
)


@dataclass(frozen=True, slots=True)
class ResumeChild:
    """Effect: let the child continue with its next message."""

    child: ChildName


@dataclass(frozen=True, slots=True)
class RestartChild:
    """Effect: replace the child's instance after `delay_ms`.

    `attempt` counts from 1 and starts over after a quiet time.
    """

    child: ChildName
    delay_ms: int
    attempt: int


@dataclass(frozen=True, slots=True)
class StopChild:
    """Effect: stop the child; `exhausted` means that it used up its restarts."""

    child: ChildName
    exhausted: bool


@dataclass(frozen=True, slots=True)
class EscalateFailure:
    """Effect: the parent itself fails with `failure`; the child stays suspended until it decides."""

    child: ChildName
    failure: BaseException
    exhausted: bool


SupervisionEffect = ResumeChild | RestartChild | StopChild | EscalateFailure


def _require(holds: bool, where: str, expected: str, got: object) -> None:
    if not holds:
        raise ConfigError(
            "a supervision setting is not possible", where=where, expected=expected, got=repr(got)
        )


class RandomSource(Protocol):
    """Where jitter comes from; `random.Random(seed)` is one."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long restarts wait: `initial_ms` × `multiplier`ⁿ, at most `maximum_ms`, ± `jitter`.

    `jitter` is a fraction of the delay in [0, 1]. After `reset_after_ms` without a failure the next
    delay is the initial one again. Raises `ConfigError` for values out of range.
    """

    initial_ms: int = 0
    maximum_ms: int = 0
    multiplier: float = 2.0
    jitter: float = 0.1
    reset_after_ms: int = 60_000

    def __post_init__(self) -> None:
        _require(self.initial_ms >= 0, "backoff.initial_ms", "at least 0", self.initial_ms)
        _require(
            self.maximum_ms >= self.initial_ms, "backoff.maximum_ms", "at least initial_ms", self.maximum_ms
        )
        _require(1.0 <= self.multiplier < inf, "backoff.multiplier", "at least 1, finite", self.multiplier)
        _require(0.0 <= self.jitter <= 1.0, "backoff.jitter", "within 0 and 1", self.jitter)
        _require(self.reset_after_ms >= 0, "backoff.reset_after_ms", "at least 0", self.reset_after_ms)

    def next_base_ms(self, last_base_ms: float | None) -> float:
        """Return the delay before jitter that follows `last_base_ms`, or the first one for None."""
        if last_base_ms is None:
            return float(self.initial_ms)
        return min(last_base_ms * self.multiplier, float(self.maximum_ms))

    def jittered_ms(self, base_ms: float, rng: RandomSource) -> int:
        """Return `base_ms` moved by up to ± `jitter` of itself, in whole ms within the maximum."""
        offset = base_ms * self.jitter * (2.0 * rng.random() - 1.0)
        return min(max(0, round(base_ms + offset)), self.maximum_ms)


NO_BACKOFF: Final = Backoff()


@dataclass(frozen=True, slots=True)
class SupervisionPolicy:
    """How one parent treats its children's failures.

    `directives` is keyed by exception class. `max_restarts` None means no limit, 0 means never;
    `window_ms` None means the whole life of the child. `exhausted` replaces a
    restart without a permit: stop or escalate. Raises `ConfigError` for anything else.
    """

    directives: Mapping[type[BaseException], Directive] = field(default_factory=lambda: DEFAULT_DIRECTIVES)
    scope: Scope = Scope.ONE_FOR_ONE
    max_restarts: int | None = 10
    window_ms: int | None = 60_000
    backoff: Backoff = NO_BACKOFF
    exhausted: Directive = Directive.STOP

    def __post_init__(self) -> None:
        restarts, window = self.max_restarts, self.window_ms
        _require(
            restarts is None or restarts >= 0, "supervision.max_restarts", "at least 0, or None", restarts
        )
        _require(window is None or window > 0, "supervision.window_ms", "more than 0, or None", window)
        ends = (Directive.STOP, Directive.ESCALATE)
        _require(self.exhausted in ends, "supervision.exhausted", "stop or escalate", self.exhausted.value)

    def directive_for(self, failure: BaseException) -> Directive:
        """Return the directive of the most specific class that covers `failure`, else escalate."""
        for cls in type(failure).__mro__:
            directive = self.directives.get(cls)
            if directive is not None:
                return directive
        return Directive.ESCALATE


@dataclass(slots=True)
class _RestartRecord:
    """The restarts of one child, or of the group with all-for-one."""

    permitted_at_ms: deque[int]  # the last `max_restarts` permits, oldest first
    base_ms: float | None = None  # the last backoff before jitter; None: the next is the first
    due_at_ms: int = 0  # when the last restart was due
    attempt: int = 0


class Supervisor:
    """Decides what one parent does about its failing children.

    It draws from `rng` once per restart that has a backoff, so one seed gives one run.
    """

    __slots__ = ("_last_ms", "_policy", "_records", "_rng")

    def __init__(self, policy: SupervisionPolicy, rng: RandomSource) -> None:
        self._policy = policy
        self._rng = rng
        self._records: dict[ChildName | None, _RestartRecord] = {}  # None: the all-for-one group
        self._last_ms: int | None = None

    @property
    def policy(self) -> SupervisionPolicy:
        """The policy this supervisor follows."""
        return self._policy

    def decide(
        self, failure: BaseException, child: ChildName, now_ms: int, siblings: Iterable[ChildName] = ()
    ) -> list[SupervisionEffect]:
        """Return what to do about `failure` of `child`, the failed child first, then its siblings.

        `now_ms` is any clock that does not go back; `siblings` are the living children (it may
        include `child`), needed for all-for-one only. Raises `InternalError` if time goes back.
        """
        if self._last_ms is not None and now_ms < self._last_ms:
            raise InternalError(
                f"the supervisor's clock went back from {self._last_ms} to {now_ms} ms", where=child
            )
        self._last_ms = now_ms
        directive = self._policy.directive_for(failure)
        delay_ms = attempt = 0
        exhausted = False
        if directive is Directive.RESTART:
            record = self._record_of(child)
            if self._has_permit(record, now_ms):
                delay_ms = self._take_permit(record, now_ms)
                attempt = record.attempt
            else:
                exhausted = True
                directive = self._policy.exhausted

        def effect(action: Directive, target: ChildName) -> SupervisionEffect:
            if action is Directive.RESUME:
                return ResumeChild(target)
            if action is Directive.RESTART:
                return RestartChild(target, delay_ms, attempt)
            if action is Directive.STOP:
                return StopChild(target, exhausted)
            return EscalateFailure(target, failure, exhausted)

        to_child, to_siblings = ACTIONS[self._policy.scope, directive]
        effects = [effect(to_child, child)]
        if to_siblings is not None:
            effects += [effect(to_siblings, sibling) for sibling in siblings if sibling != child]
        return effects

    def forget(self, child: ChildName) -> None:
        """Drop the restart record of a child that has stopped, so that its name can be reused.

        With all-for-one the record belongs to the group and stays.
        """
        self._records.pop(child, None)

    def check(self) -> None:
        """Verify the invariants of this module's docstring; raise `InternalError` naming the first broken."""
        policy = self._policy
        for child, record in self._records.items():
            times = record.permitted_at_ms
            where = child or "the group"
            if policy.max_restarts is not None and len(times) > policy.max_restarts:
                raise InternalError(f"invariant 1: {len(times)} restarts on record", where=where)
            if any(a > b for a, b in zip(times, list(times)[1:], strict=False)):
                raise InternalError("invariant 5: restarts out of order", where=where)
            if record.base_ms is not None and not 0 <= record.base_ms <= policy.backoff.maximum_ms:
                raise InternalError(f"invariant 2: backoff of {record.base_ms} ms", where=where)
            if (child is None) != (policy.scope is Scope.ALL_FOR_ONE):
                raise InternalError("invariant 4: a record of the wrong scope", where=where)

    def _record_of(self, child: ChildName) -> _RestartRecord:
        key = None if self._policy.scope is Scope.ALL_FOR_ONE else child
        record = self._records.get(key)
        if record is None:
            # Without a limit no times are needed: keep none.
            record = self._records[key] = _RestartRecord(deque(maxlen=self._policy.max_restarts or 0))
        return record

    def _has_permit(self, record: _RestartRecord, now_ms: int) -> bool:
        limit, window_ms = self._policy.max_restarts, self._policy.window_ms
        times = record.permitted_at_ms
        if limit is None or len(times) < limit:
            return True
        return limit > 0 and window_ms is not None and now_ms - times[0] > window_ms

    def _take_permit(self, record: _RestartRecord, now_ms: int) -> int:
        """Count one restart and return its delay in ms."""
        backoff = self._policy.backoff
        if record.attempt > 0 and now_ms - record.due_at_ms >= backoff.reset_after_ms:
            record.base_ms, record.attempt = None, 0
        record.permitted_at_ms.append(now_ms)  # maxlen pushes the oldest out
        record.attempt += 1
        record.base_ms = backoff.next_base_ms(record.base_ms)
        delay_ms = backoff.jittered_ms(record.base_ms, self._rng) if backoff.maximum_ms > 0 else 0
        record.due_at_ms = now_ms + delay_ms
        return delay_ms
