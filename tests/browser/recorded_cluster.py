"""A recorded cluster: the answers of its masters and application masters, made of the real structs.

The pages are tested against a real console that asks this module instead of a cluster. So a page can be
tested with 200 fragments, with a blocked channel, and with every kind of hostile text, within seconds and
without Spark. Figures change as time passes, as those of a cluster do.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from drivetrain.api import Application, Task, agg, sinks, sources, windows
from drivetrain.cluster.messages.applications import (
    ApplicationSpec,
    ApplicationState,
    ApplicationSummary,
    ApplicationView,
    MasterView,
    WorkerView,
)
from drivetrain.cluster.messages.following import (
    ErrorView,
    ExecutorView,
    FragmentView,
    JobState,
    JobStatus,
    OutputView,
)
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointDone, CheckpointFailure, CheckpointFigures
from drivetrain.core.checkpoint.transaction import Action, Phase
from drivetrain.core.job.fragment_figures import Counters, FragmentFigures, LastBatch, Phases
from drivetrain.core.job.history import SPAN_MS, STEP_MS, History, Moment
from drivetrain.core.job.job_status import moment_of
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan

NOW_MS: Final = 1_795_000_000_000
"""When the recording begins."""
HOUR_MS: Final = 3_600_000
MANY: Final = 200
LINES: Final = 10_000
CALM: Final = "calm-39"

HOSTILE: Final = (
    "<script>window.attacked = 1</script>",
    "<img src=x onerror='window.attacked=2'>",
    '"><svg onload=window.attacked=3>',
    "javascript:window.attacked=4",
    "${window.attacked=5} {{constructor.constructor('window.attacked=6')()}}",
    "\x00\x07\x1b[31mred\x1b[0m\r\nsecond line\ttab\x7f",
    "user\u202egnp.exe",
    "עברית ואנגלית mixed",
    "مرحبا \u2067isolated",
    "👩‍👩‍👧‍👦 family 🇳🇱 flag",
    "a" * 3000,
    "zero\u200bwidth\ufeff and \u2028 line separator",
    "../../../etc/passwd?x=%00#frag ment/slash",
    "__proto__",
)
"""Texts that a page must show, but never run, and that must not break its layout."""

TRACEBACK: Final = """Traceback (most recent call last):
  File "/home/ada/shop.py", line 41, in price_of
    return prices[order["sku"]] * order["count"]
           ~~~~~~^^^^^^^^^^^^^^
KeyError: 'B-1027'
"""


SHOP_RATES: Final = {
    "orders": (1000, 1000),
    "ordered_at": (1000, 1000),
    "suspicious": (1000, 10.3),
    "suspicious_out": (10.3, 10.3),
    "by_minute": (1000, 250),
    "minutes_out": (250, 250),
    "by_hour": (250, 62.5),
    "alarm": (62.5, 2.1),
    "alarms_out": (2.1, 2.1),
    "by_day": (62.5, 4.2),
    "warehouse": (4.2, 4.2),
}
"""Messages in and out per second, by processor of the application `shop`."""
SINKS: Final = ("suspicious_out", "minutes_out", "alarms_out", "warehouse")


class Alarm(Task[str, str]):
    stateful = True

    def on_next(self, message: str) -> Iterable[str]:
        yield message


@functools.cache
def shop(*, is_earlier: bool = False) -> Plan:
    """Four windows and a Task in a row; the last one has a slow sink.

    The earlier version counts weeks, not days, and looks for other orders.
    """
    app = Application("shop")
    orders = app.read(sources.generate(rate_per_s=1000), name="orders")
    timed = orders.event_time("timestamp", max_disorder="2 s", name="ordered_at")
    timed.filter("value % 89 = 0" if is_earlier else "value % 97 = 0", name="suspicious").sink(
        sinks.json("out/suspicious"), name="suspicious_out"
    )
    by_minute = (
        timed.group_by("value").window(windows.tumbling("1 min")).aggregate(step="by_minute", n=agg.count())
    )
    by_minute.sink(sinks.parquet("out/minutes"), name="minutes_out")
    by_hour = (
        by_minute.group_by("value").window(windows.tumbling("1 h")).aggregate(step="by_hour", n=agg.sum("n"))
    )
    by_hour.process(Alarm, name="alarm", returns=str).sink(sinks.console(), name="alarms_out")
    last, days = ("by_week", "7 d") if is_earlier else ("by_day", "1 d")
    counted = by_hour.group_by("value").window(windows.tumbling(days)).aggregate(step=last, n=agg.sum("n"))
    counted.sink(sinks.csv(f"out/{last}"), name="weeks" if is_earlier else "warehouse")
    return plan(app.graph())


@functools.cache
def many() -> Plan:
    """A tree of 200 fragments."""
    app = Application("many")
    events = app.read(sources.generate(rate_per_s=10), name="events")
    streams = [events.event_time("timestamp", max_disorder="2 s", name="at")]
    for number in range(1, MANY + 1):
        above = streams[(number - 1) // 3]
        streams.append(
            above.group_by("value")
            .window(windows.tumbling("1 min"))
            .aggregate(step=f"window_{number}", n=agg.count())
        )
    for number, stream in enumerate(streams[(MANY - 1) // 3 + 1 :]):
        stream.sink(sinks.none(), name=f"nowhere_{number}")
    return plan(app.graph())


@dataclass
class Recorded:
    """One application: its plan, and what is special about it; `renamed` gives ids other texts."""

    app_id: str
    plan: Plan
    state: ApplicationState = ApplicationState.ACTIVE
    why: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    blocked: tuple[str, ...] = ()
    slow: str | None = None
    failing: bool = False
    loses: bool = False
    spec: ApplicationSpec | None = None
    over_error: ErrorView | None = None
    is_answering: bool = True


T = TypeVar("T")


def renamed(value: T, names: Mapping[str, str]) -> T:
    """The same struct with other texts for ids, wherever they occur."""

    def turned(one: Any) -> Any:
        if isinstance(one, str):
            return names.get(one, one)
        if isinstance(one, Mapping):
            return {turned(key): turned(inner) for key, inner in one.items()}
        if isinstance(one, list | tuple):
            return [turned(inner) for inner in one]
        return one

    return msgspec.convert(turned(msgspec.to_builtins(value)), type(value)) if names else value


def hostile_names(made: Plan) -> dict[str, str]:
    """Other texts for the first fragments, processors and channels of a plan."""
    ids = [fragment.id for fragment in made.fragments][: len(HOSTILE)]
    processors = [id for id in made.operators if id not in ids][: len(HOSTILE)]
    return {
        **dict(zip(ids, HOSTILE, strict=False)),
        **{id: f"{text} (processor)" for id, text in zip(processors, HOSTILE, strict=False)},
    }


def recorded() -> list[Recorded]:
    """The applications of the cluster, the newest first."""
    big = many()
    return [
        Recorded("many-41", big, renamed=hostile_names(big)),
        Recorded("shop-40", shop(), blocked=("orders", "by_minute", "by_hour"), slow="by_day"),
        Recorded(CALM, shop()),
        Recorded("recovering-38", shop(), failing=True),
        Recorded(
            "waiting-37", shop(), ApplicationState.PENDING, "no worker has 2 free slots", is_answering=False
        ),
        Recorded(
            "failed-36",
            shop(),
            ApplicationState.FAILED,
            HOSTILE[0],
            over_error=ErrorView(
                "user-code",
                f"price_of failed: {HOSTILE[1]}",
                "shop.py:41",
                remedy=HOSTILE[2],
                user_traceback=TRACEBACK + HOSTILE[0] + HOSTILE[5],
            ),
        ),
        Recorded("succeeded-35", shop(), ApplicationState.SUCCEEDED),
        Recorded("losing-34", shop(), loses=True),
    ]


def spec_of(one: Recorded) -> ApplicationSpec:
    """The specification that was submitted."""
    return one.spec or ApplicationSpec(
        one.app_id.rpartition("-")[0], "c0de" * 16, f"{one.plan.application}.py"
    )


def line_of(one: Recorded, now_ms: int) -> ApplicationSummary:
    """The application in the list of a leader."""
    view = view_of(one, now_ms)
    return ApplicationSummary(
        view.app_id,
        view.spec.name,
        view.state,
        view.epoch,
        view.submitted_ms,
        view.ended_ms,
        view.worker,
        view.why,
        view.clock_ms,
        0,
        file=view.spec.file,
        code=view.spec.code,
    )


def view_of(one: Recorded, now_ms: int) -> ApplicationView:
    """The application as a leader knows it."""
    number = int(one.app_id.rpartition("-")[2])
    return ApplicationView(
        one.app_id,
        spec_of(one),
        one.state,
        2 if one.failing else 1 if one.is_answering else 0,
        NOW_MS - HOUR_MS - (41 - number) * 7 * HOUR_MS,
        NOW_MS - number * 1000 if one.state.is_over else None,
        worker="worker-1" if one.is_answering else None,
        why=one.why,
        clock_ms=NOW_MS - HOUR_MS,
    )


def status_of(one: Recorded, now_ms: int) -> JobStatus | None:
    """The current report of its application master."""
    if not one.is_answering:
        return None
    elapsed_s = (now_ms - NOW_MS) / 1000
    fragments = tuple(_fragment(one, number, elapsed_s) for number in range(len(one.plan.fragments)))
    status = JobStatus(
        one.app_id,
        2 if one.failing else 1,
        {ApplicationState.FAILED: JobState.FAILED, ApplicationState.SUCCEEDED: JobState.FINISHED}.get(
            one.state, JobState.RUNNING
        ),
        NOW_MS - HOUR_MS,
        now_ms,
        min((f.clock_ms for f in fragments if f.clock_ms is not None), default=None),
        fragments,
        tuple(
            ExecutorView(f"executor-{n}", f"worker-{n}", "127.0.0.1", 4000 + n, 2, "running", "local[2]")
            for n in (1, 2)
        ),
        tuple(
            OutputView(sink.id, sink.target, int(1000 * (3600 + elapsed_s)) >> number, sink.guarantee)
            for number, sink in enumerate(one.plan.sinks[:20])
        ),
        _counts(one, elapsed_s),
        {"orders_without_price": 17, "mean_basket": 41.25} if not one.renamed else {HOSTILE[0]: 1},
        error=one.over_error,
        errors=_errors(one),
        checkpoints=_checkpoints(one, fragments, now_ms, fails=one.failing),
        checkpoints_now_ms=now_ms,
        change="version 4 is on trial, waiting for messages in hourly" if one.app_id == "shop-40" else None,
    )
    return renamed(status, one.renamed)


def _fragment(one: Recorded, number: int, elapsed_s: float) -> FragmentView:
    planned = one.plan.fragments[number]
    depth = number if len(one.plan.fragments) < 20 else number % 7
    usual = SHOP_RATES[planned.id][0] if planned.id in SHOP_RATES else 1000.0 / 4**depth
    rate = usual * (1 + 0.08 * ((elapsed_s * 7 + number * 3) % 10 - 5) / 5)
    is_slow, is_blocked = planned.id == one.slow, planned.id in one.blocked
    held = 0.3 if is_slow else 0.2 if is_blocked else 1.0
    fails = one.failing and number == 1
    blocked_by = None
    if is_blocked:
        blocked_by = next(
            c.consumer_fragment
            for c in one.plan.outputs(planned.id)
            if c.consumer_fragment in (*one.blocked, one.slow)
        )
    behind_ms = 2_000 + depth * 400 + (95_000 if is_slow else 0)
    channels = tuple(
        _channel(one, c.id, rate, elapsed_s) for c in one.plan.channels if c.consumer_fragment == planned.id
    )
    clock_ms = NOW_MS + int(elapsed_s * 1000) - behind_ms
    if one.slow is not None and (is_slow or is_blocked):
        clock_ms = NOW_MS - 95_000 - depth * 60_000
    phases = _phases(is_slow, is_blocked, number)
    return FragmentView(
        planned.id,
        "scheduled" if fails else "running",
        3 if fails else 1,
        f"executor-{number % 2 + 1}",
        f"worker-{number % 2 + 1}",
        int(3600 + elapsed_s),
        int(usual * held * (3600 + elapsed_s + 8 * math.sin(elapsed_s / 40))),
        0.0 if fails else rate * held,
        phases.together_ms,
        sum(c.lag_rows for c in channels) if channels else 120 + number,
        clock_ms,
        ErrorView(
            "user-code",
            "price_of failed: KeyError: 'B-1027'",
            "shop.py:41",
            remedy="handle orders without a price",
            user_traceback=TRACEBACK,
        )
        if fails
        else None,
        channels,
        2_000 + depth * 300,
        95_000 if is_slow else 0,
        "its own work" if is_slow else None,
        blocked_by,
        figures=_figures(one, number, phases, elapsed_s),
    )


def _phases(is_slow: bool, is_blocked: bool, number: int) -> Phases:
    """The phases of every batch: a slow one is slow in its sink, a blocked one waits."""
    usual = Phases(0, 31, 40 + number % 20, 210 + (number * 37) % 200, 24, 18, 57, 9)
    if is_slow:
        return Phases(0, 113, 106, 487, 39_759, 0, 163, 372)
    return msgspec.structs.replace(usual, waiting_ms=9_400) if is_blocked else usual


def _figures(one: Recorded, number: int, phases: Phases, elapsed_s: float) -> FragmentFigures:
    batches, planned = int(3600 + elapsed_s), one.plan.fragments[number]
    held = {c.id: 3_000_000 for c in one.plan.outputs(planned.id)} if phases.waiting_ms else {}
    state = (218_000, 90_000_000) if planned.stateful else (None, None)
    return FragmentFigures(
        Counters(
            batches,
            Phases(*(batches * getattr(phases, name) for name in Phases.__struct_fields__)),
            70 * batches,
            39 * batches,
            blocked_ms=held,
        ),
        LastBatch(
            batches,
            709,
            phases,
            {"warehouse": phases.sink_ms} if planned.id == one.slow else {},
            70,
            40,
            2,
            39,
        ),
        2,
        *state,
        latency_p50_ms=phases.together_ms + 200,
        latency_p99_ms=phases.together_ms + 900,
        latency_batches=50,
        trigger_ms=10_000 if planned.id == one.slow else None,
    )


def history_of(app_id: str, now_ms: int) -> History:
    """The figures of the 15 minutes before `now_ms`."""
    last_ms = now_ms - now_ms % STEP_MS
    moments = (_moment(app_id, at_ms) for at_ms in range(last_ms - SPAN_MS, last_ms + 1, STEP_MS))
    return History(tuple(moment for moment in moments if moment is not None))


@functools.cache
def _moment(app_id: str, at_ms: int) -> Moment | None:
    one = _as_they_began()[app_id]
    status = None if one.state.is_over else status_of(one, at_ms)
    return None if status is None else moment_of(status)


@functools.cache
def _as_they_began() -> dict[str, Recorded]:
    return {one.app_id: one for one in recorded()}


def _channel(one: Recorded, id: str, rate: float, elapsed_s: float) -> ChannelProgress:
    planned = one.plan.channel(id)
    full = (
        one.slow is not None
        and planned.producer_fragment in one.blocked
        and planned.consumer_fragment in (*one.blocked, one.slow)
    )
    lag = 100_000 if full else int(rate * 0.4 * (1 + (elapsed_s % 5) / 5))
    return ChannelProgress(
        id,
        planned.producer_fragment,
        planned.consumer_fragment,
        NOW_MS + int(elapsed_s * 1000) - 2_000,
        lag,
        lag * 84,
        95_000 if full else 400,
        lag,
        lag * 84,
        100_000,
        64 * 2**20,
        int(95_000 + elapsed_s * 1000) if full else 0,
        2 if one.failing else 0,
        1 if one.failing else 0,
        lag * 120 + 4_096,
    )


def _counts(one: Recorded, elapsed_s: float) -> dict[str, tuple[int, int, int, int]]:
    counts = {}
    for number, id in enumerate(one.plan.operators):
        taken, given = SHOP_RATES.get(id, (1000 / 3 ** (number % 6), 900 / 3 ** (number % 6)))
        held = 0.2 if one.blocked else 1.0
        lasted_s = 3600 + elapsed_s * held
        late = int(taken * lasted_s) // 60 if one.loses and id == "by_minute" else 0
        counts[id] = (
            0 if id == "orders" else int(taken * lasted_s),
            0 if id in SINKS else int(given * lasted_s),
            late,
            23 if one.loses and id == "suspicious" else 0,
        )
    return counts


def _errors(one: Recorded) -> tuple[ErrorView, ...]:
    if one.failing:
        return tuple(
            ErrorView(
                "user-code",
                f"price_of failed: KeyError: 'B-{1000 + n}'",
                "shop.py:41",
                remedy="handle orders without a price",
                user_traceback=TRACEBACK,
            )
            for n in range(3)
        )
    if one.renamed:
        return tuple(ErrorView("user-code", text, text, text, text, text, text) for text in HOSTILE)
    return ()


def _checkpoints(
    one: Recorded, fragments: Sequence[FragmentView], now_ms: int, *, fails: bool
) -> CheckpointFigures:
    started_ms = now_ms - 31_000 - (600_000 if fails else 0)
    took = {f.fragment: 180 + 140 * n % 1900 for n, f in enumerate(fragments)}
    failures = tuple(
        CheckpointFailure(
            60 + n,
            Action.PREPARE,
            now_ms - (3 - n) * 100_000,
            ("by_day",),
            "by_day did not answer within 1 min 0 s",
        )
        for n in range(3 if fails else 0)
    )
    return CheckpointFigures(
        63,
        Phase.PREPARING,
        False,
        12_000 if fails else None,
        59,
        len(failures),
        CheckpointDone(59, started_ms - 2_000, started_ms, max(took.values()) + 300, 7_340_032, took),
        failures,
    )


def log_of(one: Recorded) -> str:
    """An executor's output: ten thousand lines, some of them hostile, and one that is very long."""
    lines = [f"26/11/18 11:00:00 INFO batch {number} of {one.app_id} is committed" for number in range(LINES)]
    for number, text in enumerate(HOSTILE):
        lines[LINES - 3 * (number + 2)] = f"ERROR {text}".replace("\n", " ").replace("\r", " ")
    lines[LINES - 2] = "WARN " + "x" * 2_000_000
    return "\n".join(lines) + "\n"


def masters() -> tuple[MasterView, ...]:
    """Five masters, one of which is silent."""
    return (
        MasterView("127.0.0.1:7401", leads=True, term=7, silent_ms=0),
        MasterView("127.0.0.1:7402", leads=False, term=7, silent_ms=310),
        MasterView("127.0.0.1:7403", leads=False, term=6, silent_ms=84_000),
        MasterView("127.0.0.1:7404", leads=False, term=7, silent_ms=420),
        MasterView("127.0.0.1:7405", leads=False, term=7, silent_ms=280),
    )


def workers() -> tuple[WorkerView, ...]:
    """Two workers; the second has no free slot, and a hostile name."""
    return (
        WorkerView(
            "w1",
            "worker-1",
            "127.0.0.1",
            8,
            2,
            NOW_MS - HOUR_MS,
            0.61,
            9_100_000_000,
            None,
            ("shop-40.master", "shop-40.1"),
        ),
        WorkerView(
            "w2", HOSTILE[1], "127.0.0.1", 8, 0, NOW_MS - HOUR_MS, 0.97, 6_200_000_000, None, ("many-41.1",)
        ),
    )


def named(applications: Sequence[Recorded], app: str) -> Recorded | None:
    """The application of that id, or the newest of that name."""
    return next((one for one in applications if app in (one.app_id, re.sub(r"-\d+$", "", one.app_id))), None)
